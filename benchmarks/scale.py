"""What a million clients cost: the same number of interactions, more and more clients.

A million clients are owed far more downloads than a thousand; they are broadcasts, carried out when a client next acts.
The setting is that of `speed` with d = 10, where a newcomer's first observation is an upload (λ = 0.1); and λ = 1,
where clients hardly ever upload and are sent everybody's broadcasts. The fewer arms, the more the rest counts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import fedbandit as fb
from benchmarks.timing import best_seconds, table

INTERACTIONS = 1_000_000
CLIENTS = (1_000, 10_000, 100_000, 1_000_000)
SETTINGS = ((25, 0.1), (25, 1.0), (10, 1.0))  # K, λ


def main() -> None:
    """Print the cost of an interaction for N = 10³ … 10⁶."""
    for n_arms, ridge in SETTINGS:
        system = fb.async_linucb(gamma_upload=5.0, gamma_download=5.0, ridge=ridge)
        worlds = {
            n: fb.environments.homogeneous(n_clients=n, dim=10, n_arms=n_arms, pool=1000, contexts="sphere")
            for n in CLIENTS
        }
        results = {n: fb.simulate(system, env, INTERACTIONS) for n, env in worlds.items()}
        tasks: dict[str, Callable[[], object]] = {
            str(n): partial(fb.simulate, system, env, INTERACTIONS) for n, env in worlds.items()
        }
        best = best_seconds(tasks, repeats=15)
        lines = [
            [
                f"{n:,}",
                f"{best[str(n)] / INTERACTIONS * 1e6:.2f}",
                f"{best[str(n)] / best[str(CLIENTS[0])]:.2f}×",
                f"{results[n].communication.uploads:,}",
                f"{results[n].communication.downloads:,}",
            ]
            for n in worlds
        ]
        header = [
            f"clients, K = {n_arms}, λ = {ridge:g}",
            "µs per interaction",
            "against 1,000",
            "uploads",
            "downloads",
        ]
        print(table(header, lines), end="\n\n")
