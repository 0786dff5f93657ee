"""Logs of known worlds, so that estimates can be held against the truth."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fedbandit.environments import LoggedDecisions, from_frame
from fedbandit.types import Array

FEATURES = ("f0", "f1", "f2")
THETA = np.array([0.5, 0.3, -0.2])


class World(NamedTuple):
    """A log and what it does not say."""

    log: LoggedDecisions
    frame: dict[str, Any]
    means: Array  # (n, K), in the order of log.arms


def make_world(seed: int, n: int = 400, n_arms: int = 4, *, skew: float = 0.0, n_clients: int = 3) -> World:
    """Bernoulli rewards with means 0.5 + 0.8 θᵀx; arms logged with probability ∝ exp(skew · f0), uniform if 0."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, n_arms, 3))
    X /= np.linalg.norm(X, axis=2, keepdims=True)
    means = 0.5 + 0.8 * X @ THETA
    p = np.exp(skew * X[:, :, 0])
    p /= p.sum(axis=1, keepdims=True)
    chosen = (p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    rewards = (rng.random((n, n_arms)) < means).astype(np.float64)
    mark = np.arange(n_arms) == chosen[:, None]
    rewards[~mark] = np.nan  # nobody knows
    frame = {
        "decision": np.repeat(np.arange(n), n_arms),
        "user": np.repeat(rng.integers(0, n_clients, n), n_arms),
        **{name: X[:, :, k].ravel() for k, name in enumerate(FEATURES)},
        "chosen": mark.ravel(),
        "click": rewards.ravel(),
        "p": p.ravel(),
    }
    log = from_frame(frame, "user", FEATURES, "click", propensity="p")
    return World(log, frame, np.take_along_axis(means, log.arms - np.arange(0, n * n_arms, n_arms)[:, None], axis=1))
