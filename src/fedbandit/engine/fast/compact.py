"""Models of very few observations, without matrices of their own.

With many clients that act seldom, most models have a handful of observations. Such a row is *compact*: how often it has
chosen, how much it has sent, and the observations (x, y) that it has not. When its client acts, they are put on top of
what its coordinator last gave it, so that no download ever has to be applied to it; and it takes a ninth of the memory
at d = 10, a sixteenth at d = 25.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from fedbandit.engine.fast.algebra import add_scaled, clear, copy
from fedbandit.engine.fast.jit import compiled_apart, compiled_inline, compiled_lean, compiled_view
from fedbandit.engine.fast.persist import checked
from fedbandit.engine.fast.statistics import (
    LINE,
    LOGDET,
    N_LISTED,
    N_OWN,
    N_PENDING,
    STEPS,
    UNREFRESHED,
    VERSION,
    base_b_of,
    inverse_of,
    learn,
    listed_of,
    pending_b_of,
    share_base,
    take_scalars,
    theta_of,
)
from fedbandit.types import Array

MOST_LISTED = 3
"""How many observations a compact row may have."""

CHOSEN, SENT, COUNT, FIRST = range(4)  # arms chosen, observations sent, others, where these begin


def compact_length(dim: int) -> int:
    """How many numbers a compact row has."""
    needed = FIRST + MOST_LISTED * (dim + 1)
    return needed + -needed % LINE


@compiled_view
def context_of(compact: Array, i: int, d: int) -> Array:
    """The context of observation i."""
    return compact[FIRST + i * (d + 1) : FIRST + i * (d + 1) + d]


@compiled_inline
def reward_of(compact: Array, i: int, d: int) -> float:
    """The reward of observation i."""
    return compact[FIRST + i * (d + 1) + d]


@compiled_inline
def pending_end(compact: Array, d: int) -> int:
    """Where the observations end."""
    return FIRST + int(compact[COUNT]) * (d + 1)


@compiled_inline
def load_scalars(compact: Array, given: Array, row: Array) -> None:
    """Fill the scalars of `row` from `compact` on top of `given`; complete if nothing is pending."""
    k = int(compact[COUNT])
    row[STEPS] = compact[CHOSEN]
    row[VERSION] = 0
    row[N_OWN] = compact[SENT] + k
    row[N_PENDING] = row[N_LISTED] = row[UNREFRESHED] = k
    take_scalars(row, given)
    row[LOGDET] = given[LOGDET]


@compiled_lean
def load_model(compact: Array, given: Array, row: Array, d: int, u: Array) -> None:
    """Put θ̂ and V(λ)⁻¹ of a compact row on `row`, where `load_scalars` has been; u is scratch.

    By Sherman–Morrison, as in `observe`. The rest of a row is left to `complete`.
    """
    theta, inverse = theta_of(row, d), inverse_of(row, d)
    copy(theta_of(given, d), theta)
    copy(inverse_of(given, d), inverse)
    if compact[COUNT] == 0:
        return
    product = 1.0
    for i in range(int(compact[COUNT])):
        product *= learn(theta, inverse, context_of(compact, i, d), reward_of(compact, i, d), u)
    row[LOGDET] += math.log(product)


@compiled_apart
def complete(compact: Array, given: Array, row: Array, d: int, borrows: bool) -> None:
    """Make `row`, whose model is there, a full row: what is pending, and what it shares with `given`.

    A row that `borrows` leaves its base where it is, as in `rest_on`.
    """
    if borrows:
        copy(base_b_of(given, d), base_b_of(row, d))
    else:
        share_base(row, given, d)
    listed, pending_b = listed_of(row, d), pending_b_of(row, d)
    clear(pending_b)
    for i in range(int(compact[COUNT])):
        copy(context_of(compact, i, d), listed[i])
        add_scaled(context_of(compact, i, d), reward_of(compact, i, d), pending_b)


@compiled_inline
def start_compact(compact: Array) -> None:
    """A compact row of nothing; what is in the room for its observations does not matter."""
    compact[CHOSEN] = compact[SENT] = compact[COUNT] = 0.0


@compiled_lean
def note_upload(compact: Array, row: Array) -> None:
    """A compact row, for which `row` has chosen, has sent all that it had and what it then observed."""
    compact[CHOSEN] = row[STEPS]
    compact[SENT] = row[N_OWN] + 1
    compact[COUNT] = 0.0


def dump_compact(compacts: Array, d: int) -> dict[str, Array]:
    """What compact rows have: numbers, and observations, with zeros where there are none."""
    observations = compacts[:, FIRST : FIRST + MOST_LISTED * (d + 1)].reshape(len(compacts), MOST_LISTED, d + 1).copy()
    observations[np.arange(MOST_LISTED) >= compacts[:, COUNT, None]] = 0.0
    return {"compact.numbers": compacts[:, :FIRST].copy(), "compact.observations": observations}


def load_compact(compacts: Array, d: int, arrays: Mapping[str, Array]) -> None:
    """Make compact rows of it."""
    L = len(compacts)
    compacts[:, :FIRST] = checked(arrays, "compact.numbers", (L, FIRST))
    observations = checked(arrays, "compact.observations", (L, MOST_LISTED, d + 1))
    compacts[:, FIRST : FIRST + MOST_LISTED * (d + 1)] = observations.reshape(L, MOST_LISTED * (d + 1))


@compiled_lean
def note_observation(compact: Array, row: Array, x: Array, y: float) -> None:
    """A compact row, for which `row` has chosen, has seen (x, y)."""
    d = x.shape[0]
    k = int(compact[COUNT])
    compact[CHOSEN] = row[STEPS]
    compact[COUNT] = k + 1
    copy(x, context_of(compact, k, d))
    compact[FIRST + k * (d + 1) + d] = y
