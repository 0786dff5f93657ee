"""Sufficient statistics as they travel."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fedbandit.types import Array

LARGE = 64
"""Dimensions from which what few observations have added is included in an inverse, instead of a new inverse."""

ROUNDING = 1e-12
"""Of the largest element of V: what does not count as an observation."""


class Slack(NamedTuple):
    """What shared statistics do not show, but whoever scores arms with them has to know; nothing if they are exact.

    An arm's bound is xᵀθ̂ + (σ (1 + inflation) √(logdet + 2 log 1/δ) + √λ + bias) ‖x‖_{V(λ)⁻¹} + noise ‖V(λ)⁻¹x‖₂, where
    logdet = log det V(λ)/det λI + offset.

    With a `spectrum` it is not an arm's bound yet but what mixing has to know (`machines.mixing`): then `bias` is the
    standard deviation of the noise in a coordinate of b − Vθ, or 0 where only bounds may be used.
    """

    offset: float = 0.0  # of a model that is larger than the row, or of another regulariser
    bias: float = 0.0
    inflation: float = 0.0
    noise: float = 0.0
    headstart: float = 0.0  # growth of the log-determinant that triggers count in advance
    spectrum: float = 0.0  # a bound of the noise's largest eigenvalue, where V has yet to be made positive definite


EXACT = Slack()


class Sums(NamedTuple):
    """Sufficient statistics as they travel: V = Σ x xᵀ (without ridge), b = Σ x y, and how many observations."""

    V: Array
    b: Array
    n: int


def add(one: Sums, other: Sums) -> Sums:
    """The statistics of both.

    >>> add(Sums(np.eye(2), np.ones(2), 2), Sums(np.eye(2), np.ones(2), 3)).n
    5
    """
    return Sums(one.V + other.V, one.b + other.b, one.n + other.n)


def added(V: Array, before: Array, most: int) -> Array | None:
    """The rows X (k, d), k ≤ `most`, with V = before + XᵀX but for rounding; None if there are no such.

    Cholesky's method, the largest pivot first, in O(kd²): cheap to try.

    >>> added(np.diag([5.0, 1.0]), np.eye(2), 1)
    array([[2., 0.]])
    """
    D = V - before
    left = D.diagonal().copy()
    least = ROUNDING * float(V.diagonal().max())
    X = np.zeros((most, left.size))
    for k in range(most + 1):
        p = int(left.argmax())
        if left[p] <= least:
            X = X[:k]
            D -= X.T @ X
            return X if max(D.max(), -D.min()) <= least else None
        if k < most:
            X[k] = (D[p] - X[:k, p] @ X[:k]) / np.sqrt(left[p])
            left -= X[k] ** 2
            left[p] = 0.0
    return None


def zero_sums(dim: int) -> Sums:
    """The statistics of no observations."""
    return Sums(np.zeros((dim, dim)), np.zeros(dim), 0)


@lru_cache(maxsize=8)
def nothing(dim: int) -> Sums:
    """The same, one for all who have nothing to send, and not to be written to.

    Where everybody is called whenever one has something to say, most messages are this one: nobody looks into it twice.
    """
    sums = zero_sums(dim)
    sums.V.flags.writeable = sums.b.flags.writeable = False
    return sums
