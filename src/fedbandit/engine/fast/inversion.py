"""Inverses of symmetric positive definite matrices, in the memory of their packed upper triangle."""

from __future__ import annotations

import math

from fedbandit.engine.fast.algebra import dot, matrix_in
from fedbandit.engine.fast.jit import compiled_apart
from fedbandit.engine.fast.packed import (
    add_four_outers,
    add_outer_packed,
    add_to_diagonal,
    edge_of,
    multiply_packed,
    trace,
)
from fedbandit.engine.fast.vectors import entry, four, lane, load, matrix_at, store, zeros
from fedbandit.types import Array

POWER_STEPS, MORE = 16, 1.06
"""Of `spectral_bound`."""

ROUNDING = 1e-9
"""By how much, relatively, a bound is raised so that it holds in floating point too."""


@compiled_apart
def sweep(P: Array, C: Array, only_definite: bool) -> float:
    """The same for a packed matrix; `C` is scratch, (8, d), for L⁻¹ C and −D⁻¹ L⁻¹ C below.

    A matrix that is not positive definite is given up with NaN if that is all that is asked (`only_definite`).

    The sweep operator, four pivots at a time: P −= Cᵀ B⁻¹ C with C the rows of the pivots and B their block, then the
    rows and columns of the pivots become B⁻¹ C and their block −B⁻¹. Swept all over, P is −P⁻¹. B is factored
    (B = L D Lᵀ, and C is replaced by L⁻¹ C), never inverted: with nearly parallel contexts its determinant cancels.
    """
    d = C.shape[1]
    whole = d - d % 4
    logdet, product = 0.0, 1.0  # a logarithm takes as long as a pivot: one for many of them
    c0, c1, c2, c3, s0, s1, s2, s3 = C[0], C[1], C[2], C[3], C[4], C[5], C[6], C[7]
    edge = edge_of(d)
    start = 0  # of the pivots' panel
    for k in range(0, whole, 4):
        w = whole - k
        r0, r1, r2, r3 = start - k, start - k + w, start - k + 2 * w, start - k + 3 * w  # P[r0 + j] is entry (k, j)
        p0, b01, b02, b03 = P[r0 + k], P[r0 + k + 1], P[r0 + k + 2], P[r0 + k + 3]
        l10, l20, l30 = b01 / p0, b02 / p0, b03 / p0
        p1 = P[r1 + k + 1] - l10 * b01
        l21 = (P[r1 + k + 2] - l10 * b02) / p1
        l31 = (P[r1 + k + 3] - l10 * b03) / p1
        p2 = P[r2 + k + 2] - l20 * b02 - l21 * l21 * p1
        l32 = (P[r2 + k + 3] - l20 * b03 - l21 * l31 * p1) / p2
        p3 = P[r3 + k + 3] - l30 * b03 - l31 * l31 * p1 - l32 * l32 * p2
        if only_definite and not min(min(p0, p1), min(p2, p3)) > 0.0:
            return math.nan
        product *= (p0 * p1) * (p2 * p3)
        if not 1e-100 < product < 1e100:
            logdet += math.log(product)
            product = 1.0
        p0, p1, p2, p3 = 1.0 / p0, 1.0 / p1, 1.0 / p2, 1.0 / p3  # from here on D⁻¹

        at = 0
        for j in range(0, whole, 4):  # C, by columns above the pivots; L⁻¹ C and −D⁻¹L⁻¹ C
            if j < k:
                v = whole - j
                i = at - j + k
                y0, y1, y2, y3 = load(P, i), load(P, i + v), load(P, i + 2 * v), load(P, i + 3 * v)
                x0, x1 = lane(y0, y1, y2, y3, 0), lane(y0, y1, y2, y3, 1)
                x2, x3 = lane(y0, y1, y2, y3, 2), lane(y0, y1, y2, y3, 3)
                at += 4 * v
            elif j > k:
                x0, x1, x2, x3 = load(P, r0 + j), load(P, r1 + j), load(P, r2 + j), load(P, r3 + j)
            else:
                x0, x1, x2, x3 = zeros(), zeros(), zeros(), zeros()  # these are replaced below
            x1 = x1 + x0 * -l10
            x2 = x2 + (x0 * -l20 + x1 * -l21)
            x3 = x3 + ((x0 * -l30 + x1 * -l31) + x2 * -l32)
            store(c0, j, x0)
            store(c1, j, x1)
            store(c2, j, x2)
            store(c3, j, x3)
            store(s0, j, x0 * -p0)
            store(s1, j, x1 * -p1)
            store(s2, j, x2 * -p2)
            store(s3, j, x3 * -p3)
        at = edge + k
        for j in range(whole, d):
            y0 = load(P, at)
            z0 = entry(y0, 0)
            z1 = entry(y0, 1) - z0 * l10
            z2 = entry(y0, 2) - (z0 * l20 + z1 * l21)
            z3 = entry(y0, 3) - ((z0 * l30 + z1 * l31) + z2 * l32)
            c0[j], c1[j], c2[j], c3[j] = z0, z1, z2, z3
            s0[j], s1[j], s2[j], s3[j] = -p0 * z0, -p1 * z1, -p2 * z2, -p3 * z3
            at += whole

        add_four_outers(P, matrix_in(C, 0, 4), matrix_in(C, 4, 4), k)

        at = 0
        for j in range(0, whole, 4):  # B⁻¹ C = L⁻ᵀ D⁻¹ L⁻¹ C
            x3 = load(c3, j) * p3
            x2 = load(c2, j) * p2 + x3 * -l32
            x1 = load(c1, j) * p1 + (x2 * -l21 + x3 * -l31)
            x0 = load(c0, j) * p0 + ((x1 * -l10 + x2 * -l20) + x3 * -l30)
            if j < k:
                v = whole - j
                i = at - j + k
                store(P, i, lane(x0, x1, x2, x3, 0))
                store(P, i + v, lane(x0, x1, x2, x3, 1))
                store(P, i + 2 * v, lane(x0, x1, x2, x3, 2))
                store(P, i + 3 * v, lane(x0, x1, x2, x3, 3))
                at += 4 * v
            elif j > k:
                store(P, r0 + j, x0)
                store(P, r1 + j, x1)
                store(P, r2 + j, x2)
                store(P, r3 + j, x3)
        at = edge + k
        for j in range(whole, d):
            z3 = c3[j] * p3
            z2 = c2[j] * p2 - z3 * l32
            z1 = c1[j] * p1 - (z2 * l21 + z3 * l31)
            store(P, at, four(c0[j] * p0 - ((z1 * l10 + z2 * l20) + z3 * l30), z1, z2, z3))
            at += whole

        # −B⁻¹ = −L⁻ᵀ D⁻¹ L⁻¹, with m the entries of L⁻¹
        m10, m21, m32 = -l10, -l21, -l32
        m20 = -l20 + l21 * l10
        m31 = -l31 + l32 * l21
        m30 = -l30 - l31 * m10 - l32 * m20
        P[r0 + k] = -(p0 + m10 * m10 * p1 + m20 * m20 * p2 + m30 * m30 * p3)
        P[r1 + k + 1] = -(p1 + m21 * m21 * p2 + m31 * m31 * p3)
        P[r2 + k + 2] = -(p2 + m32 * m32 * p3)
        P[r3 + k + 3] = -p3
        P[r0 + k + 1] = P[r1 + k] = -(m10 * p1 + m20 * m21 * p2 + m30 * m31 * p3)
        P[r0 + k + 2] = P[r2 + k] = -(m20 * p2 + m30 * m32 * p3)
        P[r0 + k + 3] = P[r3 + k] = -m30 * p3
        P[r1 + k + 2] = P[r2 + k + 1] = -(m21 * p2 + m31 * m32 * p3)
        P[r1 + k + 3] = P[r3 + k + 1] = -m31 * p3
        P[r2 + k + 3] = P[r3 + k + 2] = -m32 * p3
        start += 4 * w

    rest = d - whole
    corner = edge + rest * whole
    for k in range(rest):  # the last few pivots one by one
        pivot = P[corner + k * rest + k]
        if only_definite and not pivot > 0.0:
            return math.nan
        product *= pivot
        if not 1e-100 < product < 1e100:
            logdet += math.log(product)
            product = 1.0
        column, line = edge + k * whole, corner + k * rest
        for j in range(0, whole, 4):
            store(c0, j, load(P, column + j))
        for j in range(rest):
            c0[whole + j] = P[line + j]
        c0[whole + k] = 0.0
        scale = 1.0 / pivot
        add_outer_packed(P, c0, -scale)
        for j in range(0, whole, 4):
            store(P, column + j, load(c0, j) * scale)
        for j in range(rest):
            P[line + j] = P[corner + j * rest + k] = c0[whole + j] * scale
        P[line + k] = -scale
    for i in range(P.shape[0]):
        P[i] = -P[i]
    return logdet + math.log(product)


