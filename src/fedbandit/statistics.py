"""Ridge sufficient statistics: one row of numbers per model, all rows in one block of memory.

A row stands for the ridge regression of one model on n observations (x, y):

    V = Σ x xᵀ,   b = Σ x y,   V(λ) = V + λI,   θ̂ = V(λ)⁻¹ b,   logdet = log det V(λ)/det λI.

`V` is never stored. It is split into what the row has in common with its coordinator (`base`) and what it has not yet
sent (`pending`): V = base + pending. The inverse, θ̂ and the log-determinant are kept up to date by the
Sherman–Morrison formula and the matrix determinant lemma, in O(d²) an observation, and computed afresh now and then.

`pending` is a short list of contexts and a matrix into which the list is folded when it is full: with many models,
memory traffic counts, and an observation then touches O(d) of pending instead of O(d²).

A row is 3d² + 11d + 16 numbers side by side: scalars, θ̂, b, Δb, the list, then inverse, folded pending and base. Rows
exist only for models that have acted. Coordinators keep their own statistics, and what they broadcast, as rows
without pending.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedbandit.compiled import compiled_inline, compiled_lean, compiled_view
from fedbandit.vectors import load, matrix_at, store, total, zeros

Array: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

TIE = 1e-9
"""Two scores, or a measure and its threshold, closer than this are equal: summation order must not decide."""

REFRESH_EVERY = 256
"""Observations after which a row's inverse is computed afresh: bounds rounding, and tightens the spectral bound."""

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
SLACK = 10  # the first of six scalars that base does not show and its giver knows: see `Slack`
OFFSET, BIAS, INFLATION, NOISE, HEADSTART, SPECTRUM = range(SLACK, SLACK + 6)
HEAD = 16

LISTED = 8
"""The length of the list of pending contexts."""

LIGHTLY = 2
"""How many observations a model may have before it gets matrices of its own (`load_light`)."""


def row_length(dim: int) -> int:
    """How many numbers a row has."""
    return HEAD + (3 + LISTED) * dim + 3 * dim * dim


def empty_rows(capacity: int, dim: int) -> Array:
    """Room for `capacity` rows; a row is made usable by `start_row`."""
    return np.zeros((capacity, row_length(dim)))


def scratch_matrix(dim: int) -> Array:
    """The memory that `refresh` and `observe` need beside a row."""
    return np.zeros((dim + 1, dim))


def grown(array: NDArray[Any], capacity: int) -> NDArray[Any]:
    """A copy of `array` with room for `capacity` entries along the first axis, the new ones zero."""
    new = np.zeros((capacity, *array.shape[1:]), dtype=array.dtype)
    new[: array.shape[0]] = array
    return new


@compiled_view
def part_of(M: Array, n: int, d: int) -> Array:
    """An (n, d) matrix in the memory of a larger one: kernels want rows that follow one another."""
    return M.reshape(M.size)[: n * d].reshape((n, d))


@compiled_view
def theta_of(row: Array, d: int) -> Array:
    """θ̂ = V(λ)⁻¹ b."""
    return row[HEAD : HEAD + d]


@compiled_view
def b_of(row: Array, d: int) -> Array:
    """B = Σ x y."""
    return row[HEAD + d : HEAD + 2 * d]


@compiled_view
def pending_b_of(row: Array, d: int) -> Array:
    """Δb."""
    return row[HEAD + 2 * d : HEAD + 3 * d]


@compiled_view
def listed_of(row: Array, d: int) -> Array:
    """The contexts of the latest pending observations, one below the other."""
    return matrix_at(row, HEAD + 3 * d, LISTED, d)


@compiled_view
def inverse_of(row: Array, d: int) -> Array:
    """V(λ)⁻¹."""
    return matrix_at(row, HEAD + (3 + LISTED) * d, d, d)


@compiled_view
def folded_of(row: Array, d: int) -> Array:
    """Σ x xᵀ of the pending observations that are no longer listed; meaningless while all are."""
    return matrix_at(row, HEAD + (3 + LISTED) * d + d * d, d, d)


