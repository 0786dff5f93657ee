"""Ridge sufficient statistics: one row of numbers per model, all rows in one block of memory.

A row stands for the ridge regression of one model on n observations (x, y):

    V = Σ x xᵀ,   b = Σ x y,   V(λ) = V + λI,   θ̂ = V(λ)⁻¹ b,   logdet = log det V(λ)/det λI.

Neither V nor b is stored. They are split into what the row has in common with its coordinator (`base`) and what it has
not yet sent (`pending`): V = base + ΔV, b = base b + Δb. The inverse, θ̂ and the log-determinant are kept up to date by
the Sherman–Morrison formula and the matrix determinant lemma, in O(d²) an observation, and computed anew now and then.

ΔV is a short list of contexts and a matrix into which the list is folded when it is full: with many models, memory
traffic counts, and an observation then touches O(d) of ΔV instead of O(d²).

A row is at most about 1½d² + 33d + 16 numbers side by side. First what every step needs: scalars, θ̂, Δb and the
inverse. Then what few do: base b and base; the list, and the folded part of ΔV. All matrices are packed
(`packed`). Rows exist only for models that have acted. Coordinators keep their own statistics as rows without
pending; what they broadcast are rows that end where base does.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit.engine.fast.algebra import add, add_outer, add_scaled, clear, copy, dot, matrix_in
from fedbandit.engine.fast.inversion import spectral_bound, sweep
from fedbandit.engine.fast.jit import compiled_apart, compiled_inline, compiled_lean, compiled_view
from fedbandit.engine.fast.packed import (
    add_four_outers,
    add_outer_packed,
    add_outers_packed,
    add_to_diagonal,
    add_unpacked,
    multiply_packed,
    pack,
    packed_length,
)
from fedbandit.engine.fast.vectors import matrix_at, prefetch
from fedbandit.types import Array

TIE = 1e-9
"""Two scores, or a measure and its threshold, closer than this are equal: summation order must not decide."""

REFRESH_EVERY = 256
"""Observations after which a row's inverse is computed afresh: bounds rounding, and tightens the spectral bound.

