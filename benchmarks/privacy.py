"""What privacy costs: FedUCB's experiment with different amounts of noise, and the time of a release."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

import fedbandit as fb
from benchmarks.timing import best_seconds, table
from fedbandit.environments import FedUCB
from fedbandit.privacy import PrivateStatistics
from fedbandit.privacy.mechanism import gram_mechanism, release, start
from fedbandit.protocols import Synchronous

ROUNDS = 20_000
SEEDS = 3
BY_COUNTS = Synchronous(growth=1.5, batch=16)
SYSTEMS = {
    "not private": fb.feducb(epsilon=float("inf")),
    "alone": fb.linucb(),
    "ε = 1, proven": fb.feducb(),
    "… by proven widths": fb.System(protocol=BY_COUNTS, privacy=PrivateStatistics(1.0, mixing="bound")),
    "alone, α = 2": fb.linucb(alpha=2.0),
    "ε = 1, published, D = T/(N d log T)": fb.feducb(calibration="published"),
    "ε = 1, published, D of Theorem 1": fb.feducb(calibration="published", threshold="theorem"),
    "ε = 1, Alg. 1 as printed": fb.feducb(as_printed=True),
    "ε = 10, proven": fb.feducb(epsilon=10.0),
    "… with BLT instead of dense noise": fb.System(protocol=BY_COUNTS, privacy=PrivateStatistics(10.0, kind="blt")),
    "… with a tree": fb.System(protocol=BY_COUNTS, privacy=PrivateStatistics(10.0, kind="tree")),
    "… with κ = 1 instead of 0.7": fb.System(protocol=BY_COUNTS, privacy=PrivateStatistics(10.0, reward_weight=1.0)),
    "… released at 5 % growth, not 50 %": fb.System(
        protocol=Synchronous(growth=1.05, batch=16), privacy=PrivateStatistics(10.0)
    ),
}


def regret_table() -> str:
    """M = 10 agents, d = 10, K = 100 arms, gap 0.1: regret of all agents together, half way and at the end."""
    env = FedUCB(n_clients=10, dim=10)
    lines = []
    for name, system in SYSTEMS.items():
        curves = np.array([fb.simulate(system, env, ROUNDS, seed).regret for seed in range(SEEDS)])
        end, half = curves[:, -1], curves[:, ROUNDS // 2 - 1]
        error = end.std(ddof=1) / np.sqrt(SEEDS)
        lines.append([name, f"{half.mean():,.0f}", f"{end.mean():,.0f} ± {error:,.0f}"])
    return table(["M = d = 10, δ = 1e-5", f"after {ROUNDS // 2:,} rounds", f"after {ROUNDS:,}"], lines)


def release_table() -> str:
    """One release of a (d+1)×(d+1) matrix, of 128 at most."""
    tasks: dict[str, Callable[[], object]] = {}
    for dim in (10, 25, 50):
        mechanism = gram_mechanism(epsilon=1.0, delta=1e-5, n_max=128, dim=dim)
        tasks[str(dim)] = partial(release, mechanism, start(mechanism), np.eye(dim + 1), np.random.default_rng(0))
    seconds = best_seconds(tasks, 200)
    return table(["d", "BLT release"], [[dim, f"{1e6 * time:.0f} µs"] for dim, time in seconds.items()])


def main() -> None:
    """Both tables."""
    print(release_table(), flush=True)
    print()
    print(regret_table())
