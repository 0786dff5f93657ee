"""The Gaussian trade-off: our formula, dp-accounting's, and numerical integration."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit.errors import FedbanditError
from fedbandit.privacy.calibration import gaussian_delta, gaussian_epsilon, gaussian_multiplier, smallest

epsilons = st.floats(0.01, 30.0)
deltas = st.floats(-9.0, -0.5).map(lambda power: 10.0**power)


@pytest.mark.parametrize("distance", [0.05, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 5.0])
def test_delta_is_the_area_between_the_densities(distance: float, epsilon: float) -> None:
    """δ = ∫ max(0, p − e^ε q)."""
    x = np.linspace(-12, 16, 400_001)
    p, q = (np.exp(-((x - mean) ** 2) / 2) / math.sqrt(2 * math.pi) for mean in (distance, 0.0))
    area = float(np.maximum(0, p - math.exp(epsilon) * q).sum() * (x[1] - x[0]))
    assert gaussian_delta(distance, epsilon) == pytest.approx(area, rel=1e-4, abs=1e-12)


@given(epsilons, deltas)
def test_the_multiplier_is_enough_and_not_more(epsilon: float, delta: float) -> None:
    """dp-accounting's σ meets δ by our formula, and a thousandth less does not."""
    multiplier = gaussian_multiplier(epsilon, delta)
    assert gaussian_delta(1 / multiplier, epsilon) <= delta
    assert gaussian_delta(1 / (0.999 * multiplier), epsilon) > delta
    assert gaussian_epsilon(1 / multiplier, delta) == pytest.approx(epsilon, rel=1e-6)


@given(st.floats(0.01, 10.0), deltas)
def test_epsilon_agrees_with_dp_accounting(distance: float, delta: float) -> None:
    """And is 0 where δ alone covers the difference."""
    with np.errstate(divide="ignore"):
        theirs = dp_accounting.get_epsilon_gaussian(1 / distance, delta)
    assert gaussian_epsilon(distance, delta) == pytest.approx(theirs, rel=1e-6, abs=1e-9)


def test_limits() -> None:
    """No noise, no difference."""
    assert gaussian_multiplier(math.inf, 1e-5) == 0.0
    assert gaussian_epsilon(math.inf, 1e-5) == math.inf
    assert gaussian_epsilon(0.0, 1e-5) == 0.0
    assert gaussian_delta(0.0, 1.0) == 0.0


def test_smallest_never_falls_short() -> None:
    """The end of the bisection at which the condition holds."""
    for limit in (0.0, 1e-9, 0.3, 1.0, 12345.6):
        found = smallest(lambda x, limit=limit: x >= limit)  # type: ignore[misc]
        assert limit <= found <= limit * (1 + 1e-11)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-5), (-1.0, 1e-5), (math.nan, 1e-5), (1.0, 0.0), (1.0, 1.0)])
def test_bad_budgets(epsilon: float, delta: float) -> None:
    """One sentence that names the value."""
    with pytest.raises(FedbanditError, match=r"(epsilon|delta) is .*, but must be"):
        gaussian_multiplier(epsilon, delta)
