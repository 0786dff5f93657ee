"""All experiments of the papers: every module of every package in here that has an `EXPERIMENT`, found by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules

import fedbandit.papers as root
from fedbandit.errors import FedbanditError, unknown
from fedbandit.studies.declaration import Experiment


@lru_cache(maxsize=1)
def catalogue() -> dict[str, Experiment]:
    """Experiments by name, such as `async-linucb/fig2a`: the package and the module, with hyphens."""
    found = {}
    for paper in iter_modules(root.__path__):
        if paper.ispkg:
            package = import_module(f"{root.__name__}.{paper.name}")
            for module in iter_modules(package.__path__):
                experiment = getattr(import_module(f"{package.__name__}.{module.name}"), "EXPERIMENT", None)
                if isinstance(experiment, Experiment):
                    name = f"{paper.name}/{module.name}".replace("_", "-")
                    found[name] = replace(experiment, name=name)
    return found


def choose(names: Sequence[str], everything: bool = False) -> list[Experiment]:
    """The experiments of these names, each once; the name of a paper stands for all of its experiments."""
    known = catalogue()
    if everything:
        if names:
            raise FedbanditError(f"--all is given beside {names[0]!r}; give names or --all.")
        return list(known.values())
    if not names:
        raise FedbanditError("Name an experiment (see: fedbandit list), or give --all.")
    papers = {name.partition("/")[0] for name in known}
    chosen: dict[str, Experiment] = {}
    for name in (name.replace("_", "-").rstrip("/") for name in names):
        if name in papers:
            chosen |= {key: experiment for key, experiment in known.items() if key.startswith(f"{name}/")}
        elif name in known:
            chosen[name] = known[name]
        else:
            raise unknown("experiment", name, [*known, *papers])
    return list(chosen.values())
