"""What wrong clusters cost under privacy: CDP-FCLUB-DC over learning alone, where no two users are alike.

    FEDBANDIT_SEEDS=4 FEDBANDIT_FIRST_SEED=100 python -m benchmarks doubt

Twelve users on three servers, T = 30,000. Each user's parameter is drawn at a distance r from a common one, so that
every cluster is wrong; or there are two clusters, which are right. Worlds are drawn with the seeds that they are run
with: as many worlds as seeds, each with each. A line has the ratio of means, the paired difference with its standard
error, and the largest ratio of a single world.
"""

from __future__ import annotations

import numpy as np

import fedbandit as fb
from benchmarks.clusters import SEEDS, WIDTH
from benchmarks.timing import table
from fedbandit.types import Array

USERS, SERVERS, ITEMS, HORIZON = 12, 3, 10, 30_000
DISTANCES = (0.2, 0.35, 0.5)
BUDGETS = tuple((epsilon, delta) for delta in (0.1, 1e-5) for epsilon in (3.0, 10.0, 30.0, 100.0))


def _unit(rng: np.random.Generator, n: int, dim: int) -> Array:
    x = rng.standard_normal((n, dim))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def _in_world(v: Array) -> Array:
    """FCLUB's parameters: (unit vector, 1)/√2."""
    v = v / np.linalg.norm(v, axis=1, keepdims=True)
    return np.hstack([v, np.ones((len(v), 1))]) / np.sqrt(2)


def all_different(dim: int, distance: float, seed: int) -> Array:
    """Everybody about so far from a common parameter, each in a direction of its own."""
    rng = np.random.default_rng(seed)
    common = _unit(rng, 1, dim - 1)
    return _in_world(common + distance * np.sqrt(2) * _unit(rng, USERS, dim - 1))


def two_clusters(dim: int, seed: int) -> Array:
    """Users of each server belong to either of two parameters, by turns."""
    centres = _unit(np.random.default_rng(seed), 2, dim - 1)
    return _in_world(centres[np.arange(USERS) % 2])


def regrets(system: fb.System, thetas: list[Array]) -> Array:
    """The regret in each world, the mean of all seeds."""
    envs = [fb.environments.fclub(theta=theta, n_servers=SERVERS, n_arms=ITEMS) for theta in thetas]
    return np.array([np.mean([fb.simulate(system, env, HORIZON, seed).regret[-1] for seed in SEEDS]) for env in envs])


def line(name: str, thetas: list[Array], alone: Array, epsilon: float, delta: float) -> list[str]:
    """One setting: all worlds with all seeds."""
    shared = regrets(fb.cdp_fclub_dc(epsilon=epsilon, delta=delta, **WIDTH), thetas)
    gaps = shared - alone  # worlds are independent, runs of one are not
    error = gaps.std(ddof=1) / np.sqrt(gaps.size) if gaps.size > 1 else np.nan
    return [
        name,
        f"{epsilon:g}",
        f"{delta:g}",
        f"{alone.mean():.0f}",
        f"{shared.mean() / alone.mean():.3f}",
        f"{gaps.mean():+.1f} ± {error:.1f}",
        f"{(shared / alone).max():.3f}",
    ]


def main() -> None:
    """Worlds that clusters are wrong in, and one in which they are right."""
    worlds = {f"all different, {r:g}, d = {d}": [all_different(d, r, seed) for seed in SEEDS]
              for d in (4, 10) for r in DISTANCES}  # fmt: skip
    worlds["two clusters, d = 5"] = [two_clusters(5, seed) for seed in SEEDS]
    lines = []
    for name, thetas in worlds.items():
        alone = regrets(fb.linucb(**WIDTH), thetas)
        for epsilon, delta in BUDGETS:
            lines.append(line(name, thetas, alone, epsilon, delta))
            print("|", " | ".join(lines[-1]), "|", flush=True)
    head = ["world", "ε", "δ", "alone", "ratio", "difference", "worst world"]
    print("\n" + table(head, lines), flush=True)
