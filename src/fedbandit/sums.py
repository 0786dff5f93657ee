"""Sufficient statistics as they travel."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fedbandit.types import Array, Ints

LARGE = 64
"""Dimensions from which what few observations have added is included in an inverse, instead of a new inverse."""

ROUNDING = 1e-12
"""Of the largest element of V: what does not count as an observation."""


class Slack(NamedTuple):
    """What shared statistics do not show, but whoever scores arms with them has to know; nothing if they are exact.

    An arm's bound is xᵀθ̂ + (σ (1 + inflation) √(logdet + 2 log 1/δ) + √λ + bias) ‖x‖_{V(λ)⁻¹} + noise ‖V(λ)⁻¹x‖₂, where
    logdet = log det V(λ)/det λI + offset.

    With a `spectrum` it is not an arm's bound yet but what mixing has to know (`machines.mixing`): then `bias` is the
    standard deviation of the noise in a coordinate of b − Vθ, or 0 where only bounds may be used, `offset` the part of
    it that is due to V, and `inflation` the standard deviation of an entry of V.
    """

    offset: float = 0.0  # of a model that is larger than the row, or of another regulariser
    bias: float = 0.0
    inflation: float = 0.0
    noise: float = 0.0
    headstart: float = 0.0  # growth of the log-determinant that triggers count in advance
    spectrum: float = 0.0  # a bound of the noise's largest eigenvalue, where V has yet to be made positive definite


EXACT = Slack()


class Relayed(NamedTuple):
    """What a relay says about the noise in what it forwards, where its clients noise what leaves them.

    variance: of an entry of V, off the diagonal, in all that it has forwarded so far.
    releases: how many of its clients' releases are in this upload.
    """

    variance: float
    releases: int


class Sums(NamedTuple):
    """Sufficient statistics as they travel: V = Σ x xᵀ (without ridge), b = Σ x y, and how many observations.

    Where each of A actions has a θ of its own, V is (A, f, f) and b is (A, f): one block for each action.
    """

    V: Array
    b: Array
    n: int


class BlockSums(Sums):
    """The blocks of some actions, V (m, f, f) and b (m, f); those of the others are zero.

    What one client has observed since its last upload concerns few of a thousand actions: nobody sends, keeps or adds
    the rest. `actions` are in ascending order, none twice.
    """

    actions: Ints

    def __new__(cls, V: Array, b: Array, n: int, actions: Ints) -> BlockSums:
        sums = super().__new__(cls, V, b, n)
        sums.actions = actions
        return sums


class FactoredSums(Sums):
    """V = LLᵀ and b = Lc, with L (d, r) of as many columns as V has rank: shorter, if observations were few."""

    L: Array
    c: Array

    def __new__(cls, L: Array, c: Array, n: int) -> FactoredSums:
        sums = super().__new__(cls, L @ L.T, L @ c, n)
        sums.L, sums.c = L, c
        return sums


def factored(sums: Sums) -> Sums:
    """The same statistics as a factor, if it is shorter and as exact; otherwise as they are.

    L is the Cholesky factor of V without the columns of pivots that are zero: it follows from V, and tells no more.

    >>> x = np.array([0.0, 3.0, 0.0, 4.0, 0.0])
    >>> few = factored(Sums(np.outer(x, x), 2 * x, 1)); few.L.ravel(), few.c
    (array([0., 3., 0., 4., 0.]), array([2.]))
    """
    V, b, n = sums
    if type(sums) is not Sums or not 0 < 2 * n < b.size:
        return sums
    left, rest, largest = V.copy(), b.copy(), float(np.diagonal(V).max())
    columns, c = list[Array](), list[float]()
    for j in range(b.size):
        if left[j, j] > 1e-11 * largest:
            column = left[:, j] / np.sqrt(left[j, j])
            column[:j] = 0.0
            columns.append(column)
            c.append(float(rest[j] / column[j]))
            left -= np.outer(column, column)
            rest -= c[-1] * column
    exact = np.abs(left).max() <= 1e-12 * largest and np.abs(rest).max() <= 1e-12 * max(1.0, float(np.abs(b).max()))
    return FactoredSums(np.stack(columns, axis=1), np.array(c), n) if exact and 0 < len(c) <= n else sums


class Form(NamedTuple):
    """What statistics look like: one V of dim × dim, or one for each of so many actions.

    >>> Form(2).zero().V.shape, Form(2, actions=5).zero().V.shape, Form(2, actions=5).blocks
    ((2, 2), (0, 2, 2), (5,))
    """

    dim: int
    actions: int = 0

    @property
    def blocks(self) -> tuple[int, ...]:
        """What comes before the shape of one V."""
        return (self.actions,) if self.actions else ()

    def zero(self) -> Sums:
        """The statistics of no observations."""
        if not self.actions:
            return zero_sums(self.dim)
        return BlockSums(np.zeros((0, self.dim, self.dim)), np.zeros((0, self.dim)), 0, np.zeros(0, dtype=np.int64))

    def nothing(self) -> Sums:
        """The same, not to be written to."""
        return self.zero() if self.actions else nothing(self.dim)

    def fits(self, sums: Sums) -> bool:
        """Whether statistics have this form."""
        if not isinstance(sums, BlockSums):
            return sums.b.shape == (*self.blocks, self.dim) and sums.V.shape == (*sums.b.shape, self.dim)
        known = sums.actions.size == 0 or int(sums.actions[-1]) < self.actions
        return known and sums.b.shape[1:] == (self.dim,) and sums.V.shape[1:] == (self.dim, self.dim)

    def varying(self, length: str) -> dict[str, tuple[type, tuple[int | str, ...]]]:
        """Types and shapes of `arrays_of` statistics whose number of blocks varies, if there are blocks."""
        f, m = self.dim, length
        if not self.actions:
            return {}
        return {"V": (np.float64, (m, f, f)), "b": (np.float64, (m, f)), "actions": (np.int64, (m,))}

    def said(self, sums: Sums) -> str:
        """In words, what the form of statistics is that do not have this one."""
        if isinstance(sums, BlockSums) and sums.b.shape[1:] == (self.dim,) and self.actions:
            return f"of action {int(sums.actions[-1])}, expected actions below {self.actions}"
        return f"of dimension {sums.b.shape[-1]}, expected {self.dim}"


def add(one: Sums, other: Sums) -> Sums:
    """The statistics of both.

    >>> add(Sums(np.eye(2), np.ones(2), 2), Sums(np.eye(2), np.ones(2), 3)).n
    5
    >>> at_3 = BlockSums(np.eye(2)[None], np.ones((1, 2)), 2, np.array([3]))
    >>> add(at_3, BlockSums(np.eye(2)[None], np.ones((1, 2)), 1, np.array([1]))).actions.tolist()
    [1, 3]
    """
    if not isinstance(other, BlockSums):
        return Sums(one.V + other.V, one.b + other.b, one.n + other.n)
    if not isinstance(one, BlockSums):
        V, b = one.V.copy(), one.b.copy()
        V[other.actions] += other.V
        b[other.actions] += other.b
        return Sums(V, b, one.n + other.n)
    actions = np.union1d(one.actions, other.actions)
    V, b = np.zeros((actions.size, *one.V.shape[1:])), np.zeros((actions.size, *one.b.shape[1:]))
    for part in (one, other):
        at = np.searchsorted(actions, part.actions)
        V[at] += part.V
        b[at] += part.b
    return BlockSums(V, b, one.n + other.n, actions)


def without(sums: Sums, part: Sums) -> Sums:
    """The statistics that are left."""
    return Sums(sums.V - part.V, sums.b - part.b, max(sums.n - part.n, 0))


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


def place(slot: int, sums: Sums) -> tuple[Any, ...]:
    """Where statistics belong in arrays that have a V, or one for each action, in each slot."""
    return (slot, sums.actions) if isinstance(sums, BlockSums) else (slot,)


def in_blocks(sums: Sums) -> BlockSums:
    """Statistics with one block for each action, those blocks alone that are not zero."""
    if isinstance(sums, BlockSums):
        return sums
    actions = np.flatnonzero(sums.b.any(axis=1) | sums.V.any(axis=(1, 2)))
    return BlockSums(sums.V[actions], sums.b[actions], sums.n, actions)


def arrays_of(sums: Sums) -> dict[str, Array | Ints]:
    """Statistics as they are kept, but for n; `sums_of` reads them."""
    blocks = {"actions": sums.actions} if isinstance(sums, BlockSums) else {}
    return {"V": sums.V, "b": sums.b, **blocks}


def sums_of(arrays: Mapping[str, Any], n: int) -> Sums:
    """What `arrays_of` gave, of n observations."""
    if "actions" in arrays:
        return BlockSums(arrays["V"], arrays["b"], n, arrays["actions"])
    return Sums(arrays["V"], arrays["b"], n)
