"""What an experiment is: points to run, what a paper reports about them, and claims to check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from fedbandit.errors import FedbanditError, require, unknown, whole_number
from fedbandit.studies.claims import Claim
from fedbandit.studies.measured import Key, Value, check_measure
from fedbandit.studies.panels import Panel
from fedbandit.system import System

SystemText: TypeAlias = str | Callable[[], System]


@dataclass(frozen=True)
class Point:
    """One system on one environment: a curve, a dot or an entry of a table, once for each seed.

    series: whose line it belongs to; value: where on that line (a threshold, ε, a setting); facet: in which picture.
    system: as on the command line, or a function that makes it where text does not suffice (parts made by hand).
    env: as on the command line. horizon: rounds, or None for recorded data to their end.
    extra: what else is to be measured (`extras.EXTRAS`).
    """

    series: str
    system: SystemText
    env: str
    horizon: int | None
    value: Value = ""
    facet: str = ""
    extra: str = ""

    @property
    def key(self) -> Key:
        """What tells points of an experiment apart."""
        return Key(self.facet, self.series, self.value)


@dataclass(frozen=True)
class Scale:
    """How large an experiment is: its points, each with seeds 0, 1, …"""

    points: Sequence[Point]
    seeds: int

    def __post_init__(self) -> None:
        """Refuse a scale at which nothing is run, or two points that cannot be told apart."""
        object.__setattr__(self, "points", tuple(self.points))
        require(len(self.points) > 0, "points", self.points, "at least one")
        whole_number("seeds", self.seeds, 1)
        keys = [point.key for point in self.points]
        for key in keys:
            if keys.count(key) > 1:
                raise FedbanditError(f"Two points of an experiment are called {key.text!r}; give them other labels.")


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
