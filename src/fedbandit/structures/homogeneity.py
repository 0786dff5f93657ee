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

import contextlib
import math
from collections.abc import Iterator
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

BATCH = 2**17
"""Numbers that are worked on at a time."""


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


class Factor(NamedTuple):
    """F and z with A = F Fᵀ and c = F z, of each of several pairs (A, c)."""

    F: Array  # (m, d, r) with r the largest rank; columns beyond a rank are zero
    z: Array  # (m, r)
    pivots: Array  # (m, r)


def factor(A: Array, c: Array, most: int | None = None) -> Factor:
    """Cholesky's factorisation of each A (m, d, d), positive semi-definite, whose range has c (m, d).

    With `most` it stops after so many columns.

    The largest pivot comes first: when it is zero, so is what is left. Without that order, rounding errors in a matrix
    that is not regular grow until they pass for a pivot.

    >>> found = factor(np.diag([0.0, 4.0])[None], np.array([[0.0, 6.0]]))
    >>> found.F.tolist(), found.z.tolist(), found.pivots.tolist()
    ([[[0.0], [2.0]]], [[3.0]], [[4.0]])
    """
    m, d = c.shape
    everyone = np.arange(m)
    most = d if most is None else most
    F, z, pivots = np.zeros((m, d, most)), np.zeros((m, most)), np.zeros((m, most))
    left = np.einsum("mkk->mk", A).copy()
    least = RANK_TOLERANCE * left.max(axis=1, initial=0.0)
    for k in range(most):
        p = left.argmax(axis=1)
        pivot = left[everyone, p]
        used = pivot > least
        if not used.any():
            return Factor(F[:, :, :k], z[:, :k], pivots[:, :k])
        scale = np.where(used, np.sqrt(np.where(used, pivot, 1.0)), np.inf)
        row = F[everyone, p, :k, None]
        F[:, :, k] = (A[everyone, :, p] - (F[:, :, :k] @ row)[:, :, 0]) / scale[:, None]
        z[:, k] = (c[everyone, p] - (z[:, None, :k] @ row)[:, 0, 0]) / scale
        pivots[:, k] = pivot * used
        left -= F[:, :, k] ** 2
        left[everyone, p] = 0.0
    return Factor(F, z, pivots)


class Eliminated(NamedTuple):
    """Of each of several pairs (A, c)."""

    form: Array  # cᵀA⁻c
    rank: Ints  # of A
    logdet: Array  # log of the product of A's pivots


def eliminate(A: Array, c: Array, ridge: float = 0.0) -> Eliminated:
    """cᵀA⁻c, rank and pivots of each A (m, d, d) + ridge, positive semi-definite, with its c (m, d).

    With A = F Fᵀ and c = F z the form is zᵀz. If all are regular, F and z are the factor of A with one more row.

    >>> eliminate(np.diag([4.0, 0.0])[None], np.array([[2.0, 0.0]])).form.tolist()
    [1.0]
    """
    m, d = c.shape
    M = np.full((m, d + 1, d + 1), 1e300)  # the last pivot means nothing, but must not be negative
    M[:, :d, :d], M[:, d, :d] = A, c
    diagonal = np.einsum("mkk->mk", M)[:, :d]
    diagonal += ridge
    least = RANK_TOLERANCE * diagonal.max(axis=1, initial=0.0)
    with contextlib.suppress(np.linalg.LinAlgError):
        L = np.linalg.cholesky(M)
        pivots = np.einsum("mkk->mk", L)[:, :d] ** 2
        if (pivots > least[:, None]).all():
            return Eliminated((L[:, d, :d] ** 2).sum(axis=1), np.full(m, d), np.log(pivots).sum(axis=1))
    _, z, pivots = factor(M[:, :d, :d], c)
    logs = np.log(pivots, out=np.zeros_like(pivots), where=pivots > 0)
    return Eliminated((z**2).sum(axis=1), (pivots > 0).sum(axis=1), logs.sum(axis=1))


def compare(i: Ints, j: Ints, A: Array, c: Array, form: Array, rank: Ints) -> tuple[Array, Ints]:
    """s and df of each client i with its j; `form` and `rank` are those of each client alone."""
    s, df = np.zeros(i.size), np.zeros(i.size, dtype=np.int64)
    few = rank[i] + rank[j] < c.shape[1]  # together not regular, which takes longer
    for those in (np.flatnonzero(few), np.flatnonzero(~few)):
        for part in batches(those, c.shape[1]):
            one, other = i[part], j[part]
            joint = eliminate(A[one] + A[other], c[one] + c[other])
            s[part] = np.maximum(form[one] + form[other] - joint.form, 0.0)
            df[part] = np.maximum(rank[one] + rank[other] - joint.rank, 0)
    return s, df


def batches(numbers: Ints, d: int) -> Iterator[Ints]:
    """Parts of so many numbers that a d×d matrix for each fits in a cache."""
    size = max(1, BATCH // max(d, 1) ** 2)
    return (numbers[start : start + size] for start in range(0, numbers.size, size))


def pairwise(A: Array, c: Array) -> Pairs:
    """The statistic of all pairs."""
    n, d = c.shape
    form, rank = np.zeros(n), np.zeros(n, dtype=np.int64)
    for part in batches(np.arange(n), d):
        form[part], rank[part], _ = eliminate(A[part], c[part])
    s, df = np.zeros((n, n)), np.zeros((n, n), dtype=np.int64)
    i, j = np.triu_indices(n, 1)
    s[i, j], df[i, j] = compare(i, j, A, c, form, rank)
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
