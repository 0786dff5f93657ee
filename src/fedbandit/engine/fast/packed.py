"""Symmetric matrices in little more than half of the memory: the upper triangle, in panels of four rows.

    panel c = 0, 4, 8, …:  rows c, …, c + 3, columns c, …, w − 1, one row after the other, where w = d − d mod 4
    edge:                  the last d mod 4 columns down to row w − 1, one column after the other
    corner:                what is left, square

So vectors of four never cross a diagonal block or an end, and a product with a vector reads each number once and uses
it twice. With many models memory traffic is what a step costs, and this halves it.
"""

from __future__ import annotations

import numpy as np

from fedbandit.engine.fast.algebra import clear, matrix_in
from fedbandit.engine.fast.jit import compiled_inline, compiled_lean
from fedbandit.engine.fast.vectors import four, load, store, total, totals, zeros
from fedbandit.types import Array


@compiled_inline
def packed_length(d: int) -> int:
    """How many numbers a packed d×d matrix has."""
    rest = d % 4
    return edge_of(d) + rest * (d - rest) + rest * rest


@compiled_inline
def edge_of(d: int) -> int:
    """Where the edge begins."""
    whole = d - d % 4
    return whole * (whole + 4) // 2


@compiled_lean
def pack(A: Array, P: Array) -> None:
    """P = A, a symmetric matrix."""
    d = A.shape[0]
    whole = d - d % 4
    at = 0
    for i in range(d):
        first, a = i - i % 4 if i < whole else 0, A[i]
        for j in range(first, whole, 4):
            store(P, at + j - first, load(a, j))
        at += whole - first
    for i in range(whole, d):
        for j in range(whole, d):
            P[at] = A[i, j]
            at += 1


@compiled_lean
def unpack(P: Array, A: Array) -> None:
    """A = the whole matrix."""
    for i in range(A.shape[0]):
        clear(A[i])
    add_unpacked(P, A)


@compiled_inline
def add_to_diagonal(P: Array, d: int, number: float) -> None:
    """P += number · I."""
    rest = d % 4
    whole = d - rest
    at = 0
    for i in range(whole):
        P[at + i % 4] += number
        at += whole - (i - i % 4)
    at += rest * whole
    for i in range(rest):
        P[at + i * rest + i] += number


@compiled_inline
def trace(P: Array, d: int) -> float:
    """The sum of the diagonal."""
    rest = d % 4
    whole = d - rest
    at, s = 0, 0.0
    for i in range(whole):
        s += P[at + i % 4]
        at += whole - (i - i % 4)
    at += rest * whole
    for i in range(rest):
        s += P[at + i * rest + i]
    return s


@compiled_lean
def add_unpacked(P: Array, A: Array) -> None:
    """A += the whole matrix."""
    d = A.shape[0]
    whole = d - d % 4
    at = 0
    for i in range(whole):
        first = i - i % 4
        for j in range(first, first + 4):
            A[i, j] += P[at]
            at += 1
        for j in range(first + 4, whole):
            A[i, j] += P[at]
            A[j, i] += P[at]
            at += 1
    for i in range(whole, d):
        for j in range(whole):
            A[i, j] += P[at]
            A[j, i] += P[at]
            at += 1
    for i in range(whole, d):
        for j in range(whole, d):
            A[i, j] += P[at]
            at += 1


def unpacked(P: Array, d: int) -> Array:
    """The whole matrix, to look at.

    >>> P = np.zeros(packed_length(5))
    >>> pack(np.add.outer(np.arange(5.0), np.arange(5.0)), P)
    >>> unpacked(P, 5)[4]
    array([4., 5., 6., 7., 8.])
    """
    A = np.zeros((d, d))
    unpack(P, A)
    return A


@compiled_inline
def multiply_packed(P: Array, x: Array, out: Array) -> None:
    """Out = P x."""
    d = x.shape[0]
    whole = d - d % 4
    nothing = zeros()
    for i in range(0, whole, 4):  # not `clear`: what is stored one by one cannot be loaded by fours at once
        store(out, i, nothing)
    at = 0
    for c in range(0, whole, 4):
        w = whole - c
        p0, p1, p2, p3 = at - c, at - c + w, at - c + 2 * w, at - c + 3 * w
        x0, x1, x2, x3 = x[c], x[c + 1], x[c + 2], x[c + 3]
        block = (load(P, p0 + c) * x0 + load(P, p1 + c) * x1) + (load(P, p2 + c) * x2 + load(P, p3 + c) * x3)
        s0, s1, s2, s3 = zeros(), zeros(), zeros(), zeros()
        for j in range(c + 4, whole, 4):
            a0, a1, a2, a3, xj = load(P, p0 + j), load(P, p1 + j), load(P, p2 + j), load(P, p3 + j), load(x, j)
            store(out, j, load(out, j) + ((a0 * x0 + a1 * x1) + (a2 * x2 + a3 * x3)))
            s0 = s0 + a0 * xj
            s1 = s1 + a1 * xj
            s2 = s2 + a2 * xj
            s3 = s3 + a3 * xj
        store(out, c, load(out, c) + (block + totals(s0, s1, s2, s3)))
        at += 4 * w
    for i in range(whole, d):
        xi, s = x[i], zeros()
        for j in range(0, whole, 4):
            a = load(P, at + j)
            store(out, j, load(out, j) + a * xi)
            s = s + a * load(x, j)
        out[i] = total(s)
        at += whole
    for i in range(whole, d):
        for j in range(whole, d):
            out[i] += P[at] * x[j]
            at += 1


