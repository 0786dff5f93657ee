"""Rows of statistics made of sums as they travel, and the other way round."""

from __future__ import annotations

from collections.abc import Sequence

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
from fedbandit.sums import Slack, Sums, nothing
from fedbandit.types import Array


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
    if row[N_PENDING] == 0:
        return nothing(d)
    V = np.zeros((d, d))
    add_pending_unpacked(row, d, V)
    return Sums(V, pending_b_of(row, d).copy(), int(row[N_PENDING]))


def shared_sums(row: Array, d: int) -> Sums:
    """A copy of what a row shares with its coordinator; for a coordinator's own row, all it has."""
    return Sums(unpacked(base_of(row, d), d), base_b_of(row, d).copy(), int(row[N] - row[N_PENDING]))
