"""HetoFedBandit (Blaser et al. 2024): the imbalanced data of App. G, and who finds clusters.

Settings as in the paper: d = 25, a pool of 1,000 arms of norm 1 of which 25 are shown, σ = λ = δ = 0.1, everybody acts
in every round, clients within 1/(N√T) of their centres; ten seeds, mean ± standard error, messages in brackets.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

import fedbandit as fb
from benchmarks.timing import table

FIRST = int(os.environ.get("FEDBANDIT_FIRST_SEED", "0"))
SEEDS = range(FIRST, FIRST + 10)
Sizes = tuple[int, ...] | None
Run = tuple[float, int, float]  # regret, messages, adjusted Rand index at the end


def world(n_clients: int, n_clusters: int, gap: float, horizon: int, sizes: Sizes = None) -> fb.environments.Clustered:
    """The paper's synthetic data; clients are assigned to clusters at random unless sizes are given."""
    return fb.environments.clustered(
        n_clients=n_clients,
        dim=25,
        n_arms=25,
        pool=1000,
        contexts="sphere",
        rounds="all",
        n_clusters=n_clusters,
        gap=gap,
        spread=1 / (n_clients * horizon**0.5),
        sizes=sizes or ("random" if n_clusters < n_clients else None),
    )


def measure(make: Callable[[], fb.System], env: fb.environments.Clustered, horizon: int, seed: int) -> Run:
    """One run."""
    result = fb.simulate(make(), env, horizon, seed)
    index = result.rand_index(env.partition)[-1] if result.clusters else np.nan
    return float(result.regret[-1]), result.communication.messages, index


def cell(runs: Sequence[Run]) -> str:
    """Mean ± standard error (messages)."""
    regret = np.array([run[0] for run in runs])
    error = regret.std(ddof=1) / len(runs) ** 0.5
    return f"{regret.mean():,.0f} ± {error:,.0f} ({np.mean([run[1] for run in runs]):,.0f})"


def imbalanced() -> None:
    """Print the ablation of App. G: 26 clients in one cluster, 24 in pairs, T = 2,500.

    The large cluster has the last clients, who act last in a round: where several clusters ask at once, a FIFO queue
    lets it wait for all pairs, as the paper observed.
    """
    env = world(50, 13, 0.85, 2500, (*(2,) * 12, 26))
    variants: dict[str, Callable[[], fb.System]] = {
        "hetofedbandit": fb.hetofedbandit,
        "hetofedbandit_pq": fb.hetofedbandit_pq,
        "hetofedbandit_dr": fb.hetofedbandit_dr,
        "hetofedbandit_e": fb.hetofedbandit_e,
        "hetofedbandit_dr, T₀ = 0": partial(fb.hetofedbandit_dr, exploration=0),
        "clustered_linucb": fb.clustered_linucb,
    }
    lines: list[list[str]] = []
    plain = np.zeros(len(SEEDS))
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for name, make in variants.items():
            runs = list(pool.map(partial(measure, make, env, 2500), SEEDS))
            regret = np.array([run[0] for run in runs])
            plain = regret if not lines else plain
            saved = plain - regret
            paired = f"{saved.mean():,.0f} ± {saved.std(ddof=1) / len(runs) ** 0.5:,.0f}"
            index = f"{np.mean([run[2] for run in runs]):.3f}"
            lines.append([name.replace("_", "-"), cell(runs), paired, index])
            print("|", " | ".join(lines[-1]), "|", flush=True)
    header = ["N = 50, M = 13 (26 + 12 × 2)", "regret ± s.e. (messages)", "saved against the first", "Rand index"]
    print(f"\n{table(header, lines)}")


def recovery() -> None:
    """Print in how many of ten seeds each method ends with exactly the true clusters, γ = 0.85, N = 30, T = 1,000."""
    methods: dict[str, Callable[[], fb.System]] = {
        "hetofedbandit, T₀ = 100, δ = 0.001": partial(fb.hetofedbandit, exploration=100, test_level=0.001),
        "hetofedbandit_dr": fb.hetofedbandit_dr,
        "hetofedbandit_e": fb.hetofedbandit_e,
        "hetofedbandit_async": fb.hetofedbandit_async,
        "dyclu": fb.dyclu,
        "clustered_linucb": fb.clustered_linucb,
    }
    lines = []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for name, make in methods.items():
            found = [name.replace("_", "-")]
            for clusters in (1, 4, 10):
                runs = list(pool.map(partial(measure, make, world(30, clusters, 0.85, 1000), 1000), SEEDS))
                found.append(f"{sum(run[2] == 1.0 for run in runs)}/10")
            lines.append(found)
    print(table(["exactly the true clusters", "M = 1", "M = 4", "M = 10"], lines))
