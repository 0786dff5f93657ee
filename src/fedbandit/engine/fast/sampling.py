"""The factor that turns standard normals into correlated ones."""

from __future__ import annotations

import math

from fedbandit.engine.fast.algebra import dot
from fedbandit.engine.fast.jit import compiled_lean
from fedbandit.types import Array


@compiled_lean
def cholesky(A: Array, L: Array) -> None:
    """Write to L the lower triangular factor of a positive *semi*-definite A: L Lᵀ = A.

    A pivot that is zero to rounding has nothing below it either, since A is semi-definite; its column is left zero.
    """
    d = A.shape[0]
    largest = 0.0
    for i in range(d):
        largest = max(largest, A[i, i])
    for i in range(d):
        for j in range(i):
            rest = A[i, j] - dot(L[i, :j], L[j, :j])
            L[i, j] = rest / L[j, j] if L[j, j] > 0.0 else 0.0
        pivot = A[i, i] - dot(L[i, :i], L[i, :i])
        L[i, i] = math.sqrt(pivot) if pivot > 1e-12 * largest else 0.0
