"""Buffered linear Toeplitz (BLT) noise: nearly the best error there is, with a handful of buffers as memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from fedbandit.errors import needs, require
from fedbandit.types import Array

_STEEPEST = 12.0  # of the optimiser's variables: keeps neighbouring decays apart in floating point
_DIGITS = 4  # to which the optimum is rounded, so that two machines agree on it


@dataclass(frozen=True)
class BufferedToeplitz:
    """C is lower-triangular Toeplitz with the generating function Π(1 − μ_i x) / Π(1 − λ_i x), and B = A C⁻¹.

    In partial fractions, with the weights α_i = Π_j (λ_i − μ_j) / Π_{j≠i} (λ_i − λ_j),

        c₀ = 1,   c_k = Σ α_i λ_i^{k−1};        b_k = Σ r_i p_i^k,   p = (1, μ₁, …, μ_q).

    The decays interlace, 1 > λ₁ > μ₁ > λ₂ > … > μ_q ≥ 0, which makes every α_i and r_i positive. Noise w = C⁻¹ z is
    computed from q buffers S_i = Σ_j λ_i^{j−1} w_{k−j}, and C x from q others, R_i = Σ_j λ_i^{j−1} x_{k−j}:

        w_k = z_k − Σ α_i S_i,      S_i ← λ_i S_i + w_k,      (B z)_k = (B z)_{k−1} + w_k,
        (C x)_k = x_k + Σ α_i R_i,  R_i ← λ_i R_i + x_k.

    Without buffers C = I: independent noise on every increment.

    *Sensitivity.* A later column of a lower-triangular Toeplitz matrix is a prefix of the first one, so the first
    column (1, c₁, …, c_{n−1}) has the largest norm, whatever the decays: a poor optimum costs accuracy, not privacy.

    Reference: Dvijotham, McMahan, Pillutla, Steinke & Thakurta 2024 (BLT); McMahan, Xu & Zhang 2024, "A hassle-free
    algorithm for private learning in practice", for the two sets of decays.
    """

    n_max: int
    decays: tuple[float, ...] = ()
    inverse_decays: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a stream without releases and decays that do not interlace."""
        require(self.n_max >= 1, "n_max", self.n_max, "a whole number ≥ 1")
        ladder = [1.0]
        for pair in zip(self.decays, self.inverse_decays, strict=True):
            ladder.extend(pair)
        falling = all(above > below for above, below in pairwise(ladder))
        require(falling and ladder[-1] >= 0, "the ladder of decays", ladder, "strictly falling from 1 and ≥ 0")

    def weights(self) -> Array:
        """α."""
        return _residues(np.array(self.decays), np.array(self.inverse_decays))

    def coefficients(self) -> Array:
        """c₀, …, c_{n−1}: the first column of C."""
        return np.concatenate(([1.0], _powers(self.weights(), np.array(self.decays), self.n_max - 1)))

    def column_norm(self, order: int, releases: int | None = None) -> float:
        """The norm of the first column."""
        return float(np.linalg.norm(self.coefficients()[:releases], order))

    def row_norms(self) -> Array:
        """(Σ_{j<k} b_j²)^½, growing with k."""
        poles = np.array((1.0, *self.inverse_decays))
        b = _powers(_residues(poles, np.array(self.decays)), poles, self.n_max)
        return np.sqrt(np.cumsum(b * b))

    def encoder(self, releases: int | None = None) -> Array:
        """C."""
        k = np.arange(releases or self.n_max)
        lag = np.subtract.outer(k, k)
        return np.where(lag >= 0, self.coefficients()[np.maximum(lag, 0)], 0.0)

    def start(self, shape: tuple[int, ...]) -> Array:
        """The sum so far, which is a buffer of decay 1, and the q buffers."""
        return np.zeros((1 + len(self.decays), *shape))

    def encode(self, memory: Array, k: int, x: Array) -> tuple[Array, Array]:  # noqa: ARG002 (a tree needs k)
        """The recursion above for C x."""
        return x + np.tensordot(self.weights(), memory[1:], axes=1), self._decayed(memory, x)

    def step(self, memory: Array, k: int, u: Array) -> tuple[Array, Array]:  # noqa: ARG002 (a tree needs k)
        """The recursion above for B z."""
        memory = self._decayed(memory, u - np.tensordot(self.weights(), memory[1:], axes=1))
        return memory[0], memory

    def _decayed(self, memory: Array, new: Array) -> Array:
        return np.asarray(np.array((1.0, *self.decays)).reshape((-1,) + (1,) * new.ndim) * memory + new)


