"""`structures.homogeneity`, compiled: for neighbourhoods, which are tested at almost every observation."""

from __future__ import annotations

import math

from fedbandit.engine.fast.jit import compiled_lean
from fedbandit.structures.homogeneity import RANK_TOLERANCE
from fedbandit.types import Array, Ints


@compiled_lean
def eliminate(M: Array, column: Array) -> tuple[float, int, float]:
    """For M = [[A], [cᵀ]] with a positive semi-definite A: cᵀA⁻c, rank A and the log of the product of its pivots.

    A = L D Lᵀ without pivoting; a pivot that is zero leaves a zero column, and c, which is in the range of A, has
    nothing there either. Only the lower triangle is read. M is overwritten.
    """
    d = M.shape[1]
    largest = 0.0
    for k in range(d):
        largest = max(largest, M[k, k])
    form, rank, logdet = 0.0, 0, 0.0
    for k in range(d):
        pivot = M[k, k]
        if pivot <= RANK_TOLERANCE * largest:
            continue
        rank += 1
        logdet += math.log(pivot)
        form += M[d, k] * M[d, k] / pivot
        for i in range(k + 1, d + 1):
            column[i] = M[i, k]
        for i in range(k + 1, d + 1):
            f = column[i] / pivot
            for j in range(k + 1, min(i + 1, d)):
                M[i, j] -= f * column[j]
    return form, rank, logdet


@compiled_lean
def load_sum(A: Array, c: Array, i: int, j: int, M: Array) -> None:
    """M = [[A_i + A_j], [(c_i + c_j)ᵀ]], or those of i alone if j < 0."""
    d = c.shape[1]
    for k in range(d):
        for m in range(d):
            M[k, m] = A[i, k, m]
        M[d, k] = c[i, k]
    if j >= 0:
        for k in range(d):
            for m in range(d):
                M[k, m] += A[j, k, m]
            M[d, k] += c[j, k]


@compiled_lean
def compare(
    i: int, others: Ints, A: Array, c: Array, form: Array, rank: Ints, s: Array, df: Ints, M: Array, column: Array
) -> None:
    """s[k], df[k] of client i with client others[k]; `form` and `rank` are those of each client alone."""
    for k in range(others.shape[0]):
        j = others[k]
        load_sum(A, c, i, j, M)
        joint, joint_rank, _ = eliminate(M, column)
        s[k] = max(form[i] + form[j] - joint, 0.0)
        df[k] = rank[i] + rank[j] - joint_rank


@compiled_lean
def summarise(i: int, A: Array, c: Array, form: Array, rank: Ints, M: Array, column: Array) -> None:
    """form[i] = c_iᵀA_i⁻c_i and rank[i] of client i alone."""
    load_sum(A, c, i, -1, M)
    form[i], rank[i], _ = eliminate(M, column)