@compiled_view
def base_of(row: Array, d: int) -> Array:
    """V − ΔV: what coordinator and row have in common."""
    return matrix_at(row, HEAD + (3 + LISTED) * d + 2 * d * d, d, d)


@compiled_inline
def copy(source: Array, target: Array) -> None:
    """Target = source for vectors. A loop: Numba's slice assignment compiles to a hundred times the code."""
    for i in range(target.shape[0]):
        target[i] = source[i]


@compiled_inline
def add(source: Array, target: Array) -> None:
    """Target += source for vectors."""
    for i in range(target.shape[0]):
        target[i] += source[i]


@compiled_inline
def dot(x: Array, y: Array) -> float:
    """⟨x, y⟩ with four partial sums."""
    n = x.shape[0]
    whole = n - n % 4
    sums = zeros()
    for i in range(0, whole, 4):
        sums = sums + load(x, i) * load(y, i)
    s = total(sums)
    for i in range(whole, n):
        s += x[i] * y[i]
    return s


@compiled_lean
def dot_each(theta: Array, X: Array, arms: Ints, out: Array) -> None:
    """out[a] = ⟨θ, X[arms[a]]⟩, four arms at a time."""
    d = theta.shape[0]
    whole = d - d % 4
    fours = arms.shape[0] - arms.shape[0] % 4
    for a in range(0, fours, 4):
        w, x, y, z = X[arms[a]], X[arms[a + 1]], X[arms[a + 2]], X[arms[a + 3]]
        s0, s1, s2, s3 = zeros(), zeros(), zeros(), zeros()
        for i in range(0, whole, 4):
            t = load(theta, i)
            s0 = s0 + load(w, i) * t
            s1 = s1 + load(x, i) * t
            s2 = s2 + load(y, i) * t
            s3 = s3 + load(z, i) * t
        t0, t1, t2, t3 = total(s0), total(s1), total(s2), total(s3)
        for i in range(whole, d):
            t0 += theta[i] * w[i]
            t1 += theta[i] * x[i]
            t2 += theta[i] * y[i]
            t3 += theta[i] * z[i]
        out[a], out[a + 1], out[a + 2], out[a + 3] = t0, t1, t2, t3
    for a in range(fours, arms.shape[0]):
        out[a] = dot(theta, X[arms[a]])


@compiled_inline
def multiply(A: Array, x: Array, out: Array) -> None:
    """Out = A x for a symmetric A, four rows of A at a time."""
    d = x.shape[0]
    whole = d - d % 4
    nothing = zeros()
    for i in range(0, whole, 4):
        store(out, i, nothing)
    for c in range(0, whole, 4):
        x0, x1, x2, x3 = x[c], x[c + 1], x[c + 2], x[c + 3]
        a0, a1, a2, a3 = A[c], A[c + 1], A[c + 2], A[c + 3]
        for i in range(0, whole, 4):
            four = (load(a0, i) * x0 + load(a1, i) * x1) + (load(a2, i) * x2 + load(a3, i) * x3)
            store(out, i, load(out, i) + four)
    for c in range(whole, d):
        x0, a0 = x[c], A[c]
        for i in range(0, whole, 4):
            store(out, i, load(out, i) + load(a0, i) * x0)
    for c in range(whole, d):  # the last columns are the last rows
        out[c] = dot(A[c], x)


@compiled_inline
def add_outer(A: Array, x: Array, scale: float) -> None:
    """A += scale · x xᵀ."""
    d = x.shape[0]
    whole = d - d % 4
    for i in range(d):
        xi, a = scale * x[i], A[i]
        for j in range(0, whole, 4):
            store(a, j, load(a, j) + load(x, j) * xi)
        for j in range(whole, d):
            a[j] += xi * x[j]


