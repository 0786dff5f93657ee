"""Regret against communication (Async-LinUCB, Fig. 2), at a size that takes seconds.

Clients are sent what there is when they join (`warm_join`), as members of a synchronous federation are: blind first
pulls would otherwise be most of the regret of so short a run.
"""

from __future__ import annotations

import numpy as np

import fedbandit as fb

SEEDS = range(4)


def regret_and_messages(system: fb.System, arrivals: str) -> tuple[float, float]:
    env = fb.environments.homogeneous(n_clients=100, dim=10, n_arms=10, arrivals=arrivals)  # type: ignore[arg-type]
    results = [fb.simulate(system, env, 6000, seed) for seed in SEEDS]
    return float(np.mean([r.regret[-1] for r in results])), float(np.mean([r.communication.messages for r in results]))


def asynchronous(gamma: float, arrivals: str) -> tuple[float, float]:
    return regret_and_messages(fb.async_linucb(gamma_upload=gamma, gamma_download=gamma, warm_join=True), arrivals)


def test_a_higher_threshold_saves_messages_and_costs_regret() -> None:
    points = np.array([asynchronous(gamma, "uniform") for gamma in (1.01, 1.3, 3.0, 30.0, 1000.0)])
    assert (np.diff(points[:, 1]) < 0).all(), "messages must fall with the threshold"
    assert (np.diff(points[:, 0]) > 0).all(), "regret must rise with the threshold"


def test_who_acts_decides_which_protocol_is_ahead() -> None:
    """Uniform arrivals: synchronous has less regret for fewer messages. Skewed: asynchronous does."""
    sync = regret_and_messages(fb.sync_linucb(threshold=10.0), "uniform")
    other = asynchronous(11.0, "uniform")
    assert sync[0] < other[0]
    assert sync[1] < other[1]
    sync = regret_and_messages(fb.sync_linucb(threshold=1000.0), "skewed")
    other = asynchronous(11.0, "skewed")
    assert other[0] < sync[0]
    assert other[1] < sync[1]
