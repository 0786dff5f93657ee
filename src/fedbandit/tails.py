"""Tails and quantiles of χ², Student's t (whole degrees of freedom) and gamma: so that no SciPy is needed."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from fedbandit.types import Array

_FAR = 9.0
"""A standard normal is farther out than this with probability 2·10⁻¹⁹."""


def chi_square_tail(x: float, df: int, noncentrality: float = 0.0) -> float:
    """P(χ² > x) of the χ² distribution with df ≥ 1 degrees of freedom and non-centrality ψ.

    Without ψ a finite sum (Abramowitz & Stegun 1964, 26.4.4 and 26.4.5). With it χ² = (Z + √ψ)² + χ²_{df−1} is
    integrated over Z; in the angle φ with Z + √ψ = √x sin φ the integrand is smooth, so that Gauss's rule is exact.

    >>> round(chi_square_tail(3.841459, 1), 6), round(chi_square_tail(10.0, 4, 2.5), 6)
    (0.05, 0.181749)
    """
    if x <= 0:
        return 1.0
    if noncentrality == 0:
        return float(_central_tail(np.array([x]), df)[0])
    root, shift = math.sqrt(x), math.sqrt(noncentrality)
    beyond = (math.erfc((root - shift) / math.sqrt(2)) + math.erfc((root + shift) / math.sqrt(2))) / 2
    low, high = (math.asin(min(max((end + shift) / root, -1.0), 1.0)) for end in (-_FAR, _FAR))
    if df == 1 or low == high:
        return beyond
    nodes, weights = _gauss()
    angle = (high + low) / 2 + (high - low) / 2 * nodes
    density = np.exp(-((root * np.sin(angle) - shift) ** 2) / 2) / math.sqrt(2 * math.pi)
    rest = _central_tail(x * np.cos(angle) ** 2, df - 1)
    return beyond + (high - low) / 2 * float(weights @ (density * rest * root * np.cos(angle)))


def _central_tail(x: Array, df: int) -> Array:
    """P(χ²_df > x) = Σ_s e^-y yˢ/Γ(s + 1), y = x/2: s = 0, 1, … < df/2; or erfc √y and s = ½, 1½, … < df/2."""
    y = x / 2
    odd = df % 2
    tail = np.array([math.erfc(math.sqrt(value)) for value in y.tolist()]) if odd else np.zeros_like(y)
    logs = np.log(np.maximum(y, 1e-300))
    for j in range(df // 2):
        s = j + odd / 2
        tail += np.exp(s * logs - y - math.lgamma(s + 1))
    return tail


@cache
def _gauss() -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(150)


def chi_square_quantile(tail: float, df: int, noncentrality: float = 0.0) -> float:
    """The x that χ² exceeds with probability `tail`.

    >>> round(chi_square_quantile(0.05, 25), 6)
    37.652484
    """
    deviation = math.sqrt(2 * df + 4 * noncentrality)
    return _quantile(lambda x: chi_square_tail(x, df, noncentrality), tail, df + noncentrality, deviation)


def students_quantile(tail: float, df: int) -> float:
    """The t that Student's t with df ≥ 1 degrees of freedom exceeds with probability `tail` ≤ ½.

    >>> round(students_quantile(0.05, 9), 6)
    1.833113
    """
    return _quantile(lambda t: _students_tail(t, df), tail, 1.0, 1.0)


def _students_tail(t: float, df: int) -> float:
    """P(T > t) for t ≥ 0 (Abramowitz & Stegun 1964, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(df))
    odd = df % 2
    total, term = 0.0, math.cos(angle) if odd else 1.0
    for k in range(df // 2):
        total += term
        term *= math.cos(angle) ** 2 * (2 * k + 1 + odd) / (2 * k + 2 + odd)
    within = math.sin(angle) * total
    return (1 - (2 / math.pi * (angle + within) if odd else within)) / 2


def gamma_quantile(probability: float, shape: float) -> float:
    """The x that a gamma variable of this shape and scale one is below with this probability; bisection.

    >>> round(gamma_quantile(0.975, 1.0), 4), round(gamma_quantile(0.025, 2.5), 6)
    (3.6889, 0.415606)
    """
    low, high = 0.0, 2 * shape + 20.0
    while _gamma_below(high, shape) < probability:
        high *= 2
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _gamma_below(middle, shape) > probability else (middle, high)
    return high


def _gamma_below(x: float, shape: float) -> float:
    """P(X ≤ x) = e^-x x^a Σ xᵏ/(a (a+1) … (a+k)) Γ(a)⁻¹ (Abramowitz & Stegun 1964, 6.5.29)."""
    if x <= 0:
        return 0.0
    if x > shape + 40 * math.sqrt(shape + 1) + 40:
        return 1.0
    term = total = 1.0 / shape
    k = shape
    while term > 1e-17 * total:
        k += 1
        term *= x / k
        total += term
    return min(total * math.exp(shape * math.log(x) - x - math.lgamma(shape)), 1.0)


def _quantile(tail_of: Callable[[float], float], tail: float, middle: float, spread: float) -> float:
    """The x ≥ 0 with this tail, by the Illinois rule on its logarithm: false position that never keeps an end twice."""
    low, high, step = middle, middle + spread, spread
    while low > 0 and tail_of(low) < tail:
        low, high, step = max(low - step, 0.0), low, 2 * step
    while tail_of(high) > tail:
        low, high, step = high, high + step, 2 * step
    above, below = (math.log(max(tail_of(x), 1e-300) / tail) for x in (low, high))
    x, value = high, below
    while abs(value) > 1e-12 and high - low > 1e-15 * high:
        before, x = value, (low * below - high * above) / (below - above)
        value = math.log(max(tail_of(x), 1e-300) / tail)
        again = (value > 0) == (before > 0)
        if value > 0:
            low, above, below = x, value, below / 2 if again else below
        else:
            high, below, above = x, value, above / 2 if again else above
    return x
