"""Sufficient statistics as they travel, and the rows that are made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedbandit.engine.fast.packed import unpacked
from fedbandit.engine.fast.statistics import (
    HEAD,
    N_PENDING,
    SLACK,
    N,
    add_pending_unpacked,
    add_to_base,
    base_b_of,
    base_of,
    empty_rows,
    pending_b_of,
    refresh,
)
from fedbandit.types import Array


class Slack(NamedTuple):
    """What shared statistics do not show, but whoever scores arms with them has to know; nothing if they are exact.

    An arm's bound is xᵀθ̂ + (σ (1 + inflation) √(logdet + 2 log 1/δ) + √λ + bias) ‖x‖_{V(λ)⁻¹} + noise ‖V(λ)⁻¹x‖₂, where
    logdet = log det V(λ)/det λI + offset.
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


def zero_sums(dim: int) -> Sums:
    """The statistics of no observations."""
    return Sums(np.zeros((dim, dim)), np.zeros(dim), 0)


def shared_row(shared: Sequence[Sums], slack: Slack, dim: int, ridge: float, scratch: Array) -> Array:
    """A row that has these statistics as its base: something to `adopt`."""
    given = empty_rows(1, dim)[0]
    for sums in shared:
        add_to_base(given, dim, sums.V)
        base_b_of(given, dim)[:] += sums.b
        given[N] += sums.n
    given[SLACK:HEAD] = slack
    refresh(given, dim, ridge, scratch)
    return given


def pending_sums(row: Array, d: int) -> Sums:
    """A copy of what a row has not sent yet."""
    V = np.zeros((d, d))
    add_pending_unpacked(row, d, V)
    return Sums(V, pending_b_of(row, d).copy(), int(row[N_PENDING]))


def shared_sums(row: Array, d: int) -> Sums:
    """A copy of what a row shares with its coordinator; for a coordinator's own row, all it has."""
    return Sums(unpacked(base_of(row, d), d), base_b_of(row, d).copy(), int(row[N] - row[N_PENDING]))
