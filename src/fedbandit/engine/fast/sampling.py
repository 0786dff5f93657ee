"""Sampled parameters, compiled: Thompson sampling and perturbed history."""

from __future__ import annotations

import math

from fedbandit.engine.fast.algebra import dot, part_of
from fedbandit.engine.fast.jit import compiled_lean
from fedbandit.engine.fast.packed import multiply_packed, unpack
from fedbandit.engine.fast.plan import PolicyPlan, sampling_width
from fedbandit.engine.fast.statistics import add_pending_unpacked, base_of, inverse_of, theta_of
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


@compiled_lean
def spread_thompson(plan: PolicyPlan, row: Array, z: Array, M: Array, theta: Array, V: Array) -> None:
    """θ = θ̂ + α L z with L Lᵀ = V(λ)⁻¹; M and V may be larger than d."""
    alpha = sampling_width(plan, row)
    d = z.shape[0]
    A = part_of(V, d, d)
    unpack(inverse_of(row, d), A)
    cholesky(A, M)
    estimate = theta_of(row, d)
    for i in range(d):
        theta[i] = estimate[i] + alpha * dot(M[i, : i + 1], z[: i + 1])


@compiled_lean
def spread_perturbed(plan: PolicyPlan, row: Array, z: Array, M: Array, theta: Array, V: Array) -> None:
    """θ = θ̂ + α V(λ)⁻¹ L z with L Lᵀ = V (without ridge); M and V may be larger than d."""
    d = z.shape[0]
    alpha = sampling_width(plan, row)
    A = part_of(V, d, d)
    unpack(base_of(row, d), A)
    add_pending_unpacked(row, d, A)
    cholesky(A, M)
    perturbed = M[d, :d]
    for i in range(d):
        perturbed[i] = alpha * dot(M[i, : i + 1], z[: i + 1])
    multiply_packed(inverse_of(row, d), perturbed, theta)
    estimate = theta_of(row, d)
    for i in range(d):
        theta[i] += estimate[i]
