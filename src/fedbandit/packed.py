"""Symmetric matrices in little more than half of the memory: the upper triangle, in panels of four rows.

    panel c = 0, 4, 8, …:  rows c, …, c + 3, columns c, …, d − 1, one row after the other; the last d mod 4 rows are a
                           panel of their own, and square.

So a panel's rows are long, vectors of four never cross a diagonal block, and a product with a vector reads each number
once and uses it twice. With many models memory traffic is what a step costs, and this halves it.
"""

from __future__ import annotations

import numpy as np

from fedbandit.algebra import Array, clear, matrix_in
from fedbandit.compiled import compiled_inline, compiled_lean
from fedbandit.vectors import entry, four, load, store, totals, zeros


@compiled_inline
def packed_length(d: int) -> int:
    """How many numbers a packed d×d matrix has."""
    panels = d // 4
    rest = d - 4 * panels
    return 4 * panels * d - 8 * panels * (panels - 1) + rest * rest


@compiled_lean
def pack(A: Array, P: Array) -> None:
    """P = A, a symmetric matrix."""
    d = A.shape[0]
    whole = d - d % 4
    at = 0
    for i in range(d):
        first, a = i - i % 4, A[i]
        for j in range(first, whole, 4):
            store(P, at + j - first, load(a, j))
        for j in range(max(first, whole), d):
            P[at + j - first] = a[j]
        at += d - first


@compiled_lean
def unpack(P: Array, A: Array) -> None:
    """A = the whole matrix."""
    d = A.shape[0]
    at = 0
    for i in range(d):
        for j in range(i - i % 4, d):
            A[i, j] = P[at]
            A[j, i] = P[at]
            at += 1


@compiled_inline
def add_to_diagonal(P: Array, d: int, number: float) -> None:
    """P += number · I."""
    at = 0
    for i in range(d):
        P[at + i % 4] += number
        at += d - (i - i % 4)


@compiled_lean
def add_unpacked(P: Array, A: Array) -> None:
    """A += the whole matrix."""
    d = A.shape[0]
    at = 0
    for i in range(d):
        first = i - i % 4
        for j in range(first, min(first + 4, d)):
            A[i, j] += P[at]
            at += 1
        for j in range(min(first + 4, d), d):
            A[i, j] += P[at]
            A[j, i] += P[at]
            at += 1


def unpacked(P: Array, d: int) -> Array:
    """The whole matrix, to look at.

    >>> P = np.zeros(packed_length(5))
    >>> pack(np.arange(25.0).reshape(5, 5), P)
    >>> unpacked(P, 5)[4]
    array([ 4.,  9., 14., 19., 24.])
    """
    A = np.zeros((d, d))
    unpack(P, A)
    return A


@compiled_inline
def multiply_packed(P: Array, x: Array, out: Array) -> None:
    """Out = P x."""
    d = x.shape[0]
    whole = d - d % 4
    clear(out)
    at = 0
    for c in range(0, whole, 4):
        w = d - c
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
        block = block + totals(s0, s1, s2, s3)
        for j in range(whole, d):
            a0, a1, a2, a3 = P[p0 + j], P[p1 + j], P[p2 + j], P[p3 + j]
            out[j] += (a0 * x0 + a1 * x1) + (a2 * x2 + a3 * x3)
            block = block + four(a0, a1, a2, a3) * x[j]
        store(out, c, load(out, c) + block)
        at += 4 * w
    for i in range(whole, d):
        for j in range(whole, d):
            out[i] += P[at] * x[j]
            at += 1


