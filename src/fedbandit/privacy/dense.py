"""The best lower-triangular factorisation for few releases: no other has a smaller largest error."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from fedbandit.errors import require
from fedbandit.types import Array

LARGEST = 512
"""Releases up to which it is computed; beyond, a BLT is within 13 % of it and needs no memory."""
GAP = 1e-5
"""How far above its certificate the error may be."""
_DIGITS = 7  # to which weights are rounded, so that two machines agree on C
_ROUNDS = 500


@dataclass(frozen=True)
class Dense:
    """A = B C for n_max releases with the smallest largest error max_k ‖B_k‖ · max_j ‖C e_j‖, which is γ₂(A).

    Let p be weights of the releases (Σ p = 1), K = A J with the columns of A reversed (K_ij = 1 where i + j > n), and
    M = |√p K √p| the absolute value of that symmetric matrix. Then

        CᵀC = J √p⁻¹ M √p⁻¹ J,        ‖B_k‖² = ‖C e_{n+1−k}‖² = M_kk / p_k,

    so the largest error is max M_kk/p_k. *Certificate*: for every p and every factorisation, tr M = ‖√p A √q‖_tr, with
    q = p reversed, is at most the largest error (Σ √p_i √q_j (BC)_ij U_ij ≤ ‖√p B‖_F ‖C √q‖_F for orthogonal U). At the
    optimum both are equal, and all releases are equally noisy: p ∝ diag M, which is also how p is found. What is not
    within 1e-5 of its certificate is refused when it is built.

    A rotation makes C lower triangular, so that noise can be drawn as releases come; the privacy of Gaussian noise is
    that of CᵀC. Its memory grows with the releases, where a BLT's does not.

    Reference: Denisov, McMahan, Rush, Smith & Thakurta 2022, §3 (fixed point); Linial & Shraibman 2009 (γ₂ and its
    dual).

    >>> [round(Dense(n).certificate, 3) for n in (2, 6, 16)]
    [1.155, 1.433, 1.704]
    """

    n_max: int

    def __post_init__(self) -> None:
        """Refuse a stream without releases, one that is too long, and a factorisation that is not the best."""
        require(1 <= self.n_max <= LARGEST, "n_max", self.n_max, f"a whole number from 1 to {LARGEST} for dense noise")
        error = self.column_norm(2) * float(self.row_norms().max())
        require(
            error <= self.certificate * (1 + 2 * GAP), "the largest error", error, f"{self.certificate:g}, its dual"
        )

    @cached_property
    def _solved(self) -> tuple[Array, Array, float]:
        return _solve(self.n_max)

    @property
    def C(self) -> Array:
        """Lower triangular, with columns of norm 1 at most: rows of B are as long as the error."""
        return self._solved[0]

    @property
    def certificate(self) -> float:
        """A lower bound of the largest error of every factorisation."""
        return self._solved[2]

    def column_norm(self, order: int, releases: int | None = None) -> float:
        """The largest over all columns."""
        return float(np.linalg.norm(self.C[:releases], order, axis=0).max())

    def row_norms(self) -> Array:
        """‖B_k‖₂: nearly the same for all."""
        return np.linalg.norm(self._solved[1], axis=1)

    def encoder(self, releases: int | None = None) -> Array:
        """C."""
        return self.C[:releases, :releases]

    def start(self, shape: tuple[int, ...]) -> Array:
        """One slot for each release: its increment, or its part of C⁻¹u."""
        return np.zeros((self.n_max, *shape))

    def encode(self, memory: Array, k: int, x: Array) -> tuple[Array, Array]:
        """(C x)_k = Σ_{j≤k} C_kj x_j."""
        memory = memory.copy()
        memory[k - 1] = x
        return np.tensordot(self.C[k - 1, :k], memory[:k], axes=1), memory

    def step(self, memory: Array, k: int, u: Array) -> tuple[Array, Array]:
        """w_k = (u_k − Σ_{j<k} C_kj w_j)/C_kk, and (B u)_k = w_1 + … + w_k."""
        memory = memory.copy()
        memory[k - 1] = (u - np.tensordot(self.C[k - 1, : k - 1], memory[: k - 1], axes=1)) / self.C[k - 1, k - 1]
        return memory[:k].sum(axis=0), memory


@cache
def dense(n_max: int) -> Dense:
    """The best factorisation; found once (a hundredth of a second for 64 releases, some seconds for 512)."""
    return Dense(n_max)


@cache
def _solve(n: int) -> tuple[Array, Array, float]:
    """C, B and the certificate."""
    i = np.arange(n)
    K = (np.add.outer(i, i) >= n - 1).astype(np.float64)
    p = ((i + 0.5) / n) ** 0.16 * ((n - i - 0.5) / n) ** -0.27  # near the optimum, so that few steps are left
    p /= p.sum()
    for _ in range(_ROUNDS):
        M, bound = _absolute(K, p)
        ratio = M.diagonal() / (p * bound)
        if ratio.max() <= 1 + GAP:
            break
        p *= ratio * ratio  # the square takes half of the steps of p ← diag M
        p /= p.sum()
    p = np.round(p, _DIGITS + len(str(n)))
    p /= p.sum()
    M, bound = _absolute(K, p)
    gram = (M / np.sqrt(np.outer(p, p)))[::-1, ::-1]
    gram /= gram.diagonal().max()
    C = np.asarray(
        np.linalg.cholesky(gram[::-1, ::-1]).T[::-1, ::-1], dtype=np.float64
    )  # CᵀC = gram with C lower triangular
    B = np.cumsum(np.linalg.inv(C), axis=0)
    C = np.ascontiguousarray(np.tril(C), dtype=np.float64)
    for array in (C, B):
        array.flags.writeable = False
    return C, B, bound


def _absolute(K: Array, p: Array) -> tuple[Array, float]:
    """|√p K √p| and its trace."""
    root = np.sqrt(p)
    values, vectors = np.linalg.eigh(root[:, None] * K * root)
    return (vectors * np.abs(values)) @ vectors.T, float(np.abs(values).sum())
