"""Wang et al., Global and Local Differential Privacy for Collaborative Bandits, RecSys 2020."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from fedbandit.environments import Collaborative, Environment, Simulator
from fedbandit.presets import colin, dp_colin, dp_goblin, dp_linucb, goblin, ldp_colin, ldp_goblin, linucb, uniform
from fedbandit.studies import Point
from fedbandit.system import System

PLAIN = {"LinUCB": linucb, "CoLin": colin, "GOBLin": goblin}
PRIVATE = {"DP-CoLin": dp_colin, "DP-GOBLin": dp_goblin, "LDP-CoLin": ldp_colin, "LDP-GOBLin": ldp_goblin}
LAB, AS_PRINTED = "the lab's simulator", "without groups"
FIRST_SEED = 10
"""Ridge and width of the proven systems were chosen on seeds 0 and 1 of `AS_PRINTED`."""

REMARKS = (
    "The paper follows 'the settings in [6, 37]', the lab's simulator: five groups of articles and of users, each "
    "with a random 0/1 mask on its features. Entries are U(0, 1) and d = 5 as in the lab's files; edges below 0.5 are "
    "cut, a threshold that is not printed, nor is σ = 0.1. 'Without groups' is what the text alone says, with d = 10 "
    "and a threshold of 0.75. Rows of W sum to one, so that rewards are in [0, 1] before noise, as privacy needs.",
    "'As published' is Laplace noise per coordinate with an L2 sensitivity, which is not ε-DP; its true ε is printed "
    "with the results. Its widths are those of Lemmas 2 and 4, with σ, and λ = 1. DP-LinUCB as published is N "
    "learners, each with a tree of T/N releases.",
    "'Proven' noises rewards, or users' sums where that is better, and may choose the same mechanism for the global "
    "and the local system: the gap between the two belongs to what was published. All proven systems, DP-LinUCB too, "
    "have one rule for ridge and width, λ = max(0.1, 40/ε²) and α² = 0.01 + 2/ε²; it was chosen on other seeds.",
)


def world(n_clients: int = 10, facet: str = LAB) -> Collaborative:
    """§6.1: 10 users, a pool of 1000 arms of which 10 are shown, users served evenly."""
    if facet == LAB:
        return Simulator(n_clients=n_clients, threshold=0.5)
    return Collaborative(n_clients=n_clients, dim=10, n_arms=10, pool=1000, arrivals="round-robin")


def systems(epsilon: float = 2.0, **common: Any) -> dict[str, partial[System]]:
    """Plain, private as published, and private as proven; `common` are keywords for all that learn."""
    on_graph = {"isolated": True} | common
    tuned = {"ridge": max(0.1, 40 / epsilon**2), "alpha": math.hypot(0.1, math.sqrt(2) / epsilon)}
    found = {"random arms": partial(uniform), "LinUCB": partial(linucb, **common)}
    found |= {name: partial(preset, **on_graph) for name, preset in PLAIN.items() if preset is not linucb}
    found["DP-LinUCB, as published"] = partial(dp_linucb, epsilon=epsilon, calibration="published", **common)
    found["DP-LinUCB, proven"] = partial(dp_linucb, epsilon=epsilon, **tuned | common)
    for name, preset in PRIVATE.items():
        found[f"{name}, as published"] = partial(preset, epsilon=epsilon, calibration="published", **on_graph)
        found[f"{name}, proven"] = partial(preset, epsilon=epsilon, **on_graph)
    return found


def compared(env: Environment, horizon: int, epsilon: float = 2.0, **place: Any) -> list[Point]:
    """All systems on one environment; `place` is where its points are (value, facet) and what else is measured."""
    return [Point(name, system, env, horizon, **place) for name, system in systems(epsilon).items()]
