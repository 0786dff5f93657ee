"""The systems that the paper compares, and its synthetic world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedbandit.policies import UCB
from fedbandit.privacy import PublishedSums
from fedbandit.protocols import Never
from fedbandit.structures import WeightedGraph
from fedbandit.studies.declaration import Point
from fedbandit.studies.measured import Value
from fedbandit.studies.specs import Spec, build_system
from fedbandit.system import System

PUBLISHED = ("DP-CoLin", "DP-GOBLin", "LDP-CoLin", "LDP-GOBLin")
WORSE_THAN_RANDOM = (
    "With the published noise these systems are no better than random arms at this horizon (see 'random arms'): what "
    "is left between them is chance."
)
REMARKS = (
    "d and σ are not printed: d = 10 and σ = 0.1 here. Rewards are in [0, 1] before noise, as privacy needs: rows of W "
    "sum to one.",
    "'as published' is Laplace noise per coordinate with an L2 sensitivity, which is not ε-DP; its true ε is printed "
    "with the results. 'proven' noises rewards, or users' sums where that is better, and may choose the same mechanism "
    "for the global and the local system: the gap between the two belongs to what was published.",
)


AS_PRINTED, SIGNED = "contexts as printed", "contexts of either sign"
SIGNED_REMARK = (
    "With contexts from U(0, 1), as printed, random arms have less regret than most of the paper's private systems, so "
    "that its figures cannot be of that world. With contexts of either sign (uniform on the sphere) random arms have "
    "more, and the published systems the trends and most of the order of the paper. Rewards are clipped to [0, 1]."
)


def world(n_clients: int = 10, facet: str = AS_PRINTED) -> str:
    """§6.1: 10 users, a pool of 1000 arms of which 10 are shown, users served evenly."""
    env = f"collaborative:n_clients={n_clients},dim=10,n_arms=10,pool=1000,arrivals=round-robin"
    return f"{env},signed=true" if facet == SIGNED else env


def compared(
    env: str,
    horizon: int | None,
    epsilon: float = 2.0,
    *,
    value: Value = "",
    facet: str = "",
    extra: str = "",
    common: str = "",
    plain: bool = True,
    only: Sequence[str] | None = None,
    isolated: bool = False,
) -> list[Point]:
    """Plain, private as published, and private as proven; `common` are keywords for all.

    `isolated` lets users be without neighbours, as some clusters of friends are.
    """
    systems = [("random arms", "uniform")]
    systems += [("LinUCB", "linucb"), ("CoLin", "colin"), ("GOBLin", "goblin")] if plain else []
    systems.append(("DP-LinUCB, proven", f"dp-linucb:epsilon={epsilon:g}"))
    for name in PUBLISHED:
        preset = name.lower()
        systems.append((f"{name}, as published", f"{preset}:epsilon={epsilon:g},calibration=published"))
        systems.append((f"{name}, proven", f"{preset}:epsilon={epsilon:g}"))
    points = []
    for series, text in systems:
        if only is None or series in only:
            more = f"{text}{',' if ':' in text else ':'}{common}" if common and text != "uniform" else text
            system = lonely(more) if isolated else more
            points.append(Point(series, system, env, horizon, value=value, facet=facet, extra=extra))
    return points


def independent(epsilon: float, n_clients: int = 10) -> Callable[[], System]:
    """DP-LinUCB as published: DP-CoLin on a graph without edges (§4.1)."""

    def make() -> System:
        graph = WeightedGraph(np.eye(n_clients), isolated=True)
        return System(UCB(), Never(), graph, PublishedSums(epsilon), ridge=1.0, name="dp_linucb")

    return make


def lonely(text: str) -> Callable[[], System]:
    """The system, on a graph in which users may be without neighbours (no preset has a keyword for that)."""

    def make() -> System:
        system = build_system(Spec.parse(text))
        structure: Any = system.structure
        return (
            replace(system, structure=replace(structure, isolated=True)) if hasattr(structure, "isolated") else system
        )

    return make
