"""Random recorded interactions of several awkward kinds."""

from __future__ import annotations

import numpy as np

import fedbandit as fb
from fedbandit.environments import Recorded
from tests.oracles.naive import Array, Log

KINDS = ("ball", "sphere", "few", "axes", "large")
"""Contexts in the unit ball; on the unit sphere; a handful of vectors, often twice in a round, so that scores tie;
axes and zero vectors, with rewards 0 and 1; norms up to 10."""


def random_log(
    seed: int,
    kind: str = "ball",
    *,
    horizon: int = 100,
    n_clients: int = 6,
    dim: int = 4,
    most_arms: int = 6,
    longest_delay: int = 0,
    skewed: bool = False,
) -> Log:
    """A log in which rounds offer from one to `most_arms` arms."""
    rng = np.random.default_rng(seed)
    theta = _directions(rng, 1, dim)[0]
    handful = _directions(rng, 4, dim) * rng.random((4, 1))
    axes = np.vstack([np.eye(dim), np.zeros((1, dim))])
    weights = 1.0 / np.arange(1, n_clients + 1) if skewed else np.ones(n_clients)
    clients = rng.choice(n_clients, size=horizon, p=weights / weights.sum()).astype(np.int64)
    arms: list[Array] = []
    means: list[Array] = []
    rewards: list[Array] = []
    for _ in range(horizon):
        k = int(rng.integers(1, most_arms + 1))
        if kind == "few":
            X = handful[rng.integers(0, len(handful), size=k)]
        elif kind == "axes":
            X = axes[rng.integers(0, len(axes), size=k)]
        else:
            X = _directions(rng, k, dim)
            if kind != "sphere":
                X = X * rng.random((k, 1)) ** (1 / dim) * (10.0 if kind == "large" else 1.0)
        mean = X @ theta
        reward = (rng.random(k) < mean).astype(float) if kind == "axes" else mean + 0.1 * rng.standard_normal(k)
        arms.append(X)
        means.append(mean)
        rewards.append(reward)
    delays = rng.integers(0, longest_delay + 1, size=horizon) if longest_delay else None
    return Log(clients, arms, means, rewards, n_clients, delays)


def recorded(log: Log, *, noise: float = 0.1) -> Recorded:
    """The log as an environment."""
    return fb.environments.recorded(
        log.clients,
        log.arms,
        log.means,
        log.rewards,
        n_clients=log.n_clients,
        noise=noise,
        delays=log.delays,
    )


def _directions(rng: np.random.Generator, n: int, dim: int) -> Array:
    x = rng.standard_normal((n, dim))
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))
