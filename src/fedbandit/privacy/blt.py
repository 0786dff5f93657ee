"""Buffered linear Toeplitz (BLT) noise: the best there is of Toeplitz form, with a handful of buffers as memory."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from fedbandit.errors import needs, require
from fedbandit.types import Array

ENDLESS = sys.maxsize
"""n_max of a stream without a cap."""
FAR = 2**24
"""Releases for which an endless stream's decays are chosen."""
TABLE = 2**16
"""Row norms of an endless stream that are tabulated."""
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

    Without buffers C = I: independent noise on every increment. If n_max is `ENDLESS` the column is infinitely long;
    its norm is finite, since λ₁ < 1, and bounds the privacy loss of any number of releases.

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

    def coefficients(self, releases: int | None = None) -> Array:
        """c₀, …, c_{n−1}: the first column of C."""
        n = self.n_max if releases is None else releases
        return np.concatenate(([1.0], _powers(self.weights(), np.array(self.decays), n - 1)))

    def column_norm(self, order: int, releases: int | None = None) -> float:
        """The norm of the first column, by geometric series."""
        n = self.n_max if releases is None else min(releases, self.n_max)
        later = math.inf if n == ENDLESS else n - 1
        weights, decays = self.weights(), np.array(self.decays)
        if order == 1:
            return 1.0 + float((weights * (1 - decays**later) / (1 - decays)).sum())
        return math.sqrt(1 + _power_sum(weights, decays, later))

    def row_norms(self) -> Array:
        """(Σ_{j<k} b_j²)^½, growing with k; of an endless stream the first `TABLE`."""
        poles = np.array((1.0, *self.inverse_decays))
        b = _powers(_residues(poles, np.array(self.decays)), poles, TABLE if self.n_max == ENDLESS else self.n_max)
        return np.sqrt(np.cumsum(b * b))

    def encoder(self, releases: int | None = None) -> Array:
        """C."""
        n = releases or self.n_max
        lag = np.subtract.outer(np.arange(n), np.arange(n))
        return np.where(lag >= 0, self.coefficients(n)[np.maximum(lag, 0)], 0.0)

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
def blt(n_max: int, buffers: int | None = None) -> BufferedToeplitz:
    """The BLT with the smallest largest error column_norm(2) · max_k ‖B_k‖ for n_max releases.

    Both factors are sums of geometric series, so that the optimisation costs the same for ten releases as for ten
    million (0.1 s). Three buffers, the default up to 10⁴ releases, are within 0.2 % of the square-root Toeplitz matrix
    to n_max = 1024 and 1 % at 10⁴; five are the default beyond, within 0.5 % at 10⁶.

    >>> [round(decay, 3) for decay in blt(128).decays]
    [0.994, 0.918, 0.548]
    """
    require(n_max >= 1, "n_max", n_max, "a whole number ≥ 1")
    if buffers is None:
        buffers = 3 if n_max <= 10_000 else 5
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


@cache
def endless(n_max: int = ENDLESS) -> BufferedToeplitz:  # noqa: ARG001 - it has no cap
    """A stream that never ends: the claim holds for every number of releases, and memory stays constant.

    Its decays are those of the BLT for 2²⁴ releases, its sensitivity that of the infinite column, which is 1 % more. Up
    to 2²⁴ releases its variance is that of a stream planned for 2²⁴, within 2 %; beyond, it grows with their number.
    Jacobsen et al. 2025 (arXiv 2506.15018) have log^{2+2α} t for ever, within 1.5 times of a planned stream's up to
    2²⁴, for memory that grows with t.

    >>> round(endless().column_norm(2) / blt(FAR, 6).column_norm(2), 2)
    1.01
    """
    far = blt(FAR, 6)
    return BufferedToeplitz(ENDLESS, far.decays, far.inverse_decays)


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


def _power_sum(r: Array, p: Array, n: float) -> float:
    """Σ_{k<n} (Σ_i r_i p_i^k)², by the geometric series."""
    pp = np.outer(p, p)
    below_one = np.where(pp < 1, pp, 0.5)
    series = np.where(pp < 1, (1 - below_one**n) / (1 - below_one), n)
    return float(r @ series @ r)