@compiled_lean
def invert(A: Array, scratch: Array) -> float:
    """Replace a symmetric positive definite A by its inverse and return log det A; `scratch` is (2, d) or more.

    The sweep operator, two pivots at a time: A −= Cᵀ P⁻¹ C with C the rows of the pivots and P their 2×2 block, then
    the rows and columns of the pivots become P⁻¹ C and their block −P⁻¹. Swept all over, A is −A⁻¹. P is factored
    (P = L D Lᵀ), never inverted: with nearly parallel contexts its determinant would cancel. Only the upper triangle
    is worked on, and mirrored at the end.
    """
    d = A.shape[0]
    logdet = 0.0
    first, other = scratch[0], scratch[1]
    for k in range(0, d - 1, 2):
        m = k + 1
        pivot = A[k, k]
        r = A[k, m] / pivot
        second = A[m, m] - r * A[k, m]
        logdet += math.log(pivot) + math.log(second)
        pivot, second = 1.0 / pivot, 1.0 / second
        for j in range(k):
            first[j] = A[j, k]
            other[j] = A[j, m] - r * A[j, k]
        first[k], first[m] = A[k, k], A[k, m]
        other[k], other[m] = 0.0, A[m, m] - r * A[k, m]
        for j in range(m + 1, d):
            first[j] = A[k, j]
            other[j] = A[m, j] - r * A[k, j]
        add_upper(A, first, -pivot, other, -second)
        for j in range(k):
            A[j, m] = other[j] * second
            A[j, k] = first[j] * pivot - r * A[j, m]
        for j in range(m + 1, d):
            A[m, j] = other[j] * second
            A[k, j] = first[j] * pivot - r * A[m, j]
        A[k, k] = -pivot - r * r * second
        A[k, m] = r * second
        A[m, m] = -second
    if d % 2 == 1:
        k = d - 1
        pivot = 1.0 / A[k, k]
        logdet += math.log(A[k, k])
        for j in range(d):
            first[j] = A[j, k]
        add_upper(A, first, -pivot, first, 0.0)
        for j in range(k):
            A[j, k] = first[j] * pivot
        A[k, k] = -pivot
    for i in range(d):
        for j in range(i, d):
            A[i, j] = -A[i, j]
            A[j, i] = A[i, j]
    return logdet


@compiled_inline
def add_upper(A: Array, x: Array, s: float, y: Array, t: float) -> None:
    """A += s · x xᵀ + t · y yᵀ in the upper triangle; what is written below the diagonal means nothing."""
    d = x.shape[0]
    whole = d - d % 4
    for i in range(d):
        xi, yi, a = s * x[i], t * y[i], A[i]
        for j in range(i - i % 4, whole, 4):
            store(a, j, load(a, j) + (load(x, j) * xi + load(y, j) * yi))
        for j in range(whole, d):
            a[j] += xi * x[j] + yi * y[j]


@compiled_lean
def spectral_bound(A: Array, scratch: Array) -> float:
    """An upper bound of the largest eigenvalue of a positive semi-definite A: ‖A⁴‖_F^¼, at most d^⅛ too large."""
    d = A.shape[0]
    for i in range(d):
        multiply(A, A[i], scratch[i])
    c = scratch[d]
    total = 0.0
    for i in range(d):
        multiply(scratch, scratch[i], c)
        total += dot(c, c)
    return math.sqrt(math.sqrt(math.sqrt(total))) * (1.0 + TIE)


@compiled_lean
def start_row(row: Array, d: int, ridge: float) -> None:
    """Make a zero row the model of no observations: V(λ) = λI."""
    inverse = inverse_of(row, d)
    for i in range(d):
        inverse[i, i] = 1.0 / ridge
    row[SPECTRAL] = 1.0 / ridge


@compiled_lean
def add_listed(row: Array, d: int, V: Array) -> None:
    """V += Σ x xᵀ over the listed contexts, four at a time."""
    listed = listed_of(row, d)
    k = int(row[N_LISTED])
    whole, fours = k - k % 4, d - d % 4
    for c in range(0, whole, 4):
        w, x, y, z = listed[c], listed[c + 1], listed[c + 2], listed[c + 3]
        for i in range(d):
            x0, x1, x2, x3, v = w[i], x[i], y[i], z[i], V[i]
            for j in range(0, fours, 4):
                four = (load(w, j) * x0 + load(x, j) * x1) + (load(y, j) * x2 + load(z, j) * x3)
                store(v, j, load(v, j) + four)
            for j in range(fours, d):
                v[j] += (w[j] * x0 + x[j] * x1) + (y[j] * x2 + z[j] * x3)
    for c in range(whole, k):
        add_outer(V, listed[c], 1.0)


