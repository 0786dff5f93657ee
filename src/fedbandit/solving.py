"""Inverses and log-determinants of V(λ) = V + λI."""

from __future__ import annotations

import math
import weakref
from typing import Any, NamedTuple

import numpy as np

from fedbandit.errors import FedbanditError
from fedbandit.sums import Sums
from fedbandit.types import Array


class Solved(NamedTuple):
    """The ridge regression of given sums."""

    inverse: Array
    theta: Array
    logdet: float


def invert(V: Array, ridge: float) -> tuple[Array, float]:
    """(V + λI)⁻¹ and log det (V + λI)/det λI; V must be positive semi-definite, or nearly so."""
    d = len(V)
    A = V + 0.0
    A.flat[:: d + 1] += ridge
    sign, logdet = np.linalg.slogdet(A)
    if sign <= 0:
        raise FedbanditError("A matrix of statistics is not positive definite, even with its ridge.")
    inverse: Array = np.linalg.inv(A).astype(np.float64, copy=False)
    inverse += inverse.T  # symmetric to the last bit, or rank-one updates would drift apart
    inverse *= 0.5
    return inverse, float(logdet) - d * math.log(ridge)


class LogDet:
    """log det V(λ)/det λI of one V after another; whoever is measured is often sent what was measured.

    Of a V with a block for each action only those blocks are looked at that differ from the last one's.
    """

    def __init__(self, ridge: float) -> None:
        self.ridge = ridge
        self._last: tuple[Array, Array] = np.zeros(0), np.zeros(())

    def __call__(self, V: Array) -> float:
        """Of this one."""
        before, logdets = self._last
        if before is not V:
            unit = np.eye(V.shape[-1])
            if V.ndim > 2 and before.shape == V.shape:
                logdets, changed = logdets.copy(), (before != V).any(axis=(1, 2))
                logdets[changed] = np.linalg.slogdet(V[changed] / self.ridge + unit)[1]
            else:
                logdets = np.asarray(np.linalg.slogdet(V / self.ridge + unit)[1])
            self._last = V, logdets
        return float(logdets.sum())


_solved: dict[tuple[int, float], tuple[weakref.ref[Any], Solved]] = {}


def solve(sums: Sums, ridge: float) -> Solved:
    """The ridge regression of these sums; all members that are sent the same download share its inverse.

    >>> solve(Sums(np.eye(2), np.ones(2), 2), 1.0).theta.tolist()
    [0.5, 0.5]
    """
    key = id(sums.V), ridge
    kept = _solved.get(key)
    if kept is not None and kept[0]() is sums.V:
        return kept[1]
    inverse, logdet = invert(sums.V, ridge)
    solved = Solved(inverse, inverse @ sums.b, logdet)
    _solved[key] = weakref.ref(sums.V, lambda _: _solved.pop(key, None)), solved
    return solved