What a row is given may have as many updates behind it; they are not counted."""

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

FEW = 16
"""At most so many contexts, and at most four for five dimensions, are included one by one; or a third of many."""

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


def scratch_matrix(dim: int) -> Array:
    """The memory that `refresh`, `observe` and `adopt` need beside a row: two matrices, and nine rows."""
    return np.zeros((2 * dim + 9, dim))


def grown(array: NDArray[Any], capacity: int) -> NDArray[Any]:
    """A copy of `array` with room for `capacity` entries along the first axis, the new ones zero."""
    new = np.zeros((capacity, *array.shape[1:]), dtype=array.dtype)
    new[: array.shape[0]] = array
    return new


@compiled_view
def scratch_in(M: Array, d: int) -> Array:
    """A scratch matrix for rows of dimension d in the memory of a larger one."""
    return matrix_at(M, 0, 2 * d + 9, d)


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
    return max(min(max(d - d % 4, SHORTEST), LONGEST), d // 12 * 4)


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
def gap_of(row: Array, d: int) -> Array:
    """Padding: aligns the inverse to a cache line."""
    return row[HEAD + 2 * d : inverse_at(d)]


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


@compiled_apart
def tidy_rows(rows: Array, d: int) -> None:
    """Zeros where rows mean nothing: in gaps, after the list, and for the folded part of ΔV while nothing is folded.

    Rows are put in memory that was used before; what is saved of them must not depend on by whom.
    """
    for k in range(rows.shape[0]):
        row = rows[k]
        clear(gap_of(row, d))
        clear(row[shared_length(d) + int(row[N_LISTED]) * d : folded_at(d)])
        clear(row[folded_at(d) + (packed_length(d) if row[N_PENDING] > row[N_LISTED] else 0) :])


def add_to_base(row: Array, d: int, V: Array) -> None:
    """Base += V, a symmetric matrix."""
    P = np.zeros(packed_length(d))
    pack(np.ascontiguousarray(V), P)
    base_of(row, d)[:] += P


@compiled_lean
def add_pending(row: Array, d: int, P: Array) -> None:
    """P += ΔV, packed: what was folded and what is still listed."""
    if row[N_PENDING] > row[N_LISTED]:
        add(folded_of(row, d), P)
    add_outers_packed(P, listed_of(row, d), int(row[N_LISTED]))


@compiled_lean
def add_pending_unpacked(row: Array, d: int, V: Array) -> None:
    """V += ΔV."""
    if row[N_PENDING] > row[N_LISTED]:
        add_unpacked(folded_of(row, d), V)
    listed = listed_of(row, d)
    for k in range(int(row[N_LISTED])):
        add_outer(V, listed[k], 1.0)


@compiled_inline
def keep_pending(row: Array, d: int, x: Array) -> None:
    """Put x on the list of pending contexts; fold the list when it is full."""
    if row[N_LISTED] == list_length(d):
        fold(row, d)
    k = int(row[N_LISTED])
    copy(x, listed_of(row, d)[k])
    row[N_LISTED] = k + 1
    row[N_PENDING] += 1


@compiled_apart
def fold(row: Array, d: int) -> None:
    """Add what is listed to the folded part of ΔV, and empty the list."""
    if row[N_PENDING] == row[N_LISTED]:  # the first time since the last upload: what is there is old
        clear(folded_of(row, d))
    add_outers_packed(folded_of(row, d), listed_of(row, d), int(row[N_LISTED]))
    row[N_LISTED] = 0


@compiled_lean
def recompute(row: Array, d: int, ridge: float, scratch: Array) -> None:
    """Compute the inverse, θ̂ and logdet afresh from V = base + pending."""
    recompute_on(row, base_of(row, d), d, ridge, scratch)


@compiled_apart
def recompute_on(row: Array, base: Array, d: int, ridge: float, scratch: Array) -> None:
    """The same with a base that the row is about to get."""
    P = inverse_of(row, d)
    copy(base, P)
    add_to_diagonal(P, d, ridge)
    if row[N_PENDING] > 0:
        fold(row, d)  # lest the same contexts are added again the next time
        add(folded_of(row, d), P)
    row[LOGDET] = sweep(P, matrix_in(scratch, 0, 8), False) - d * math.log(ridge) + row[OFFSET]
    row[UNREFRESHED] = 0
    solve(row, d, scratch[0])


@compiled_inline
def solve(row: Array, d: int, b: Array) -> None:
    """θ̂ = V(λ)⁻¹ b; `b` is scratch."""
    copy(base_b_of(row, d), b)
    add(pending_b_of(row, d), b)
    multiply_packed(inverse_of(row, d), b, theta_of(row, d))


@compiled_apart
def refresh(row: Array, d: int, ridge: float, scratch: Array) -> None:
    """`recompute`, and tighten the spectral bound too."""
    recompute(row, d, ridge, scratch)
    row[SPECTRAL] = spectral_bound(inverse_of(row, d), d, scratch)


@compiled_inline
def observe(row: Array, x: Array, y: float, u: Array, ridge: float, scratch: Array) -> None:
    """Add the observation (x, y) to a row, given u = V(λ)⁻¹ x.

    With q = xᵀu (Sherman–Morrison, determinant lemma):
    V(λ)⁻¹ −= u uᵀ/(1+q),   θ̂ += u (y − xᵀθ̂)/(1+q),   logdet += log(1+q).
    """
    d = x.shape[0]
    theta = theta_of(row, d)
    growth = 1.0 + dot(x, u)
    step = (y - dot(x, theta)) / growth
    add_outer_packed(inverse_of(row, d), u, -1.0 / growth)
    add_scaled(u, step, theta)
    add_scaled(x, y, pending_b_of(row, d))
    keep_pending(row, d, x)
    row[LOGDET] += math.log(growth)
    row[N] += 1
    row[N_OWN] += 1
    row[UNREFRESHED] += 1
    if row[UNREFRESHED] >= REFRESH_EVERY:
        refresh(row, d, ridge, scratch)


@compiled_apart
def hold(row: Array, x: Array, y: float) -> None:
    """Keep the observation (x, y) as pending without learning from it: for models that use only what was released."""
    add_scaled(x, y, pending_b_of(row, x.shape[0]))
    keep_pending(row, x.shape[0], x)
    row[N_OWN] += 1


@compiled_apart
def mark_sent(row: Array, d: int) -> None:
    """What was pending is now shared: base += ΔV, Δb. The model itself does not change."""
    add_pending(row, d, base_of(row, d))
    add(pending_b_of(row, d), base_b_of(row, d))
    row[BASE_LOGDET] = row[LOGDET]
    row[N_PENDING] = 0
    row[N_LISTED] = 0
    clear(pending_b_of(row, d))


@compiled_apart
def adopt(row: Array, given: Array, d: int, ridge: float, scratch: Array) -> None:
    """Replace what a row shares with its coordinator by the row `given`, and put pending observations back on top."""
    rest_on(row, given, d, ridge, scratch)
    share_base(row, given, d)


@compiled_apart
def rest_on(row: Array, given: Array, d: int, ridge: float, scratch: Array) -> None:
    """Like `adopt`, but leave the row's own base stale; read it from `given`."""
    for i in range(shared_length(d), shared_length(d) + int(row[N_LISTED]) * d, LINE):  # seldom in the cache
        prefetch(row, i)
    if row[N_PENDING] > row[N_LISTED]:
        for i in range(folded_at(d), row.shape[0], LINE):
            prefetch(row, i)
    take_scalars(row, given)
    copy(base_b_of(given, d), base_b_of(row, d))
    if has_few_pending(row, d):
        build_on(row, given, d, scratch)
    else:
        recompute_on(row, base_of(given, d), d, ridge, scratch)


