"""Do two clients have the same parameter? Tests and evidence from sufficient statistics alone.

Client i's released statistics satisfy b_i = V_i θ_i + r_i with noise r_i of covariance W_i = σ²V_i + τ_i²I, where τ_i
is the privacy noise in a coordinate of b_i − V_i θ_i, 0 if there is none. Least squares with these weights needs only

    A_i = V_i W_i⁻¹ V_i,     c_i = V_i W_i⁻¹ b_i,     q_i = c_iᵀ A_i⁻ c_i,

which without privacy are V_i/σ², b_i/σ² and b_iᵀ V_i⁻ b_i/σ². Then (Pythagoras; ⁻ is a generalised inverse)

    s(i, j) = q_i + q_j − (c_i + c_j)ᵀ (A_i + A_j)⁻ (c_i + c_j)
            = (‖X_i(ϑ_i − ϑ_ij)‖² + ‖X_j(ϑ_j − ϑ_ij)‖²)/σ²                                     (HetoFedBandit, Eq. 1)

follows χ² with df = rank A_i + rank A_j − rank(A_i + A_j) degrees of freedom and non-centrality
ψ = (θ_i − θ_j)ᵀ A_j (A_i + A_j)⁻ A_i (θ_i − θ_j).

Reference: Blaser et al., HetoFedBandit, 2024, §3.2 and App. C; Li et al., DyClu, 2021; Chow 1960.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import chndtrix

from fedbandit.engine.fast.jit import compiled_lean
from fedbandit.sharing import Members, Noise
from fedbandit.types import Array, Ints

LEAST_NOISE = 1e-6
"""σ in a world without noise: tests divide by it."""

RANK_TOLERANCE = 1e-10
"""A pivot below this part of the largest diagonal element is zero."""


class Weighted(NamedTuple):
    """A_i and c_i of every client."""

    A: Array  # (N, d, d)
    c: Array  # (N, d)


class Pairs(NamedTuple):
    """The statistic and its degrees of freedom for all pairs of clients; both symmetric, 0 on the diagonal."""

    s: Array  # (N, N)
    df: Ints  # (N, N)


def weighted(members: Members, sigma: float, noise: Noise | None) -> Weighted:
    """Each client's statistics, weighted by their noise: that of rewards, and that of privacy."""
    sigma = max(sigma, LEAST_NOISE)
    A, c = members.V / sigma**2, members.b / sigma**2
    tau = np.zeros(len(c)) if noise is None else noise.deviations(members.releases)
    for i in np.flatnonzero(tau > 0):
        V = (members.V[i] + members.V[i].T) / 2
        values, vectors = np.linalg.eigh(V)
        inverse = (vectors / (sigma**2 * np.maximum(values, 0.0) + tau[i] ** 2)) @ vectors.T
        A[i], c[i] = V @ inverse @ V, V @ inverse @ members.b[i]
    return Weighted(A, c)


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


def pairwise(A: Array, c: Array) -> Pairs:
    """The statistic of all pairs."""
    n, d = c.shape
    form, rank = np.zeros(n), np.zeros(n, dtype=np.int64)
    s, df = np.zeros((n, n)), np.zeros((n, n), dtype=np.int64)
    M, column = np.zeros((d + 1, d)), np.zeros(d + 1)
    for i in range(n):
        summarise(i, A, c, form, rank, M, column)
    for i in range(n):
        compare(i, np.arange(i + 1, n), A, c, form, rank, s[i, i + 1 :], df[i, i + 1 :], M, column)
    return Pairs(s + s.T, df + df.T)


@lru_cache(maxsize=4096)
def critical_value(tail: float, df: int, noncentrality: float) -> float:
    """F⁻¹(1 − tail; df, ψ) of the non-central χ² distribution; ∞ without degrees of freedom: nothing is tested.

    >>> round(critical_value(0.05, 25, 0.0), 2), critical_value(0.05, 0, 0.0)
    (37.65, inf)
    """
    return math.inf if df == 0 else float(chndtrix(1 - tail, df, noncentrality))


def parallel_sum(A: Array, B: Array) -> Array:
    """B (A + B)⁻ A: what two clients' data say together about the difference of their parameters."""
    return np.asarray(B @ np.linalg.pinv(A + B, hermitian=True) @ A)