@compiled_apart
def spectral_bound(P: Array, d: int, scratch: Array) -> float:
    """A bound s of the largest eigenvalue of a packed positive semi-definite P, at most MORE times too large.

    The power method finds nearly that eigenvalue, or less. Then s is raised until sI − P has positive pivots, mostly
    once. (A bound by the norm of P¹⁶ takes four matrix products, ten times as long at d = 200.) `scratch` is
    (d + 10, d).
    """
    Q, C = matrix_at(scratch, 0, 1, P.shape[0])[0], matrix_in(scratch, d, 8)
    v, w = scratch[d + 8], scratch[d + 9]
    for i in range(d):
        v[i] = 1.0 + i % 3  # no eigenvector of what is common, such as I
    s = 0.0
    for _ in range(POWER_STEPS):
        multiply_packed(P, v, w)
        s = math.sqrt(dot(w, w) / dot(v, v))
        if s == 0.0:
            return 0.0
        for i in range(d):
            v[i] = w[i] / s
    most = trace(P, d)  # is a bound too
    while s * MORE < most:
        s *= MORE
        for i in range(P.shape[0]):
            Q[i] = -P[i]
        add_to_diagonal(Q, d, s)
        if not math.isnan(sweep(Q, C, True)):
            return s * (1.0 + ROUNDING)
    return most
