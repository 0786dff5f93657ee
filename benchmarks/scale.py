"""What a million clients cost: the same number of interactions, more and more clients.

A million clients are owed far more downloads than a thousand; they are broadcasts, carried out when a client next acts.
The setting is that of `speed` with d = 10, where a newcomer's first observation is an upload (λ = 0.1); and λ = 1,
where clients hardly ever upload and are sent everybody's broadcasts. The fewer arms, the more the rest counts.

Several processes, since where in memory a process happens to be makes a thousand clients, who just fit in the cache, a
fifth faster or slower; in each, the sizes take turns. A process's first simulation of each size, which has to wait for
memory that later ones use again, has a column of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from statistics import median

import fedbandit as fb
from benchmarks.timing import seconds, table

INTERACTIONS = 1_000_000
CLIENTS = (1_000, 10_000, 100_000, 1_000_000)
SETTINGS = ((25, 0.1), (25, 1.0), (10, 0.1), (10, 1.0))  # K, λ
PROCESSES = int(os.environ.get("FEDBANDIT_PROCESSES", "5"))
REPEATS = 5


def measure(n_arms: int, ridge: float) -> dict[int, list[float]]:
    """The times of one process for each number of clients; its first simulations first."""
    system = fb.async_linucb(gamma_upload=5.0, gamma_download=5.0, ridge=ridge)

    def world(n: int) -> fb.environments.Homogeneous:
        return fb.environments.homogeneous(n_clients=n, dim=10, n_arms=n_arms, pool=1000, contexts="sphere")

    fb.simulate(system, world(100), 5000)  # load what is compiled
    tasks: dict[str, Callable[[], object]] = {
        str(n): partial(fb.simulate, system, world(n), INTERACTIONS) for n in CLIENTS
    }
    return {int(n): times for n, times in seconds(tasks, 1 + REPEATS).items()}


def main() -> None:
    """Print the cost of an interaction for N = 10³ … 10⁶."""
    for n_arms, ridge in SETTINGS:
        runs = []
        for _ in range(PROCESSES):
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
                runs.append(fresh.submit(measure, n_arms, ridge).result())
        print(table(*summary(n_arms, ridge, runs)), end="\n\n", flush=True)


def summary(n_arms: int, ridge: float, runs: list[dict[int, list[float]]]) -> tuple[list[str], list[list[str]]]:
    """Header and lines: medians over processes of each one's median, and of the ratio to its thousand clients."""

    def spread(ratios: list[float]) -> str:
        return f"{median(ratios):.2f}× ({min(ratios):.2f}–{max(ratios):.2f})"

    lines = []
    for n in CLIENTS:
        typical, thousand = ([median(run[size][1:]) for run in runs] for size in (n, CLIENTS[0]))
        best = [min(run[n][1:]) / min(run[CLIENTS[0]][1:]) for run in runs]
        lines.append(
            [
                f"{n:,}",
                f"{median(typical) / INTERACTIONS * 1e6:.2f}",
                spread([a / b for a, b in zip(typical, thousand, strict=True)]),
                spread(best),
                f"{median(run[n][0] for run in runs) / INTERACTIONS * 1e6:.2f}",
            ]
        )
    header = [
        f"clients, K = {n_arms}, λ = {ridge:g}",
        "µs per interaction",
        "against 1,000",
        "by best times",
        "µs in a first simulation",
    ]
    return header, lines
