"""How much noise is enough: the exact trade-off of the Gaussian mechanism, both ways."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fedbandit.errors import needs, number, require


def special_functions() -> Any:
    """scipy.special: the tails and quantiles that noise is calibrated with."""
    return needs("scipy.special", "private", "Differential privacy")


LARGEST_EPSILON = 1e9
"""Far above it, analytic calibration loses its digits: at 10³⁰ it has a seventh of the noise that it should have."""


def check_budget(epsilon: float, delta: float) -> None:
    """Refuse budgets that mean nothing."""
    check_epsilon(epsilon)
    require(0 < number(delta, "delta", "between 0 and 1") < 1, "delta", delta, "between 0 and 1")


def check_epsilon(epsilon: float, infinite: str = "no noise") -> None:
    """Refuse an ε that means nothing; text is no number."""
    expected = f"a number > 0 (inf for {infinite})"
    value = number(epsilon, "epsilon", expected, finite=False)
    require(value > 0, "epsilon", epsilon, expected)
    most = f"at most {LARGEST_EPSILON:g}, or inf for {infinite}"
    require(value <= LARGEST_EPSILON or math.isinf(value), "epsilon", epsilon, most)


def gaussian_delta(distance: float, epsilon: float) -> float:
    """The smallest δ at which two normals of unit variance, `distance` apart, are (ε, δ)-indistinguishable.

        δ = Φ(D/2 − ε/D) − e^ε Φ(−D/2 − ε/D)                                    (Balle & Wang 2018, Thm 8)

    >>> round(gaussian_delta(1.0, 1.0), 4)
    0.1269
    """
    if distance == 0:
        return 0.0
    log_ndtr = special_functions().log_ndtr
    above = float(log_ndtr(distance / 2 - epsilon / distance))
    below = epsilon + float(log_ndtr(-distance / 2 - epsilon / distance))
    return -math.exp(above) * math.expm1(below - above) if below < above else 0.0


def gaussian_epsilon(distance: float, delta: float) -> float:
    """The smallest ε that a Gaussian mechanism of this sensitivity-to-noise ratio gives at δ.

    >>> round(gaussian_epsilon(1 / gaussian_multiplier(1.0, 1e-5), 1e-5), 6)
    1.0
    """
    require(0 < delta < 1, "delta", delta, "between 0 and 1")
    if not math.isfinite(distance):
        return math.inf
    return smallest(lambda epsilon: gaussian_delta(distance, epsilon) <= delta)


@cache
def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """The smallest σ/Δ with which a Gaussian mechanism is (ε, δ)-DP, by dp-accounting; 0 for ε = ∞.

    >>> round(gaussian_multiplier(1.0, 1e-5), 3)
    3.731
    """
    check_budget(epsilon, delta)
    if math.isinf(epsilon):
        return 0.0
    accounting = needs("dp_accounting", "private", "Differential privacy")  # here: it imports a good second of SciPy
    with np.errstate(divide="ignore"):  # it takes log(0) for −∞
        sigma = float(accounting.get_sigma_gaussian(epsilon, delta))
    return sigma * (1 + 1e-9)  # its root is accurate to 1e-12, on either side


def smallest(holds: Callable[[float], bool], start: float = 1.0) -> float:
    """The smallest x ≥ 0 from which on a condition holds, by bisection: to 1e-12, and never too small."""
    if holds(0.0):
        return 0.0
    low, high = 0.0, start
    while not holds(high):
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