@compiled_inline
def square_packed(P: Array, x: Array) -> float:
    """The quadratic form xᵀ P x, in two thirds of the time of a product."""
    d = x.shape[0]
    whole = d - d % 4
    once, twice = zeros(), zeros()
    at = 0
    for c in range(0, whole, 4):
        w = whole - c
        p0, p1, p2, p3 = at - c, at - c + w, at - c + 2 * w, at - c + 3 * w
        x0, x1, x2, x3 = x[c], x[c + 1], x[c + 2], x[c + 3]
        block = (load(P, p0 + c) * x0 + load(P, p1 + c) * x1) + (load(P, p2 + c) * x2 + load(P, p3 + c) * x3)
        once = once + block * load(x, c)
        for j in range(c + 4, whole, 4):
            block = (load(P, p0 + j) * x0 + load(P, p1 + j) * x1) + (load(P, p2 + j) * x2 + load(P, p3 + j) * x3)
            twice = twice + block * load(x, j)
        at += 4 * w
    for i in range(whole, d):
        for j in range(0, whole, 4):
            twice = twice + (load(P, at + j) * x[i]) * load(x, j)
        at += whole
    q = total(once + (twice + twice))
    for i in range(whole, d):
        for j in range(whole, d):
            q += P[at] * x[i] * x[j]
            at += 1
    return q


@compiled_lean
def square_four_packed(P: Array, w: Array, x: Array, y: Array, z: Array, out: Array) -> None:
    """The quadratic forms of four vectors, which take turns with each number of P: it is read once."""
    d = w.shape[0]
    whole = d - d % 4
    once0, once1, once2, once3 = zeros(), zeros(), zeros(), zeros()
    twice0, twice1, twice2, twice3 = zeros(), zeros(), zeros(), zeros()
    at = 0
    for c in range(0, whole, 4):
        p0 = at - c
        p1, p2, p3 = p0 + whole - c, p0 + 2 * (whole - c), p0 + 3 * (whole - c)
        w0, w1, w2, w3, x0, x1, x2, x3 = w[c], w[c + 1], w[c + 2], w[c + 3], x[c], x[c + 1], x[c + 2], x[c + 3]
        y0, y1, y2, y3, z0, z1, z2, z3 = y[c], y[c + 1], y[c + 2], y[c + 3], z[c], z[c + 1], z[c + 2], z[c + 3]
        a0, a1, a2, a3 = load(P, p0 + c), load(P, p1 + c), load(P, p2 + c), load(P, p3 + c)
        once0 = once0 + ((a0 * w0 + a1 * w1) + (a2 * w2 + a3 * w3)) * load(w, c)
        once1 = once1 + ((a0 * x0 + a1 * x1) + (a2 * x2 + a3 * x3)) * load(x, c)
        once2 = once2 + ((a0 * y0 + a1 * y1) + (a2 * y2 + a3 * y3)) * load(y, c)
        once3 = once3 + ((a0 * z0 + a1 * z1) + (a2 * z2 + a3 * z3)) * load(z, c)
        for j in range(c + 4, whole, 4):
            a0, a1, a2, a3 = load(P, p0 + j), load(P, p1 + j), load(P, p2 + j), load(P, p3 + j)
            twice0 = twice0 + ((a0 * w0 + a1 * w1) + (a2 * w2 + a3 * w3)) * load(w, j)
            twice1 = twice1 + ((a0 * x0 + a1 * x1) + (a2 * x2 + a3 * x3)) * load(x, j)
            twice2 = twice2 + ((a0 * y0 + a1 * y1) + (a2 * y2 + a3 * y3)) * load(y, j)
            twice3 = twice3 + ((a0 * z0 + a1 * z1) + (a2 * z2 + a3 * z3)) * load(z, j)
        at += 4 * (whole - c)
    for i in range(whole, d):
        for j in range(0, whole, 4):
            a0 = load(P, at + j)
            twice0 = twice0 + (a0 * w[i]) * load(w, j)
            twice1 = twice1 + (a0 * x[i]) * load(x, j)
            twice2 = twice2 + (a0 * y[i]) * load(y, j)
            twice3 = twice3 + (a0 * z[i]) * load(z, j)
        at += whole
    forms = totals(
        once0 + (twice0 + twice0), once1 + (twice1 + twice1), once2 + (twice2 + twice2), once3 + (twice3 + twice3)
    )
    for i in range(whole, d):
        for j in range(whole, d):
            forms = forms + four(w[i] * w[j], x[i] * x[j], y[i] * y[j], z[i] * z[j]) * P[at]
            at += 1
    store(out, 0, forms)


