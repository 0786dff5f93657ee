"""What privacy costs clustered federations, in FCLUB's world and in one like HetoFedBandit's.

    FEDBANDIT_FCLUB=path/to/fclub FEDBANDIT_SEEDS=10 python -m benchmarks cluster-privacy

Whoever shares nothing needs no privacy from others, so learning alone is what sharing has to beat; under local privacy
it is learning alone from noised rewards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

import fedbandit as fb
from benchmarks.clusters import SEEDS, WIDTH, authors_world, mean
from benchmarks.timing import table
from fedbandit.privacy import NoisyRewards, PrivateStatistics

BUDGETS = (0.1, 1.0, 3.0, 10.0, 30.0, 100.0)


def compare(
    cases: Mapping[str, fb.System], env: fb.environments.Clustered | fb.environments.Fclub, horizon: int
) -> None:
    """One line a system."""
    lines = []
    for name, system in cases.items():
        results = [fb.simulate(system, env, horizon, seed) for seed in SEEDS]
        index = [r.rand_index(env.partition)[-1] for r in results if r.clusters]
        lines.append(
            [
                name,
                mean(r.regret[-1] for r in results),
                mean(r.communication.messages for r in results),
                f"{np.mean(index):.2f}" if index else "–",
                str(results[0].guarantee).split(":")[0],
            ]
        )
        print("|", " | ".join(lines[-1]), "|", flush=True)
    print("\n" + table(["system", "regret", "messages", "adjusted Rand", "guarantee"], lines), "\n", flush=True)


def fclub() -> None:
    """CDP-FCLUB-DC by ε and δ, between learning alone and FCLUB-DC."""
    cases = {"LinUCB, each user alone": fb.linucb(**WIDTH), "FCLUB-DC": fb.fclub_dc(**WIDTH)}
    cases["CDP-FCLUB-DC, ε = ∞"] = fb.cdp_fclub_dc(epsilon=math.inf, **WIDTH)
    for delta in (0.1, 1e-5):
        for epsilon in BUDGETS:
            name = f"CDP-FCLUB-DC, ε = {epsilon:g}, δ = {delta:g}"
            cases[name] = fb.cdp_fclub_dc(epsilon=epsilon, delta=delta, **WIDTH)
    for epsilon, delta in ((1.0, 0.1), (10.0, 0.1), (10.0, 1e-5)):
        private = PrivateStatistics(epsilon, delta)
        cases[f"clustered_linucb, ε = {epsilon:g}, δ = {delta:g}"] = fb.clustered_linucb(
            growth=1.5, privacy=private, **WIDTH
        )
    for epsilon in (1.0, 10.0):
        cases[f"as published, ε = {epsilon:g}, δ = 0.1, U = D = 2"] = fb.cdp_fclub_dc(
            epsilon=epsilon, delta=0.1, calibration="published", upload=2.0, download=2.0, **WIDTH
        )
        cases[f"FCLUB-DC, noised rewards, ε = {epsilon:g}"] = fb.fclub_dc(privacy=NoisyRewards(epsilon), **WIDTH)
        cases[f"LinUCB alone, noised rewards, ε = {epsilon:g}"] = fb.dp_linucb(epsilon=epsilon, **WIDTH)
    compare(cases, authors_world(), 100_000)


def clustered() -> None:
    """Clusters by evidence and by tests, 30 clients in 3 clusters, everybody acting in each of 3,000 rounds."""
    env = fb.environments.clustered(n_clients=30, dim=5, n_arms=10, n_clusters=3, gap=0.8, rounds="all")
    cases = {"LinUCB, each client alone": fb.linucb(), "clustered_linucb": fb.clustered_linucb()}
    for epsilon in BUDGETS[1:]:
        private = PrivateStatistics(epsilon)
        cases[f"clustered_linucb, ε = {epsilon:g}"] = fb.clustered_linucb(privacy=private)
        cases[f"hetofedbandit_async, ε = {epsilon:g}"] = fb.hetofedbandit_async(privacy=private)
    for epsilon in (1.0, 10.0):
        noised = NoisyRewards(epsilon, -1.0, 1.0)
        cases[f"LinUCB alone, noised rewards, ε = {epsilon:g}"] = fb.async_linucb(
            gamma_upload=math.inf, gamma_download=math.inf, privacy=noised
        )
        cases[f"clustered_linucb, noised rewards, ε = {epsilon:g}"] = fb.clustered_linucb(privacy=noised)
    compare(cases, env, 3_000)


def main() -> None:
    """Print both."""
    fclub()
    clustered()
