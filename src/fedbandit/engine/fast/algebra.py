"""Small dense linear algebra for compiled loops, four numbers at a time; and which arm wins."""

from __future__ import annotations

from fedbandit.engine.fast.jit import compiled_inline, compiled_view
from fedbandit.engine.fast.vectors import entry, four, larger, load, matrix_at, store, total, totals, zeros
from fedbandit.model import TIE
from fedbandit.types import Array, Ints


@compiled_view
def part_of(M: Array, n: int, d: int) -> Array:
    """An (n, d) matrix in the memory of a larger one: kernels want rows that follow one another."""
    return M.reshape(M.size)[: n * d].reshape((n, d))


@compiled_view
def matrix_in(M: Array, first: int, n: int) -> Array:
    """Rows first, …, first + n − 1 of a matrix."""
    return matrix_at(M, first * M.shape[1], n, M.shape[1])


@compiled_inline
def clear(target: Array) -> None:
    """Target = 0 for vectors."""
    for i in range(target.shape[0]):
        target[i] = 0.0


@compiled_inline
def copy(source: Array, target: Array) -> None:
    """Target = source for vectors. A loop: Numba's slice assignment compiles to a hundred times the code.

    By fours, as vectors are written: what was stored by fours cannot be loaded by eights at once.
    """
    n = target.shape[0]
    whole = n - n % 4
    for i in range(0, whole, 4):
        store(target, i, load(source, i))
    for i in range(whole, n):
        target[i] = source[i]


@compiled_inline
def add(source: Array, target: Array) -> None:
    """Target += source for vectors."""
    add_scaled(source, 1.0, target)


@compiled_inline
def add_scaled(source: Array, scale: float, target: Array) -> None:
    """Target += scale · source for vectors."""
    n = target.shape[0]
    whole = n - n % 4
    for i in range(0, whole, 4):
        store(target, i, load(target, i) + load(source, i) * scale)
    for i in range(whole, n):
        target[i] += source[i] * scale


@compiled_inline
def largest(values: Array, n: int) -> float:
    """The largest of the first n ≥ 1 values."""
    best, first = values[0], 0
    if n >= 4:
        fours = load(values, 0)
        for i in range(4, n - 3, 4):
            fours = larger(fours, load(values, i))
        best = max(max(entry(fours, 0), entry(fours, 1)), max(entry(fours, 2), entry(fours, 3)))
        first = n - n % 4
    for i in range(first, n):
        best = max(best, values[i])
    return best


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


@compiled_inline
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
        sums = totals(s0, s1, s2, s3)
        for i in range(whole, d):
            sums = sums + four(w[i], x[i], y[i], z[i]) * theta[i]
        store(out, a, sums)
    for a in range(fours, arms.shape[0]):
        out[a] = dot(theta, X[arms[a]])


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


@compiled_inline
def winner(scores: Array, n: int) -> int:
    """The lowest of the first n positions whose score is within TIE of the largest."""
    best = largest(scores, n)
    for a in range(n):
        if scores[a] >= best - TIE:
            return a
    return 0
