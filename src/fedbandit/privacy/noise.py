"""The kinds of noise, and how far one replaced record can move what they are added to.

A kind is described by three facts at scale 1: how to draw it, its negative log-density ("energy", up to a constant),
and the *unit*, the norm of a difference that is one standard deviation (Gaussian kinds) or one ε (the others) long.
Sensitivities are for the neighbouring relation **replace one record**: as many records, one of them arbitrary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np

from fedbandit.errors import require
from fedbandit.types import Array

Kind: TypeAlias = Literal["symmetric", "vector", "gamma", "laplace"]
Size: TypeAlias = tuple[int, ...]


class Source(Protocol):
    """Where random numbers come from. A NumPy generator is one: good for simulation, not proof against attackers
    who know floating point (Mironov 2012) or the generator's state.
    """

    def standard_normal(self, size: Size) -> Array:
        """Independent N(0, 1)."""
        ...

    def standard_gamma(self, shape: float, size: Size) -> Array:
        """Independent Gamma(shape, 1)."""
        ...

    def laplace(self, loc: float, scale: float, size: Size) -> Array:
        """Independent Laplace."""
        ...


@runtime_checkable
class FloatSafe(Protocol):
    """A source that adds noise itself, in exact arithmetic, so that last bits tell nothing (`privacy.secure`)."""

    def perturb(self, kind: Kind, values: Array, scale: float) -> Array:
        """`values` with noise of this kind and scale."""
        ...


@runtime_checkable
class Labelled(Protocol):
    """A source that says how it draws."""

    label: str


def label_of(source: Source, kinds: Iterable[str] = ()) -> str:
    """How noise of these kinds is drawn, for guarantees: "simulation" unless the source says otherwise.

    Gamma noise (pure trees) has secure randomness at best, but sums in floating point.

    >>> label_of(np.random.default_rng(0))
    'simulation'
    """
    if "gamma" in kinds:
        return "floating-point"
    return source.label if isinstance(source, Labelled) else "simulation"


def draw_symmetric(source: Source, size: Size) -> Array:
    """A symmetric Gaussian matrix (N + Nᵀ)/√2: variance 1 off the diagonal, 2 on it.

    *Guarantee.* Let M be symmetric, and let the difference of two neighbours be D. What is released is the upper
    triangle of M + s·noise: independent Gaussians of variance s² off the diagonal and 2s² on it. The privacy of a
    Gaussian mechanism depends only on the Mahalanobis length of D,

        Σ_{i<j} D_ij²/s² + Σ_i D_ii²/(2s²) = ‖D‖_F² / (2s²),

    so this is exactly a Gaussian mechanism of sensitivity ‖D‖_F/√2 and standard deviation s: an off-diagonal entry
    counts twice in the Frobenius norm, hence has half of the diagonal's variance. For D = aaᵀ − bbᵀ with
    ‖a‖, ‖b‖ ≤ R the Frobenius sensitivity is √2 R² (`gram_sensitivity`), so s = R² · `gaussian_multiplier`: the
    symmetrisation absorbs the √2.
    """
    N = source.standard_normal(size)
    return np.asarray((N + np.swapaxes(N, -1, -2)) / math.sqrt(2))


def draw_vector(source: Source, size: Size) -> Array:
    """Independent standard normals."""
    return source.standard_normal(size)


def draw_gamma(source: Source, size: Size) -> Array:
    """Vectors in R^d (along the last axis) with density ∝ exp(−‖z‖₂): norm Gamma(d, 1), direction uniform.

    *Guarantee.* Scaled by s it is pure ‖D‖₂/s-DP for any difference D, by the triangle inequality.

    The sum of r such vectors is distributed as √(2W) g with W ~ Gamma(r(d+1)/2, 1) and g standard normal, since both
    have the characteristic function (1 + ‖ω‖²)^(−r(d+1)/2); so a coordinate has variance r(d+1).
    """
    d = size[-1]
    direction = source.standard_normal(size)
    direction = direction / np.linalg.norm(direction, axis=-1, keepdims=True)
    return np.asarray(direction * source.standard_gamma(float(d), (*size[:-1], 1)))


def draw_laplace(source: Source, size: Size) -> Array:
    """Independent Laplace(1). Scaled by s it is pure ‖D‖₁/s-DP: for vectors the ℓ2 norm of D is *not* enough."""
    return source.laplace(0.0, 1.0, size)


DRAW: dict[Kind, Callable[[Source, Size], Array]] = {
    "symmetric": draw_symmetric,
    "vector": draw_vector,
    "gamma": draw_gamma,
    "laplace": draw_laplace,
}
ENERGY: dict[Kind, Callable[[Array], Array]] = {
    "symmetric": lambda z: (z * z).sum(axis=(-1, -2)) / 4,
    "vector": lambda z: (z * z).sum(axis=-1) / 2,
    "gamma": lambda z: np.linalg.norm(z, axis=-1),
    "laplace": lambda z: np.abs(z).sum(axis=-1),
}
UNIT: dict[Kind, float] = {"symmetric": math.sqrt(2), "vector": 1.0, "gamma": 1.0, "laplace": 1.0}


def perturb(source: Source, kind: Kind, values: Array, scale: float) -> Array:
    """`values` with noise of this kind and scale."""
    if isinstance(source, FloatSafe):
        return source.perturb(kind, values, scale)
    return np.asarray(values + scale * DRAW[kind](source, values.shape))


def entry_variance(kind: Kind, dim: int) -> float:
    """Variance of a coordinate (for matrices: off the diagonal) at scale 1."""
    return {"symmetric": 1.0, "vector": 1.0, "gamma": dim + 1.0, "laplace": 2.0}[kind]


def gram_sensitivity(context_bound: float, reward_bound: float, reward_weight: float = 1.0) -> float:
    """Frobenius sensitivity √2 (L² + κ²B²) of Σ [x; κy][x; κy]ᵀ with ‖x‖ ≤ L, |y| ≤ B, when one record is replaced.

    With a = [x; κy] and R² = L² + κ²B² ≥ ‖a‖²: ‖aaᵀ − bbᵀ‖_F² = ‖a‖⁴ + ‖b‖⁴ − 2(aᵀb)² ≤ 2R⁴. It is attained by
    orthogonal a and b of norm R, which exist for κB ≤ L and d ≥ 2: y = y' = B and xᵀx' = −κ²B². The corner y² is
    the same for both, so releasing V and b alone is no less sensitive.

    >>> round(gram_sensitivity(1.0, 1.0), 4)
    2.8284
    """
    check_bounds(context_bound, reward_bound)
    require(reward_weight > 0 and math.isfinite(reward_weight), "reward_weight", reward_weight, "a finite number > 0")
    return math.sqrt(2) * (context_bound**2 + (reward_weight * reward_bound) ** 2)


def gram_neighbours(context_bound: float, reward_bound: float, reward_weight: float, dim: int) -> tuple[Array, Array]:
    """Two records [x; κy][x; κy]ᵀ that differ by `gram_sensitivity`: the worst case, to attack with."""
    cosine = -((reward_weight * reward_bound / context_bound) ** 2)
    require(dim >= 2, "dim", dim, "≥ 2, where the worst case exists")
    require(cosine >= -1 - 1e-12, "reward_weight", reward_weight, f"at most {context_bound / reward_bound:g}")
    cosine = max(cosine, -1.0)
    a, b = np.zeros((2, dim + 1))
    a[0] = context_bound
    b[0], b[1] = context_bound * cosine, context_bound * math.sqrt(1 - cosine**2)
    a[-1] = b[-1] = reward_weight * reward_bound
    return np.outer(a, a), np.outer(b, b)


def reward_sensitivity(context_bound: float, reward_range: float = 1.0) -> float:
    """ℓ2 sensitivity L · (y_max − y_min) of Σ x y when one *reward* is replaced and contexts are public."""
    check_bounds(context_bound, reward_range)
    return context_bound * reward_range


def check_bounds(context_bound: float, reward_bound: float) -> None:
    """Refuse bounds that bound nothing."""
    for name, value in (("context_bound", context_bound), ("reward_bound", reward_bound)):
        require(value > 0 and math.isfinite(value), name, value, "a finite number > 0")
