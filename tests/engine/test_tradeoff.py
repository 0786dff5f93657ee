"""Regret against communication (Async-LinUCB, Fig. 2), at a size that takes seconds."""

from __future__ import annotations

import numpy as np

import fedbandit as fb

SEEDS = range(4)


def regret_and_messages(system: fb.System, arrivals: str) -> tuple[float, float]:
    env = fb.environments.homogeneous(n_clients=100, dim=10, n_arms=10, arrivals=arrivals)  # type: ignore[arg-type]
    results = [fb.simulate(system, env, 6000, seed) for seed in SEEDS]
    return float(np.mean([r.regret[-1] for r in results])), float(np.mean([r.communication.messages for r in results]))


def asynchronous(gamma: float, arrivals: str, *, warm: bool = True) -> tuple[float, float]:
    system = fb.async_linucb(gamma_upload=gamma, gamma_download=gamma, warm_join=warm)
    return regret_and_messages(system, arrivals)


def synchronous(threshold: float, arrivals: str, *, warm: bool = True) -> tuple[float, float]:
    return regret_and_messages(fb.sync_linucb(threshold=threshold, warm_join=warm), arrivals)


def test_a_higher_threshold_saves_messages_and_costs_regret() -> None:
    points = np.array([asynchronous(gamma, "uniform") for gamma in (1.01, 1.3, 3.0, 30.0, 1000.0)])
    assert (np.diff(points[:, 1]) < 0).all(), "messages must fall with the threshold"
    assert (np.diff(points[:, 0]) > 0).all(), "regret must rise with the threshold"


def test_who_acts_decides_which_protocol_is_ahead() -> None:
    """Uniform arrivals: synchronous has less regret for fewer messages. Skewed: asynchronous does."""
    sync, other = synchronous(10.0, "uniform"), asynchronous(11.0, "uniform")
    assert sync[0] < other[0]
    assert sync[1] < other[1]
    sync, other = synchronous(1000.0, "skewed"), asynchronous(11.0, "skewed")
    assert other[0] < sync[0]
    assert other[1] < sync[1]


def test_as_published_asynchronous_is_ahead_under_skewed_arrivals() -> None:
    """Alg. 2 and Alg. 4: in both clients start empty, and Fig. 2(b) holds."""
    sync, other = synchronous(100.0, "skewed", warm=False), asynchronous(5.0, "skewed", warm=False)
    assert other[0] < sync[0]
    assert other[1] < 0.5 * sync[1]
    assert sync[0] > 2 * synchronous(100.0, "skewed")[0], "blind first pulls cost both of them"
