"""Wang et al., Global and Local Differential Privacy for Collaborative Bandits, RecSys 2020."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fedbandit.environments import Collaborative, Environment
from fedbandit.policies import UCB
from fedbandit.presets import colin, dp_colin, dp_goblin, dp_linucb, goblin, ldp_colin, ldp_goblin, linucb, uniform
from fedbandit.privacy import PublishedSums
from fedbandit.protocols import Never
from fedbandit.structures import Laplacian, WeightedGraph
from fedbandit.studies import Point
from fedbandit.system import System

PLAIN = {"LinUCB": linucb, "CoLin": colin, "GOBLin": goblin}
PUBLISHED = {"DP-CoLin": dp_colin, "DP-GOBLin": dp_goblin, "LDP-CoLin": ldp_colin, "LDP-GOBLin": ldp_goblin}
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


def world(n_clients: int = 10, facet: str = AS_PRINTED) -> Collaborative:
    """§6.1: 10 users, a pool of 1000 arms of which 10 are shown, users served evenly."""
    signed = facet == SIGNED
    return Collaborative(n_clients=n_clients, dim=10, n_arms=10, pool=1000, arrivals="round-robin", signed=signed)


def systems(epsilon: float = 2.0, **common: Any) -> dict[str, partial[System]]:
    """Plain, private as published, and private as proven; `common` are keywords for all that learn."""
    found = {"random arms": partial(uniform)}
    found |= {name: partial(preset, **common) for name, preset in PLAIN.items()}
    found["DP-LinUCB, proven"] = partial(dp_linucb, epsilon=epsilon, **common)
    for name, preset in PUBLISHED.items():
        found[f"{name}, as published"] = partial(preset, epsilon=epsilon, calibration="published", **common)
        found[f"{name}, proven"] = partial(preset, epsilon=epsilon, **common)
    return found


def compared(env: Environment, horizon: int, epsilon: float = 2.0, **place: Any) -> list[Point]:
    """All systems on one environment; `place` is where its points are (value, facet) and what else is measured."""
    return [Point(name, system, env, horizon, **place) for name, system in systems(epsilon).items()]


def alone_as_published(epsilon: float, n_clients: int = 10) -> System:
    """DP-LinUCB as published: DP-CoLin on a graph without edges (§4.1)."""
    graph = WeightedGraph(np.eye(n_clients), isolated=True)
    return System(UCB(), Never(), graph, PublishedSums(epsilon), ridge=1.0, name="dp_linucb")


def with_isolated_users(preset: Callable[..., System], **keywords: Any) -> System:
    """The system, on a graph in which users may be without neighbours (no preset has a keyword for that)."""
    system = preset(**keywords)
    if isinstance(system.structure, WeightedGraph | Laplacian):
        return replace(system, structure=replace(system.structure, isolated=True))
    return system
