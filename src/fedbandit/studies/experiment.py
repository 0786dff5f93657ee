"""What an experiment is: points to run, what a paper reports about them, and claims to check; where those are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from fedbandit.errors import FedbanditError, require, unknown, whole_number
from fedbandit.studies.claims import Claim
from fedbandit.studies.figures import Panel
from fedbandit.studies.measured import check_measure
from fedbandit.studies.trials import Point, Value


@dataclass(frozen=True)
class Scale:
    """How large an experiment is: its points, each with so many seeds from `first_seed` on; tune on those before it."""

    points: Sequence[Point]
    seeds: int
    first_seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a scale at which nothing is run, or two points that cannot be told apart."""
        object.__setattr__(self, "points", tuple(self.points))
        require(len(self.points) > 0, "points", self.points, "at least one")
        whole_number("seeds", self.seeds, 1)
        labels = [point.label for point in self.points]
        for label in labels:
            if labels.count(label) > 1:
                raise FedbanditError(f"Two points of an experiment are called {label.text!r}; give them other labels.")


@dataclass(frozen=True)
class Experiment:
    """A figure or a table: what is run at which scale, what the paper says, and what we check.

    reference: where it stands; reports: what the paper says in words; printed: its numbers, by series and value, of
    the first measure; remarks: where we differ on purpose; panels: pictures; measures: columns of the table;
    pivot: the table has a line for each value and a column for each series, of the first measure.
    """

    title: str
    scales: Mapping[str, Scale]
    panels: Sequence[Panel]
    reference: str = ""
    reports: str = ""
    remarks: Sequence[str] = ()
    claims: Sequence[Claim] = ()
    measures: Sequence[str] = ("regret", "messages")
    printed: Mapping[tuple[str, Value], float] = field(default_factory=dict)
    pivot: bool = False
    value_name: str = "value"
    name: str = ""

    def __post_init__(self) -> None:
        """Refuse claims about what is not run, and measures that do not exist."""
        require(len(self.scales) > 0, "scales", self.scales, "at least one")
        for measure in (*self.measures, *(panel.y for panel in self.panels)):
            check_measure(measure)
        everywhere = {point.series for scale in self.scales.values() for point in scale.points}
        for claim in self.claims:
            for series in claim.needs:
                if series not in everywhere:
                    raise unknown("series", series, everywhere)

    def scale(self, name: str) -> Scale:
        """The scale of this name."""
        if name not in self.scales:
            raise unknown(f"scale of {self.name or self.title}", name, self.scales)
        return self.scales[name]


PAPERS = "fedbandit.papers"
"""Where declarations are. They import this module, so it only looks for them when it is asked to."""


@lru_cache(maxsize=1)
def experiment_names() -> tuple[str, ...]:
    """All experiments of the papers, such as `async-linucb/fig2a`: package and module, with hyphens; none is loaded."""
    found = []
    for folder in map(Path, import_module(PAPERS).__path__):
        for paper in iter_modules([str(folder)]):
            modules = iter_modules([str(folder / paper.name)]) if paper.ispkg else ()
            found += [f"{paper.name}/{module.name}".replace("_", "-") for module in modules]
    return tuple(found)


@lru_cache
def load(name: str) -> Experiment:
    """The experiment of this name; no other module of a paper is imported."""
    module = import_module(f"{PAPERS}.{name.replace('-', '_').replace('/', '.')}")
    experiment: Experiment = module.EXPERIMENT
    return replace(experiment, name=name)


def choose(names: Sequence[str], everything: bool = False) -> list[Experiment]:
    """The experiments of these names, each once; the name of a paper stands for all of its experiments."""
    known = experiment_names()
    if everything:
        if names:
            raise FedbanditError(f"--all is given beside {names[0]!r}; give names or --all.")
        return [load(name) for name in known]
    if not names:
        raise FedbanditError("Name an experiment (see: fedbandit list), or give --all.")
    papers = {name.partition("/")[0] for name in known}
    chosen: dict[str, None] = {}
    for name in (name.replace("_", "-").rstrip("/") for name in names):
        if name not in papers and name not in known:
            raise unknown("experiment", name, [*known, *papers])
        chosen |= dict.fromkeys(one for one in known if one == name or one.startswith(f"{name}/"))
    return [load(name) for name in chosen]