@compiled_inline
def add_outer_packed(P: Array, x: Array, scale: float) -> None:
    """P += scale · x xᵀ."""
    d = x.shape[0]
    whole = d - d % 4
    at = 0
    for c in range(0, whole, 4):
        w = whole - c
        p0, p1, p2, p3 = at - c, at - c + w, at - c + 2 * w, at - c + 3 * w
        x0, x1, x2, x3 = scale * x[c], scale * x[c + 1], scale * x[c + 2], scale * x[c + 3]
        for j in range(c, whole, 4):
            xj = load(x, j)
            store(P, p0 + j, load(P, p0 + j) + xj * x0)
            store(P, p1 + j, load(P, p1 + j) + xj * x1)
            store(P, p2 + j, load(P, p2 + j) + xj * x2)
            store(P, p3 + j, load(P, p3 + j) + xj * x3)
        at += 4 * w
    for i in range(whole, d):
        xi = scale * x[i]
        for j in range(0, whole, 4):
            store(P, at + j, load(P, at + j) + load(x, j) * xi)
        at += whole
    for i in range(whole, d):
        for j in range(whole, d):
            P[at] += scale * x[i] * x[j]
            at += 1


@compiled_lean
def add_outers_packed(P: Array, X: Array, n: int) -> None:
    """P += Σ x xᵀ over the first n rows of X."""
    fours = n - n % 4
    for k in range(0, fours, 4):
        x = matrix_in(X, k, 4)
        add_four_outers(P, x, x, -1)
    for k in range(fours, n):
        add_outer_packed(P, X[k], 1.0)


@compiled_inline
def add_four_outers(P: Array, X: Array, S: Array, skip: int) -> None:
    """P += Σ s xᵀ, which is symmetric, over the four rows of X and S; the panel of row `skip` excepted."""
    d = X.shape[1]
    whole = d - d % 4
    x0, x1, x2, x3 = X[0], X[1], X[2], X[3]
    s0, s1, s2, s3 = S[0], S[1], S[2], S[3]
    at = 0
    for c in range(0, whole, 4):
        w = whole - c
        if c != skip:  # four rows at a time: two took a quarter longer
            p0, p1, p2, p3 = at - c, at - c + w, at - c + 2 * w, at - c + 3 * w
            e0, e1, e2, e3 = s0[c], s1[c], s2[c], s3[c]
            f0, f1, f2, f3 = s0[c + 1], s1[c + 1], s2[c + 1], s3[c + 1]
            g0, g1, g2, g3 = s0[c + 2], s1[c + 2], s2[c + 2], s3[c + 2]
            h0, h1, h2, h3 = s0[c + 3], s1[c + 3], s2[c + 3], s3[c + 3]
            for j in range(c, whole, 4):
                y0, y1, y2, y3 = load(x0, j), load(x1, j), load(x2, j), load(x3, j)
                store(P, p0 + j, (((load(P, p0 + j) + y0 * e0) + y1 * e1) + y2 * e2) + y3 * e3)
                store(P, p1 + j, (((load(P, p1 + j) + y0 * f0) + y1 * f1) + y2 * f2) + y3 * f3)
                store(P, p2 + j, (((load(P, p2 + j) + y0 * g0) + y1 * g1) + y2 * g2) + y3 * g3)
                store(P, p3 + j, (((load(P, p3 + j) + y0 * h0) + y1 * h1) + y2 * h2) + y3 * h3)
        at += 4 * w
    for i in range(whole, d):
        e0, e1, e2, e3 = s0[i], s1[i], s2[i], s3[i]
        for j in range(0, whole, 4):
            y0, y1, y2, y3 = load(x0, j), load(x1, j), load(x2, j), load(x3, j)
            store(P, at + j, load(P, at + j) + ((y0 * e0 + y1 * e1) + (y2 * e2 + y3 * e3)))
        at += whole
    for i in range(whole, d):
        for j in range(whole, d):
            P[at] += (s0[i] * x0[j] + s1[i] * x1[j]) + (s2[i] * x2[j] + s3[i] * x3[j])
            at += 1
