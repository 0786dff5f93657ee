"""A row of numbers for each model: what it holds, and where.

A row stands for the ridge regression of one model on n observations (x, y):

    V = Σ x xᵀ,   b = Σ x y,   V(λ) = V + λI,   θ̂ = V(λ)⁻¹ b,   logdet = log det V(λ)/det λI.

Neither V nor b is stored. They are split into what the row has in common with its coordinator (`base`) and what it has
not yet sent (`pending`): V = base + ΔV, b = base b + Δb. ΔV is a short list of contexts and a matrix into which the
list is folded when it is full: with many models, memory traffic counts, and an observation then touches O(d) of ΔV
instead of O(d²).

A row is at most about 1½d² + 33d + 16 numbers side by side. First what every step needs: scalars, θ̂, Δb and the
inverse. Then what few do: base b and base; the list, and the folded part of ΔV. All matrices are packed
(`packed`). Rows exist only for models that have acted. Coordinators keep their own statistics as rows without
pending; what they broadcast are rows that end where base does.
"""

from __future__ import annotations

import numpy as np

from fedbandit.engine.fast.jit import compiled_inline, compiled_lean, compiled_view
from fedbandit.engine.fast.packed import (
    add_to_diagonal,
    packed_length,
)
from fedbandit.engine.fast.switches import has
from fedbandit.engine.fast.vectors import matrix_at
from fedbandit.types import Array

LOGDET = 0  # log det V(λ)/det λI
BASE_LOGDET = 1  # the same of base
SPECTRAL = 2  # an upper bound of the largest eigenvalue of V(λ)⁻¹
N = 3  # observations in V, own and received
N_OWN = 4  # own observations
N_PENDING = 5  # own observations in pending
UNREFRESHED = 6  # rank-one updates since the inverse was computed afresh
STEPS = 7  # arms chosen: the counter of the row's random stream
VERSION = 8  # the broadcast that base stems from, 0 for none
N_LISTED = 9  # pending observations that are still on the list
SLACK = 10  # the first of six scalars that base does not show and its giver knows: see `sums.Slack`
OFFSET, BIAS, INFLATION, NOISE, HEADSTART, SPECTRUM = range(SLACK, SLACK + 6)
HEAD = 16
SHORTEST, LONGEST = 8, 24
"""Of lists of pending contexts. To fold one is a pass over a matrix, so that a list is about as long as contexts are;
but in a long one, each place is out of the cache again when it is next written to. From d = 72 on it is a third of d
long: so many are included before an inversion is cheaper."""
LISTS = has("pending-lists")

LINE = 8
"""Numbers in a line of the cache. Rows, and matrices in them, are whole lines apart."""


@compiled_inline
def next_line(n: int) -> int:
    """The first multiple of LINE that is not less than n."""
    return n + -n % LINE


def row_length(dim: int) -> int:
    """How many numbers a row has."""
    return next_line(folded_at(dim) + packed_length(dim))


def empty_rows(capacity: int, dim: int) -> Array:
    """Room for `capacity` rows; a row is made usable by `start_row`."""
    return np.zeros((capacity, row_length(dim)))


@compiled_inline
def inverse_at(d: int) -> int:
    """Where the inverse begins."""
    return next_line(HEAD + 2 * d)


@compiled_inline
def hot_length(d: int) -> int:
    """How many numbers at the start of a row every step needs."""
    return inverse_at(d) + packed_length(d)


@compiled_inline
def base_at(d: int) -> int:
    """Where base begins."""
    return next_line(hot_length(d) + d)


@compiled_inline
def shared_length(d: int) -> int:
    """Length of the prefix that describes a row without pending observations, padded to a cache line."""
    return next_line(base_at(d) + packed_length(d))


@compiled_inline
def list_length(d: int) -> int:
    """How many pending contexts are listed before they are folded."""
    return max(min(max(d - d % 4, SHORTEST), LONGEST), d // 12 * 4) if LISTS else 1


@compiled_inline
def folded_at(d: int) -> int:
    """Where the folded part of ΔV begins."""
    return next_line(shared_length(d) + list_length(d) * d)


@compiled_view
def theta_of(row: Array, d: int) -> Array:
    """θ̂ = V(λ)⁻¹ b."""
    return row[HEAD : HEAD + d]


@compiled_view
def pending_b_of(row: Array, d: int) -> Array:
    """Δb."""
    return row[HEAD + d : HEAD + 2 * d]


@compiled_view
def inverse_of(row: Array, d: int) -> Array:
    """V(λ)⁻¹, packed."""
    return row[inverse_at(d) : hot_length(d)]


@compiled_view
def listed_of(row: Array, d: int) -> Array:
    """The contexts of the latest pending observations, one below the other."""
    return matrix_at(row, shared_length(d), list_length(d), d)


@compiled_inline
def list_end(row: Array, d: int) -> int:
    """Where the next context is listed, after the list is folded if it is full."""
    k = int(row[N_LISTED])
    return shared_length(d) + (k if k < list_length(d) else 0) * d


@compiled_view
def base_b_of(row: Array, d: int) -> Array:
    """What coordinator and row have in common of b: b − Δb."""
    return row[hot_length(d) : hot_length(d) + d]


@compiled_view
def folded_of(row: Array, d: int) -> Array:
    """Σ x xᵀ of the pending observations that are no longer listed, packed; meaningless while all are."""
    return row[folded_at(d) : folded_at(d) + packed_length(d)]


@compiled_view
def base_of(row: Array, d: int) -> Array:
    """V − ΔV: what coordinator and row have in common, packed."""
    return row[base_at(d) : base_at(d) + packed_length(d)]


@compiled_lean
def start_row(row: Array, d: int, ridge: float) -> None:
    """Make a zero row the model of no observations: V(λ) = λI."""
    add_to_diagonal(inverse_of(row, d), d, 1.0 / ridge)
    row[SPECTRAL] = 1.0 / ridge