@compiled_lean
def add_pending(row: Array, d: int, V: Array) -> None:
    """V += ΔV: what was folded and what is still listed."""
    if row[N_PENDING] > row[N_LISTED]:
        folded = folded_of(row, d)
        for i in range(d):
            add(folded[i], V[i])
    add_listed(row, d, V)


@compiled_lean
def keep_pending(row: Array, d: int, x: Array) -> None:
    """Put x on the list of pending contexts; fold the list when it is full."""
    k = int(row[N_LISTED])
    if k == LISTED:
        folded = folded_of(row, d)
        if row[N_PENDING] == LISTED:  # the first fold since the last upload: what is there is old
            for i in range(d):
                for j in range(d):
                    folded[i, j] = 0.0
        add_listed(row, d, folded)
        k = 0
    copy(x, listed_of(row, d)[k])
    row[N_LISTED] = k + 1
    row[N_PENDING] += 1


@compiled_lean
def recompute(row: Array, d: int, ridge: float, scratch: Array) -> None:
    """Compute the inverse, θ̂ and logdet afresh from V = base + pending; `scratch` is (d+1, d)."""
    A = inverse_of(row, d)
    base = base_of(row, d)
    for i in range(d):
        copy(base[i], A[i])
        A[i, i] += ridge
    add_pending(row, d, A)
    row[LOGDET] = invert(A, scratch) - d * math.log(ridge) + row[OFFSET]
    row[UNREFRESHED] = 0
    multiply(A, b_of(row, d), theta_of(row, d))


@compiled_lean
def refresh(row: Array, d: int, ridge: float, scratch: Array) -> None:
    """`recompute`, and tighten the spectral bound too."""
    recompute(row, d, ridge, scratch)
    row[SPECTRAL] = spectral_bound(inverse_of(row, d), scratch)


@compiled_lean
def observe(row: Array, x: Array, y: float, u: Array, ridge: float, scratch: Array) -> None:
    """Add the observation (x, y) to a row, given u = V(λ)⁻¹ x.

    With q = xᵀu (Sherman–Morrison, determinant lemma):
    V(λ)⁻¹ −= u uᵀ/(1+q),   θ̂ += u (y − xᵀθ̂)/(1+q),   logdet += log(1+q).
    """
    d = x.shape[0]
    theta = theta_of(row, d)
    b = b_of(row, d)
    pending_b = pending_b_of(row, d)
    growth = 1.0 + dot(x, u)
    step = (y - dot(x, theta)) / growth
    add_outer(inverse_of(row, d), u, -1.0 / growth)
    for i in range(d):
        theta[i] += step * u[i]
        b[i] += x[i] * y
        pending_b[i] += x[i] * y
    keep_pending(row, d, x)
    row[LOGDET] += math.log(growth)
    row[N] += 1
    row[N_OWN] += 1
    row[UNREFRESHED] += 1
    if row[UNREFRESHED] >= REFRESH_EVERY:
        refresh(row, d, ridge, scratch)


@compiled_lean
def hold(row: Array, x: Array, y: float) -> None:
    """Keep the observation (x, y) as pending without learning from it: for models that use only what was released."""
    pending_b = pending_b_of(row, x.shape[0])
    for i in range(x.shape[0]):
        pending_b[i] += x[i] * y
    keep_pending(row, x.shape[0], x)
    row[N_OWN] += 1


@compiled_lean
def mark_sent(row: Array, d: int) -> None:
    """What was pending is now shared: base += ΔV. The model itself does not change."""
    add_pending(row, d, base_of(row, d))
    row[BASE_LOGDET] = row[LOGDET]
    row[N_PENDING] = 0
    row[N_LISTED] = 0
    pending_b = pending_b_of(row, d)
    for i in range(d):
        pending_b[i] = 0.0


