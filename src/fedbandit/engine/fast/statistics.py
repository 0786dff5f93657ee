"""Ridge sufficient statistics in rows: observing, sending, adopting.

The inverse, θ̂ and the log-determinant of a row (`row`) are kept up to date by the Sherman–Morrison formula and the
matrix determinant lemma, in O(d²) an observation, and computed anew now and then.
"""

from __future__ import annotations

import math

import numpy as np

from fedbandit.engine.fast.algebra import add, add_outer, add_scaled, clear, copy, dot, matrix_in
from fedbandit.engine.fast.inversion import spectral_bound, sweep
from fedbandit.engine.fast.jit import compiled_apart, compiled_inline, compiled_lean
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
from fedbandit.engine.fast.row import (
    BASE_LOGDET,
    HEAD,
    HEADSTART,
    LINE,
    LOGDET,
    N_LISTED,
    N_OWN,
    N_PENDING,
    OFFSET,
    SLACK,
    SPECTRAL,
    UNREFRESHED,
    N,
    base_b_of,
    base_of,
    folded_at,
    folded_of,
    hot_length,
    inverse_of,
    list_length,
    listed_of,
    pending_b_of,
    shared_length,
    theta_of,
)
from fedbandit.engine.fast.vectors import prefetch
from fedbandit.types import Array

REFRESH_EVERY = 256
"""Observations after which a row's inverse is computed afresh: bounds rounding, and tightens the spectral bound.

What a row is given may have as many updates behind it; they are not counted."""

FEW = 16
"""At most so many contexts, and at most four for five dimensions, are included one by one; or a third of many."""


def scratch_matrix(dim: int) -> Array:
    """The memory that `refresh`, `observe` and `adopt` need beside a row: two matrices, and nine rows."""
    return np.zeros((2 * dim + 9, dim))


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


@compiled_apart
def recompute(row: Array, d: int, ridge: float, scratch: Array) -> None:
    """Compute the inverse, θ̂ and logdet afresh from V = base + pending."""
    P = inverse_of(row, d)
    copy(base_of(row, d), P)
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
    for i in range(shared_length(d), shared_length(d) + int(row[N_LISTED]) * d, LINE):  # seldom in the cache
        prefetch(row, i)
    if row[N_PENDING] > row[N_LISTED]:
        for i in range(folded_at(d), row.shape[0], LINE):
            prefetch(row, i)
    take_scalars(row, given)
    share_base(row, given, d)
    if has_few_pending(row, d):
        build_on(row, given, d, scratch)
    else:
        recompute(row, d, ridge, scratch)


@compiled_inline
def share_base(row: Array, given: Array, d: int) -> None:
    """Base b and base = those of `given`."""
    copy(given[hot_length(d) : shared_length(d)], row[hot_length(d) : shared_length(d)])


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
