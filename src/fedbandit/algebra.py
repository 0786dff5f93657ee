"""Small dense linear algebra for compiled loops: vectors and symmetric matrices, four numbers at a time."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedbandit.compiled import compiled_inline, compiled_lean, compiled_view
from fedbandit.vectors import lane, load, matrix_at, store, total, zeros

Array: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

ROUNDING = 1e-9
"""By how much, relatively, a bound is raised so that it holds in floating point too."""


@compiled_view
def part_of(M: Array, n: int, d: int) -> Array:
    """An (n, d) matrix in the memory of a larger one: kernels want rows that follow one another."""
    return M.reshape(M.size)[: n * d].reshape((n, d))


@compiled_view
def matrix_in(M: Array, first: int, n: int) -> Array:
    """Rows first, …, first + n − 1 of a matrix."""
    return matrix_at(M, first * M.shape[1], n, M.shape[1])


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
            part = (load(a0, i) * x0 + load(a1, i) * x1) + (load(a2, i) * x2 + load(a3, i) * x3)
            store(out, i, load(out, i) + part)
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
    """Replace a symmetric positive definite A by its inverse and return log det A; `scratch` is (4, d) or more."""
    logdet = sweep(A, scratch)
    mirror(A)
    return logdet


@compiled_lean
def sweep(A: Array, scratch: Array) -> float:
    """The same for the upper triangle alone; what is below it is not read, and means nothing afterwards.

    The sweep operator, four pivots at a time: A −= Cᵀ P⁻¹ C with C the rows of the pivots and P their block, then the
    rows and columns of the pivots become P⁻¹ C and their block −P⁻¹. Swept all over, A is −A⁻¹. P is factored
    (P = L D Lᵀ, and C is replaced by L⁻¹ C), never inverted: with nearly parallel contexts its determinant cancels.
    """
    d = A.shape[0]
    whole = d - d % 4
    logdet = 0.0
    c0, c1, c2, c3 = scratch[0], scratch[1], scratch[2], scratch[3]
    for k in range(0, whole, 4):
        r0, r1, r2, r3 = A[k], A[k + 1], A[k + 2], A[k + 3]
        p0 = r0[k]
        l10, l20, l30 = r0[k + 1] / p0, r0[k + 2] / p0, r0[k + 3] / p0
        p1 = r1[k + 1] - l10 * r0[k + 1]
        l21 = (r1[k + 2] - l10 * r0[k + 2]) / p1
        l31 = (r1[k + 3] - l10 * r0[k + 3]) / p1
        p2 = r2[k + 2] - l20 * r0[k + 2] - l21 * l21 * p1
        l32 = (r2[k + 3] - l20 * r0[k + 3] - l21 * l31 * p1) / p2
        p3 = r3[k + 3] - l30 * r0[k + 3] - l31 * l31 * p1 - l32 * l32 * p2
        logdet += math.log(p0 * p1) + math.log(p2 * p3)
        p0, p1, p2, p3 = 1.0 / p0, 1.0 / p1, 1.0 / p2, 1.0 / p3
        for j in range(0, whole, 4):  # C, by columns above the pivots; then L⁻¹ C
            if j < k:
                w, x, y, z = load(A[j], k), load(A[j + 1], k), load(A[j + 2], k), load(A[j + 3], k)
                x0, x1, x2, x3 = lane(w, x, y, z, 0), lane(w, x, y, z, 1), lane(w, x, y, z, 2), lane(w, x, y, z, 3)
            elif j > k:
                x0, x1, x2, x3 = load(r0, j), load(r1, j), load(r2, j), load(r3, j)
            else:
                x0, x1, x2, x3 = zeros(), zeros(), zeros(), zeros()  # these are replaced below
            x1 = x1 + x0 * -l10
            x2 = x2 + (x0 * -l20 + x1 * -l21)
            store(c0, j, x0)
            store(c1, j, x1)
            store(c2, j, x2)
            store(c3, j, x3 + ((x0 * -l30 + x1 * -l31) + x2 * -l32))
        for j in range(whole, d):
            c0[j] = r0[j]
            c1[j] = r1[j] - c0[j] * l10
            c2[j] = r2[j] - (c0[j] * l20 + c1[j] * l21)
            c3[j] = r3[j] - ((c0[j] * l30 + c1[j] * l31) + c2[j] * l32)
        subtract_upper(A, c0, p0, c1, p1, c2, p2, c3, p3)
        for j in range(0, whole, 4):  # P⁻¹ C = L⁻ᵀ D⁻¹ L⁻¹ C
            x3 = load(c3, j) * p3
            x2 = load(c2, j) * p2 + x3 * -l32
            x1 = load(c1, j) * p1 + (x2 * -l21 + x3 * -l31)
            x0 = load(c0, j) * p0 + ((x1 * -l10 + x2 * -l20) + x3 * -l30)
            if j < k:
                store(A[j], k, lane(x0, x1, x2, x3, 0))
                store(A[j + 1], k, lane(x0, x1, x2, x3, 1))
                store(A[j + 2], k, lane(x0, x1, x2, x3, 2))
                store(A[j + 3], k, lane(x0, x1, x2, x3, 3))
            elif j > k:
                store(r0, j, x0)
                store(r1, j, x1)
                store(r2, j, x2)
                store(r3, j, x3)
        for j in range(whole, d):
            r3[j] = c3[j] * p3
            r2[j] = c2[j] * p2 - r3[j] * l32
            r1[j] = c1[j] * p1 - (r2[j] * l21 + r3[j] * l31)
            r0[j] = c0[j] * p0 - ((r1[j] * l10 + r2[j] * l20) + r3[j] * l30)
        # −P⁻¹ = −L⁻ᵀ D⁻¹ L⁻¹, with m the entries of L⁻¹
        m10, m21, m32 = -l10, -l21, -l32
        m20 = -l20 + l21 * l10
        m31 = -l31 + l32 * l21
        m30 = -l30 - l31 * m10 - l32 * m20
        r0[k] = -(p0 + m10 * m10 * p1 + m20 * m20 * p2 + m30 * m30 * p3)
        r0[k + 1] = -(m10 * p1 + m20 * m21 * p2 + m30 * m31 * p3)
        r0[k + 2] = -(m20 * p2 + m30 * m32 * p3)
        r0[k + 3] = -m30 * p3
        r1[k + 1] = -(p1 + m21 * m21 * p2 + m31 * m31 * p3)
        r1[k + 2] = -(m21 * p2 + m31 * m32 * p3)
        r1[k + 3] = -m31 * p3
        r2[k + 2] = -(p2 + m32 * m32 * p3)
        r2[k + 3] = -m32 * p3
        r3[k + 3] = -p3
    for k in range(whole, d):
        pivot = 1.0 / A[k, k]
        logdet += math.log(A[k, k])
        for j in range(d):
            c0[j] = A[min(j, k), max(j, k)]
        c0[k] = 0.0
        subtract_upper(A, c0, pivot, c0, 0.0, c0, 0.0, c0, 0.0)
        for j in range(k):
            A[j, k] = c0[j] * pivot
        for j in range(k + 1, d):
            A[k, j] = c0[j] * pivot
        A[k, k] = -pivot
    for i in range(d):
        a = A[i]
        for j in range(i - i % 4, whole, 4):
            store(a, j, load(a, j) * -1.0)
        for j in range(whole, d):
            a[j] = -a[j]
    return logdet


@compiled_inline
def subtract_upper(
    A: Array, x0: Array, p0: float, x1: Array, p1: float, x2: Array, p2: float, x3: Array, p3: float
) -> None:
    """A −= Σ p x xᵀ in the upper triangle; what is written below the diagonal means nothing."""
    d = x0.shape[0]
    whole = d - d % 4
    twos = d - d % 2
    for i in range(0, twos, 2):
        s0, s1, s2, s3, a = -p0 * x0[i], -p1 * x1[i], -p2 * x2[i], -p3 * x3[i], A[i]
        t0, t1, t2, t3, b = -p0 * x0[i + 1], -p1 * x1[i + 1], -p2 * x2[i + 1], -p3 * x3[i + 1], A[i + 1]
        for j in range(i - i % 4, whole, 4):
            y0, y1, y2, y3 = load(x0, j), load(x1, j), load(x2, j), load(x3, j)
            store(a, j, load(a, j) + ((y0 * s0 + y1 * s1) + (y2 * s2 + y3 * s3)))
            store(b, j, load(b, j) + ((y0 * t0 + y1 * t1) + (y2 * t2 + y3 * t3)))
        for j in range(whole, d):
            a[j] += (x0[j] * s0 + x1[j] * s1) + (x2[j] * s2 + x3[j] * s3)
            b[j] += (x0[j] * t0 + x1[j] * t1) + (x2[j] * t2 + x3[j] * t3)
    if twos < d:
        i = d - 1
        A[i, i] -= (p0 * x0[i] * x0[i] + p1 * x1[i] * x1[i]) + (p2 * x2[i] * x2[i] + p3 * x3[i] * x3[i])


@compiled_inline
def mirror(A: Array) -> None:
    """Copy the upper triangle to the lower one."""
    for i in range(A.shape[0]):
        for j in range(i + 1, A.shape[0]):
            A[j, i] = A[i, j]


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
    return math.sqrt(math.sqrt(math.sqrt(total))) * (1.0 + ROUNDING)