def independent(n_max: int) -> BufferedToeplitz:
    """C = I, B = A: fresh noise on every increment, the reference that everything must beat."""
    return BufferedToeplitz(n_max)


@cache
def blt(n_max: int, buffers: int = 3) -> BufferedToeplitz:
    """The BLT with the smallest largest error column_norm(2) · max_k ‖B_k‖ for n_max releases.

    Both factors are sums of geometric series, so that the optimisation costs the same for ten releases as for ten
    million (0.1 s). Three buffers are within 0.2 % of the square-root Toeplitz matrix to n_max = 1024, within 6 %
    to 10⁶.

    >>> [round(decay, 3) for decay in blt(128).decays]
    [0.994, 0.918, 0.548]
    """
    require(n_max >= 1, "n_max", n_max, "a whole number ≥ 1")
    require(buffers >= 0, "buffers", buffers, "a whole number ≥ 0")
    q = min(buffers, n_max - 1)
    if q == 0:
        return independent(n_max)
    gaps = np.geomspace(0.5 / n_max, 0.6, 2 * q)
    ratios = np.append(gaps[:-1] / gaps[1:], gaps[-1])
    optimise = needs("scipy.optimize", "private", "Differential privacy")  # here: it takes half a second to import
    optimum = optimise.minimize(_log_error, np.log(ratios / (1 - ratios)), args=(n_max,), method="BFGS")
    decays, inverse_decays = _interlaced(np.round(optimum.x, _DIGITS))
    return BufferedToeplitz(n_max, tuple(decays.tolist()), tuple(inverse_decays.tolist()))


def _interlaced(variables: Array) -> tuple[Array, Array]:
    """λ and μ from 2q free variables: 1 − λ₁ < 1 − μ₁ < 1 − λ₂ < …, each a logistic fraction of the next."""
    fractions = 1 / (1 + np.exp(-np.clip(variables, -_STEEPEST, _STEEPEST)))
    gaps = np.cumprod(fractions[::-1])[::-1]
    return np.asarray(1 - gaps[0::2]), np.asarray(1 - gaps[1::2])


def _log_error(variables: Array, n_max: int) -> float:
    decays, inverse_decays = _interlaced(variables)
    poles = np.append(1.0, inverse_decays)
    column = 1 + _power_sum(_residues(decays, inverse_decays), decays, n_max - 1)
    row = _power_sum(_residues(poles, decays), poles, n_max)
    return float(np.log(column * row) / 2)


def _residues(poles: Array, zeros: Array) -> Array:
    """r_i = Π_j (p_i − ζ_j) / Π_{j≠i} (p_i − p_j)."""
    apart = np.subtract.outer(poles, poles) + np.eye(poles.size)
    return np.asarray(np.prod(np.subtract.outer(poles, zeros), axis=1) / np.prod(apart, axis=1))


def _powers(r: Array, p: Array, n: int) -> Array:
    """Σ_i r_i p_i^k for k = 0, …, n − 1."""
    return np.asarray(r @ np.power.outer(p, np.arange(n)))


def _power_sum(r: Array, p: Array, n: int) -> float:
    """Σ_{k<n} (Σ_i r_i p_i^k)², by the geometric series."""
    pp = np.outer(p, p)
    below_one = np.where(pp < 1, pp, 0.5)
    series = np.where(pp < 1, (1 - below_one**n) / (1 - below_one), n)
    return float(r @ series @ r)