@compiled_inline
def share_base(row: Array, given: Array, d: int) -> None:
    """Base b and base = those of `given`."""
    copy(given[hot_length(d) : shared_length(d)], row[hot_length(d) : shared_length(d)])


@compiled_inline
def forget_base(row: Array, d: int) -> None:
    """Zeros instead of base."""
    clear(row[hot_length(d) + d : shared_length(d)])


@compiled_inline
def take_scalars(row: Array, given: Array) -> None:
    """What `given` says beside its statistics."""
    row[N] = given[N] + row[N_PENDING]
    row[BASE_LOGDET] = given[LOGDET] - given[HEADSTART]
    for scalar in range(SLACK, HEAD):
        row[scalar] = given[scalar]
    row[SPECTRAL] = given[SPECTRAL]  # still a bound: pending observations only make V larger


@compiled_inline
def has_few_pending(row: Array, d: int) -> bool:
    """Whether all that is pending is listed, and is faster included one by one than an inverse is computed."""
    return row[N_PENDING] <= min(row[N_LISTED], max(FEW, d // 3), 4 * d // 5)


@compiled_lean
def build_on(row: Array, given: Array, d: int, scratch: Array) -> None:
    """The inverse, θ̂ and logdet of a row with few pending on `given`, whose base b it has already."""
    copy(inverse_of(given, d), inverse_of(row, d))
    row[LOGDET] = given[LOGDET]
    row[UNREFRESHED] = 0
    if row[N_PENDING] == 0:
        copy(theta_of(given, d), theta_of(row, d))
    else:
        include_listed(row, row, d, scratch)


@compiled_lean
def include_listed(row: Array, source: Array, d: int, scratch: Array) -> None:
    """Include the contexts on the list of `source` in the inverse, θ̂ and logdet of `row`.

    The row has their part of b already.
    """
    inverse, listed = inverse_of(row, d), listed_of(source, d)
    k = int(source[N_LISTED])
    fours = k - k % 4
    for i in range(0, fours, 4):
        row[LOGDET] += math.log(include_four(inverse, matrix_in(listed, i, 4), scratch))
    product = 1.0
    for i in range(fours, k):
        product *= include(inverse, listed[i], scratch[0])
    row[LOGDET] += math.log(product)
    row[UNREFRESHED] += k
    solve(row, d, scratch[0])


@compiled_apart
def include_four(inverse: Array, X: Array, scratch: Array) -> float:
    """`include` for the four rows of X, in half of the time where matrices are large.

    V(λ)⁻¹ −= Uᵀ G⁻¹ U with U = X V(λ)⁻¹ and G = I + X Uᵀ = L D Lᵀ (Woodbury); det G. `scratch` is (8, d).
    """
    U, S = matrix_in(scratch, 0, 4), matrix_in(scratch, 4, 4)
    u0, u1, u2, u3 = U[0], U[1], U[2], U[3]
    for i in range(4):
        multiply_packed(inverse, X[i], U[i])
    g1, g2, g3 = dot(X[1], u0), dot(X[2], u0), dot(X[3], u0)
    p0 = 1.0 + dot(X[0], u0)
    add_scaled(u0, -g1 / p0, u1)  # U = L⁻¹ U
    add_scaled(u0, -g2 / p0, u2)
    add_scaled(u0, -g3 / p0, u3)
    p1 = 1.0 + dot(X[1], u1)
    g2, g3 = dot(X[2], u1), dot(X[3], u1)
    add_scaled(u1, -g2 / p1, u2)
    add_scaled(u1, -g3 / p1, u3)
    p2 = 1.0 + dot(X[2], u2)
    g3 = dot(X[3], u2)
    add_scaled(u2, -g3 / p2, u3)
    p3 = 1.0 + dot(X[3], u3)
    for i in range(4):
        clear(S[i])
    add_scaled(u0, -1.0 / p0, S[0])
    add_scaled(u1, -1.0 / p1, S[1])
    add_scaled(u2, -1.0 / p2, S[2])
    add_scaled(u3, -1.0 / p3, S[3])
    add_four_outers(inverse, U, S, -1)
    return (p0 * p1) * (p2 * p3)


@compiled_inline
def include(inverse: Array, x: Array, u: Array) -> float:
    """V(λ)⁻¹ −= u uᵀ/(1+q) with u = V(λ)⁻¹x and q = xᵀu: the observation of x is in it; 1 + q."""
    multiply_packed(inverse, x, u)
    growth = 1.0 + dot(x, u)
    add_outer_packed(inverse, u, -1.0 / growth)
    return growth


@compiled_inline
def learn(theta: Array, inverse: Array, x: Array, y: float, u: Array) -> float:
    """Include the observation (x, y) in θ̂ and the inverse, as `observe` does; 1 + q. u is scratch."""
    error = y - dot(x, theta)
    growth = include(inverse, x, u)
    add_scaled(u, error / growth, theta)
    return growth


@compiled_inline
def absorb(row: Array, x: Array, y: float, u: Array) -> None:
    """Add the observation (x, y) to the base of a row that has nothing pending; u is scratch."""
    d = x.shape[0]
    add_outer_packed(base_of(row, d), x, 1.0)
    add_scaled(x, y, base_b_of(row, d))
    row[LOGDET] += math.log(learn(theta_of(row, d), inverse_of(row, d), x, y, u))
    row[N] += 1
    row[UNREFRESHED] += 1


@compiled_apart
def take_over(row: Array, given: Array, d: int) -> None:
    """Replace a row's model by `given`, pending observations aside: for models that use only what was released.

    They stay pending and are not put on top, or the arms that are chosen next, whose contexts are sent as they are,
    would depend on rewards that were never noised.
    """
    for k in (LOGDET, SPECTRAL, N):
        row[k] = given[k]
    row[BASE_LOGDET] = given[LOGDET]
    row[UNREFRESHED] = 0
    for k in range(SLACK, HEAD):
        row[k] = given[k]
    copy(theta_of(given, d), theta_of(row, d))
    copy(inverse_of(given, d), inverse_of(row, d))
    share_base(row, given, d)
