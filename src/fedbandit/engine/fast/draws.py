"""The kernels of `environments.kernels`, compiled."""

from __future__ import annotations

import math

import numpy as np

from fedbandit.engine.fast.algebra import dot
from fedbandit.engine.fast.jit import compiled_free
from fedbandit.environments.kernels import Kernels
from fedbandit.types import Array, Ints


def shuffle_partially(below: Ints, size: int) -> Ints:
    """Partial Fisher–Yates shuffles, one after the other."""
    chosen = np.empty_like(below)
    _shuffle(below, np.arange(size), chosen)
    return chosen


@compiled_free
def _shuffle(below: Ints, order: Ints, chosen: Ints) -> None:
    n, k = below.shape
    for s in range(n):
        for a in range(k):
            j = a + below[s, a]
            number = order[j]
            order[j] = order[a]
            order[a] = number
            chosen[s, a] = number


@compiled_free
def scale_rows(X: Array, length: Array) -> None:
    """In one pass: by the second most of X would no longer be in the cache."""
    for i in range(X.shape[0]):
        x = X[i]
        factor = length[i] / math.sqrt(dot(x, x))
        for k in range(x.shape[0]):
            x[k] *= factor


@compiled_free
def turn_rows(X: Array, means: Array, theta: Array) -> None:
    """In one pass too."""
    for i in range(X.shape[0]):
        x = X[i]
        along = dot(x, theta)
        for k in range(x.shape[0]):
            x[k] -= along * theta[k]
        factor = math.sqrt((1.0 - means[i] * means[i]) / dot(x, x))
        for k in range(x.shape[0]):
            x[k] = x[k] * factor + means[i] * theta[k]


def expected_rewards(X: Array, arms: Ints, theta: Array) -> Array:
    """Without a copy of the arms."""
    means = np.empty(arms.shape)
    _expect(X, arms, theta, means)
    return means


@compiled_free
def _expect(X: Array, arms: Ints, theta: Array, means: Array) -> None:
    n, k = arms.shape
    for s in range(n):
        for a in range(k):
            means[s, a] = dot(theta[s], X[arms[s, a]])


COMPILED = Kernels(shuffle_partially, scale_rows, turn_rows, expected_rewards)