@compiled_lean
def squares(P: Array, X: Array, r0: int, r1: int, r2: int, r3: int, tile: Array, out: Array) -> None:
    """Out = xᵀ P x for four rows x of X; `tile` has room for them side by side, 4d numbers. P is read once for all."""
    d = X.shape[1]
    whole = d - d % 4
    for i in range(d):
        store(tile, 4 * i, four(X[r0, i], X[r1, i], X[r2, i], X[r3, i]))
    q = zeros()
    at = 0
    for c in range(0, whole, 4):
        w = d - c
        p0, p1, p2, p3 = at - c, at - c + w, at - c + 2 * w, at - c + 3 * w
        s0, s1, s2, s3 = zeros(), zeros(), zeros(), zeros()
        for j in range(c + 4, d):
            x = load(tile, 4 * j)
            s0 = s0 + x * P[p0 + j]
            s1 = s1 + x * P[p1 + j]
            s2 = s2 + x * P[p2 + j]
            s3 = s3 + x * P[p3 + j]
        s0, s1, s2, s3 = s0 + s0, s1 + s1, s2 + s2, s3 + s3
        for j in range(c, c + 4):
            x = load(tile, 4 * j)
            s0 = s0 + x * P[p0 + j]
            s1 = s1 + x * P[p1 + j]
            s2 = s2 + x * P[p2 + j]
            s3 = s3 + x * P[p3 + j]
        x0, x1, x2, x3 = load(tile, 4 * c), load(tile, 4 * c + 4), load(tile, 4 * c + 8), load(tile, 4 * c + 12)
        q = q + ((s0 * x0 + s1 * x1) + (s2 * x2 + s3 * x3))
        at += 4 * w
    for i in range(whole, d):
        for j in range(whole, d):
            q = q + load(tile, 4 * i) * load(tile, 4 * j) * P[at]
            at += 1
    store(out, 0, q)


@compiled_inline
def add_outer_packed(P: Array, x: Array, scale: float) -> None:
    """P += scale · x xᵀ."""
    d = x.shape[0]
    whole = d - d % 4
    at = 0
    for c in range(0, whole, 4):
        w = d - c
        p0, p1, p2, p3 = at - c, at - c + w, at - c + 2 * w, at - c + 3 * w
        x0, x1, x2, x3 = scale * x[c], scale * x[c + 1], scale * x[c + 2], scale * x[c + 3]
        for j in range(c, whole, 4):
            xj = load(x, j)
            store(P, p0 + j, load(P, p0 + j) + xj * x0)
            store(P, p1 + j, load(P, p1 + j) + xj * x1)
            store(P, p2 + j, load(P, p2 + j) + xj * x2)
            store(P, p3 + j, load(P, p3 + j) + xj * x3)
        for j in range(whole, d):
            P[p0 + j] += x0 * x[j]
            P[p1 + j] += x1 * x[j]
            P[p2 + j] += x2 * x[j]
            P[p3 + j] += x3 * x[j]
        at += 4 * w
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
        w = d - c
        if c != skip:
            for i in range(c, c + 4, 2):
                e0, e1, e2, e3 = s0[i], s1[i], s2[i], s3[i]
                f0, f1, f2, f3 = s0[i + 1], s1[i + 1], s2[i + 1], s3[i + 1]
                a = at - c + (i - c) * w
                b = a + w
                for j in range(c, whole, 4):
                    y0, y1, y2, y3 = load(x0, j), load(x1, j), load(x2, j), load(x3, j)
                    store(P, a + j, load(P, a + j) + ((y0 * e0 + y1 * e1) + (y2 * e2 + y3 * e3)))
                    store(P, b + j, load(P, b + j) + ((y0 * f0 + y1 * f1) + (y2 * f2 + y3 * f3)))
            y0, y1, y2, y3 = load(s0, c), load(s1, c), load(s2, c), load(s3, c)
            for j in range(whole, d):
                a = at - c + j
                column = four(P[a], P[a + w], P[a + 2 * w], P[a + 3 * w])
                column = column + ((y0 * x0[j] + y1 * x1[j]) + (y2 * x2[j] + y3 * x3[j]))
                P[a], P[a + w] = entry(column, 0), entry(column, 1)
                P[a + 2 * w], P[a + 3 * w] = entry(column, 2), entry(column, 3)
        at += 4 * w
    for i in range(whole, d):
        for j in range(whole, d):
            P[at] += (s0[i] * x0[j] + s1[i] * x1[j]) + (s2[i] * x2[j] + s3[i] * x3[j])
            at += 1
