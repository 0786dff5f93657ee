"""The inner loops of drawing. These, in NumPy, are the truth; the fast engine draws with compiled ones.

Drawing is most of what a compiled simulation does, so an engine may have it done with kernels of its own (`using`).
They must equal the plain ones: the same arms of a pool, and the same numbers up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import numpy as np

from fedbandit.types import Array, Ints


class Kernels(NamedTuple):
    """One function for each of the loops; the functions below say what they do."""

    shuffle_partially: Callable[[Ints, int], Ints]
    scale_rows: Callable[[Array, Array], None]
    turn_rows: Callable[[Array, Array, Array], None]
    expected_rewards: Callable[[Array, Ints, Array], Array]


def draw_distinct(rng: np.random.Generator, size: int, n: int, k: int) -> Ints:
    """N times k distinct numbers of 0, …, size − 1: (n, k), all sets and orders equally likely (to size/2³²).

    Every 64-bit number serves two draws: a draw below m is a 32-bit number times m, shifted.

    >>> sorted(draw_distinct(np.random.default_rng(0), size=4, n=1, k=4)[0].tolist())
    [0, 1, 2, 3]
    """
    words = rng.integers(0, 2**64, size=(n * k + 1) // 2, dtype=np.uint64).astype("<u8", copy=False).view("<u4")
    below = words[: n * k].reshape(n, k) * np.arange(size, size - k, -1, dtype=np.uint64)
    below >>= np.uint64(32)
    return _in_use.get().shuffle_partially(below.view(np.int64), size)


def scale_rows(X: Array, length: Array | float = 1.0) -> None:
    """Give the rows of X these lengths, in place."""
    _in_use.get().scale_rows(X, length if isinstance(length, np.ndarray) else np.full(len(X), length))


def turn_rows(X: Array, means: Array, theta: Array) -> None:
    """Make each row x the unit vector with xᵀθ = its mean that lies in the plane of x and θ; ‖θ‖ = 1."""
    _in_use.get().turn_rows(X, means, theta)


def expected_rewards(X: Array, arms: Ints, theta: Array) -> Array:
    """θᵀx with the parameter of each interaction, θ (n, d), of the arms (n, K) that it offers, which are rows of X."""
    return _in_use.get().expected_rewards(X, arms, theta)


def _shuffle_partially(below: Ints, size: int) -> Ints:
    """For each row, the first k places of a list of `size` numbers after a partial Fisher–Yates shuffle.

    In step a of a row, place a and place a + below[row, a] are exchanged. The list starts in order and goes on from row
    to row as it is: to shuffle it back would cost as much again.
    """
    order = list(range(size))
    chosen = np.empty_like(below)
    for row, places in enumerate((below + np.arange(below.shape[1])).tolist()):
        for a, j in enumerate(places):
            order[a], order[j] = order[j], order[a]
        chosen[row] = order[: len(places)]
    return chosen


def _scale_rows(X: Array, length: Array) -> None:
    X *= (length / np.sqrt(np.einsum("ij,ij->i", X, X)))[:, None]


def _turn_rows(X: Array, means: Array, theta: Array) -> None:
    X -= np.outer(X @ theta, theta)
    _scale_rows(X, np.sqrt(1.0 - means * means))
    X += np.outer(means, theta)


def _expected_rewards(X: Array, arms: Ints, theta: Array) -> Array:
    means = np.empty(arms.shape)
    for a in range(arms.shape[1]):  # X[arms] for all arms would take K times the memory
        means[:, a] = np.einsum("sd,sd->s", X[arms[:, a]], theta)
    return means


PLAIN = Kernels(_shuffle_partially, _scale_rows, _turn_rows, _expected_rewards)
_in_use = ContextVar("kernels", default=PLAIN)


@contextmanager
def using(kernels: Kernels) -> Iterator[None]:
    """Draw with these kernels, in this thread, until the end of the `with`."""
    before = _in_use.set(kernels)
    try:
        yield
    finally:
        _in_use.reset(before)
