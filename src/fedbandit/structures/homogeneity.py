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

from fedbandit.sharing import Members, Noise
from fedbandit.tails import chi_square_quantile
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


class Eliminated(NamedTuple):
    """Of each of several pairs (A, c)."""

    form: Array  # cᵀA⁻c
    rank: Ints  # of A
    logdet: Array  # log of the product of A's pivots


def eliminate(A: Array, c: Array) -> Eliminated:
    """cᵀA⁻c, rank and pivots of each A (m, d, d), positive semi-definite, with its c (m, d).

    A = L D Lᵀ without pivoting; a pivot that is zero leaves a zero column, and c, which is in the range of A, has
    nothing there either.

    >>> eliminate(np.diag([4.0, 0.0])[None], np.array([[2.0, 0.0]])).form.tolist()
    [1.0]
    """
    m, d = c.shape
    M = np.concatenate([A, c[:, None, :]], axis=1)
    least = RANK_TOLERANCE * np.einsum("mkk->mk", A).max(axis=1, initial=0.0)
    form, rank, logdet = np.zeros(m), np.zeros(m, dtype=np.int64), np.zeros(m)
    for k in range(d):
        used = M[:, k, k] > least
        pivot = np.where(used, M[:, k, k], 1.0)
        column = M[:, k + 1 :, k] * used[:, None]
        rank += used
        logdet += np.log(pivot)
        form += column[:, -1] ** 2 / pivot
        M[:, k + 1 :, k + 1 :] -= (column / pivot[:, None])[:, :, None] * column[:, None, :-1]
    return Eliminated(form, rank, logdet)


def compare(i: int, others: Ints, A: Array, c: Array, form: Array, rank: Ints) -> tuple[Array, Ints]:
    """s and df of client i with each of the others; `form` and `rank` are those of each client alone."""
    joint = eliminate(A[others] + A[i], c[others] + c[i])
    s = np.maximum(form[others] + form[i] - joint.form, 0.0)
    return s, rank[others] + rank[i] - joint.rank


def pairwise(A: Array, c: Array) -> Pairs:
    """The statistic of all pairs."""
    n = len(c)
    form, rank, _ = eliminate(A, c)
    s, df = np.zeros((n, n)), np.zeros((n, n), dtype=np.int64)
    for i in range(n - 1):
        s[i, i + 1 :], df[i, i + 1 :] = compare(i, np.arange(i + 1, n), A, c, form, rank)
    return Pairs(s + s.T, df + df.T)


@lru_cache(maxsize=4096)
def critical_value(tail: float, df: int, noncentrality: float) -> float:
    """F⁻¹(1 − tail; df, ψ) of the non-central χ² distribution; ∞ without degrees of freedom: nothing is tested.

    >>> round(critical_value(0.05, 25, 0.0), 2), critical_value(0.05, 0, 0.0)
    (37.65, inf)
    """
    return math.inf if df == 0 else chi_square_quantile(tail, df, noncentrality)


def parallel_sum(A: Array, B: Array) -> Array:
    """B (A + B)⁻ A: what two clients' data say together about the difference of their parameters."""
    return np.asarray(B @ np.linalg.pinv(A + B, hermitian=True) @ A)
