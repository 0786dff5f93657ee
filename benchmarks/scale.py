"""What a million clients cost: the same number of interactions, more and more clients.

A million clients are owed far more downloads than a thousand; they are broadcasts, carried out when a client next acts.
The setting is that of `speed` with d = 10, where a newcomer's first observation is an upload (λ = 0.1); and λ = 1,
where clients hardly ever upload and are sent everybody's broadcasts. The fewer arms, the more the rest counts.

Medians as well as best times: a thousand clients are in the cache and gain from a quiet moment what others that share
the machine had taken away; a million wait for memory anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median

import fedbandit as fb
from benchmarks.timing import seconds, table

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
        times = seconds(tasks, repeats=15)
        lines = [
            [
                f"{n:,}",
                *(f"{of(times[str(n)]) / INTERACTIONS * 1e6:.2f}" for of in (median, min)),
                *(f"{of(times[str(n)]) / of(times[str(CLIENTS[0])]):.2f}×" for of in (median, min)),
                f"{results[n].communication.uploads:,}",
                f"{results[n].communication.downloads:,}",
            ]
            for n in worlds
        ]
        header = [
            f"clients, K = {n_arms}, λ = {ridge:g}",
            "µs per interaction: median",
            "best",
            "against 1,000: median",
            "best",
            "uploads",
            "downloads",
        ]
        print(table(header, lines), end="\n\n")
