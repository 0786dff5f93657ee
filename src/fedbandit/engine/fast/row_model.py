"""A row of statistics as a model that takes part in a federation: what `RidgeModel` is to the plain machines.

Rows are made of sums as they travel, and the other way round.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from fedbandit.engine.fast.packed import unpacked
from fedbandit.engine.fast.row import (
    BASE_LOGDET,
    HEAD,
    LOGDET,
    N_LISTED,
    N_OWN,
    N_PENDING,
    SLACK,
    VERSION,
    N,
    base_b_of,
    base_of,
    empty_rows,
    pending_b_of,
    theta_of,
)
from fedbandit.engine.fast.statistics import (
    add_pending_unpacked,
    add_to_base,
    adopt,
    mark_sent,
    refresh,
    scratch_matrix,
    take_over,
)
from fedbandit.model import Part
from fedbandit.sums import EXACT, Slack, Sums, nothing
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


class GivenRows:
    """The row that a share is adopted from, made once for all who are sent it."""

    def __init__(self, dim: int, ridge: float) -> None:
        self.dim = dim
        self.ridge = ridge
        self.scratch = scratch_matrix(dim)
        self._last: tuple[weakref.ref[Any], Slack, Array] | None = None

    def of(self, sums: Sums, slack: Slack) -> Array:
        """The row of these sums."""
        if self._last is None or self._last[0]() is not sums.V or self._last[1] != slack:
            row = shared_row([sums], slack, self.dim, self.ridge, self.scratch)
            self._last = weakref.ref(sums.V), slack, row
        return self._last[2]


class RowModel:
    """One row, wherever it is: `row` may move, so it is looked up for each question."""

    def __init__(self, rows: RowHolder, number: int, given: GivenRows, *, fresh: bool = True) -> None:
        self._rows = rows
        self._number = number
        self._given = given
        self._fresh = fresh
        self.dim = given.dim

    @property
    def row(self) -> Array:
        """The row now."""
        return self._rows.row_of_model(self._number)

    @property
    def silent(self) -> bool:
        """Rows exchange from the start."""
        return False

    @property
    def n(self) -> int:
        """Observations that it has learnt from, own and received."""
        return int(self.row[N])

    @property
    def n_own(self) -> int:
        """Own observations, pending or not."""
        return int(self.row[N_OWN])

    @property
    def n_pending(self) -> int:
        """Own observations in no upload yet."""
        return int(self.row[N_PENDING])

    @property
    def logdet(self) -> float:
        """log det V(λ)/det λI."""
        return float(self.row[LOGDET])

    @property
    def shared_logdet(self) -> float:
        """The same of what coordinator and row have in common."""
        return float(self.row[BASE_LOGDET])

    @property
    def version(self) -> int:
        """Of the last download."""
        return int(self.row[VERSION])

    @property
    def theta(self) -> Array:
        """θ̂."""
        return theta_of(self.row, self.dim)

    def parts(self, contexts: Array) -> Sequence[tuple[Part, Array]]:
        """Arms are chosen by compiled code."""
        raise NotImplementedError

    stacks = parts

    def means(self, contexts: Array) -> Array:
        """xᵀθ̂ of each context."""
        return contexts @ self.theta

    def observe(self, x: Array, y: float) -> None:
        """Observations are made by compiled code."""
        raise NotImplementedError

    def pending(self) -> Sums:
        """A copy of what has been observed and not uploaded."""
        return pending_sums(self.row, self.dim)

    def in_common(self) -> Sums:
        """A copy of what coordinator and row have in common."""
        return shared_sums(self.row, self.dim)

    def mark_sent(self) -> None:
        """What was pending is now in common with the coordinator; if not `fresh`, a download will bring it."""
        row = self.row
        if self._fresh:
            mark_sent(row, self.dim)
        else:
            row[N_PENDING] = row[N_LISTED] = 0
            row[BASE_LOGDET] = row[LOGDET]
            pending_b_of(row, self.dim)[:] = 0.0

    def adopt(self, sums: Sums, slack: Slack = EXACT, version: int = 0) -> None:
        """Replace what is in common with the coordinator."""
        row, given = self.row, self._given.of(sums, slack)
        if self._fresh:
            adopt(row, given, self.dim, self._given.ridge, self._given.scratch)
        else:
            take_over(row, given, self.dim)
        row[VERSION] = version

    def dump(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Nothing: a learner keeps all of its rows together (`persist`)."""
        return {}, {}

    def load(self, numbers: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Nothing."""


class RowHolder(Protocol):
    """Who knows where rows are."""

    def row_of_model(self, number: int) -> Array:
        """The row of a model."""
        ...

    def postpone(self, number: int) -> bool | None:
        """Have the link asked before a row next acts: whether it has acted, or None if that is not done."""
        ...