@compiled_lean
def adopt(row: Array, given: Array, d: int, ridge: float, scratch: Array) -> None:
    """Replace what a row shares with its coordinator by the row `given`, and put pending observations back on top.

    A short list of pending contexts is added to the given inverse by rank-one updates; a long one is not worth it.
    """
    k = int(row[N_PENDING])
    base = base_of(row, d)
    for i in range(d):
        copy(base_of(given, d)[i], base[i])
    row[N] = given[N] + k
    row[BASE_LOGDET] = given[LOGDET] - given[HEADSTART]
    b = b_of(row, d)
    copy(b_of(given, d), b)
    add(pending_b_of(row, d), b)
    for scalar in range(SLACK, HEAD):
        row[scalar] = given[scalar]
    row[SPECTRAL] = given[SPECTRAL]  # still a bound: pending observations only make V larger
    if k > row[N_LISTED]:
        recompute(row, d, ridge, scratch)
        return
    inverse = inverse_of(row, d)
    for i in range(d):
        copy(inverse_of(given, d)[i], inverse[i])
    row[LOGDET] = given[LOGDET]
    row[UNREFRESHED] = k
    listed = listed_of(row, d)
    u = scratch[d]
    for i in range(k):
        multiply(inverse, listed[i], u)
        growth = 1.0 + dot(listed[i], u)
        add_outer(inverse, u, -1.0 / growth)
        row[LOGDET] += math.log(growth)
    multiply(inverse, b, theta_of(row, d))


@compiled_lean
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
    copy(b_of(given, d), b_of(row, d))
    for i in range(d):
        copy(inverse_of(given, d)[i], inverse_of(row, d)[i])
        copy(base_of(given, d)[i], base_of(row, d)[i])


def light_length(dim: int) -> int:
    """How many numbers a light row has."""
    return HEAD + (1 + LIGHTLY) * dim


@compiled_lean
def load_light(light: Array, given: Array, row: Array, d: int, ridge: float, scratch: Array) -> None:
    """Make `row` the full row of a light one, whose coordinator gave it `given`.

    A model with one or two observations needs no matrices of its own: scalars, Δb and the contexts say it all. With
    many clients that act seldom, that is a tenth of the memory, and no download has to be applied to it.
    """
    copy(light[:HEAD], row[:HEAD])
    copy(light[HEAD : HEAD + d], pending_b_of(row, d))
    listed = listed_of(row, d)
    for k in range(int(light[N_LISTED])):
        copy(light[HEAD + (1 + k) * d : HEAD + (2 + k) * d], listed[k])
    adopt(row, given, d, ridge, scratch)


@compiled_lean
def store_light(row: Array, light: Array, d: int) -> None:
    """Keep what load_light cannot work out: after an observation the scalars, Δb and the last context listed."""
    copy(row[:HEAD], light[:HEAD])
    copy(pending_b_of(row, d), light[HEAD : HEAD + d])
    k = int(row[N_LISTED])
    if k > 0:
        copy(listed_of(row, d)[k - 1], light[HEAD + k * d : HEAD + (1 + k) * d])


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
    V, b = base_of(given, dim), b_of(given, dim)
    for sums in shared:
        V += sums.V
        b += sums.b
        given[N] += sums.n
    given[SLACK:HEAD] = slack
    refresh(given, dim, ridge, scratch)
    return given


def pending_sums(row: Array, d: int) -> Sums:
    """A copy of what a row has not sent yet."""
    V = np.zeros((d, d))
    add_pending(row, d, V)
    return Sums(V, pending_b_of(row, d).copy(), int(row[N_PENDING]))


def shared_sums(row: Array, d: int) -> Sums:
    """A copy of what a row shares with its coordinator; for a coordinator's own row, all it has."""
    b = b_of(row, d) - pending_b_of(row, d)
    return Sums(base_of(row, d).copy(), b, int(row[N] - row[N_PENDING]))
