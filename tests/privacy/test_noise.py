"""Sensitivities that hold and are attained, and noise that has the distribution it claims."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedbandit.errors import FedbanditError
from fedbandit.privacy.noise import (
    DRAW,
    ENERGY,
    draw_gamma,
    draw_symmetric,
    entry_variance,
    gram_neighbours,
    gram_sensitivity,
    reward_sensitivity,
)
from fedbandit.types import Array

seeds = st.integers(0, 2**32 - 1)
bounds = st.floats(0.1, 3.0)
ACCEPT, REJECT = 1e-4, 1e-6  # a dozen tests share the level, so the right noise fails one in a thousand seeds


def record(rng: np.random.Generator, L: float, B: float, kappa: float, dim: int) -> Array:
    """[x; κy][x; κy]ᵀ, more often than not at the limits of what is allowed."""
    x = rng.standard_normal(dim)
    x *= L * rng.choice([1.0, rng.random()]) / np.linalg.norm(x)
    y = B * rng.choice([-1.0, 1.0, 2 * rng.random() - 1])
    a = np.append(x, kappa * y)
    return np.outer(a, a)


@given(seeds, bounds, bounds, st.floats(0.1, 2.0), st.integers(1, 6))
def test_no_replaced_record_exceeds_the_gram_sensitivity(seed: int, L: float, B: float, kappa: float, dim: int) -> None:
    """‖aaᵀ − bbᵀ‖_F ≤ √2 (L² + κ²B²)."""
    rng = np.random.default_rng(seed)
    difference = record(rng, L, B, kappa, dim) - record(rng, L, B, kappa, dim)
    assert np.linalg.norm(difference) <= gram_sensitivity(L, B, kappa) * (1 + 1e-12)


@given(bounds, bounds, st.floats(0.05, 1.0), st.integers(2, 6))
def test_the_gram_sensitivity_is_attained(L: float, B: float, fraction: float, dim: int) -> None:
    """By allowed records, with the corner (which is not released) left out."""
    kappa = fraction * L / B
    a, b = gram_neighbours(L, B, kappa, dim)
    for M in (a, b):
        assert np.trace(M[:-1, :-1]) == pytest.approx(L**2)
        assert M[-1, -1] == pytest.approx((kappa * B) ** 2)
        assert np.linalg.matrix_rank(M) == 1
    difference = a - b
    assert abs(difference[-1, -1]) < 1e-12
    assert np.linalg.norm(difference) == pytest.approx(gram_sensitivity(L, B, kappa))
    assert np.linalg.norm(difference) > 1.4 * (L**2 + (kappa * B) ** 2)  # so the √2 may not be dropped


def test_symmetric_noise_is_isotropic_in_the_frobenius_norm() -> None:
    """The likelihood-ratio argument: Mahalanobis length on the upper triangle = Frobenius norm / √2, for any matrix."""
    dim = 4
    units = np.eye(dim * dim).reshape(dim * dim, dim, dim)

    class Units:
        """N = E_ij in the (i, j)-th draw."""

        def standard_normal(self, size: tuple[int, ...]) -> Array:
            assert size == units.shape
            return units

    upper = np.triu_indices(dim)
    responses = draw_symmetric(Units(), units.shape)  # type: ignore[arg-type]
    np.testing.assert_array_equal(responses, responses.swapaxes(1, 2))
    J = responses[:, *upper]
    covariance = J.T @ J
    np.testing.assert_allclose(covariance, np.diag(np.where(upper[0] == upper[1], 2.0, 1.0)), atol=1e-12)
    rng = np.random.default_rng(0)
    for _ in range(20):
        D = rng.standard_normal((dim, dim))
        D += D.T
        mahalanobis = math.sqrt(D[upper] @ np.linalg.solve(covariance, D[upper]))
        assert mahalanobis == pytest.approx(np.linalg.norm(D) / math.sqrt(2))
    # equal variances on the whole triangle would pay √2 for diagonal differences, or give it away off the diagonal
    swap = np.zeros((dim, dim))
    swap[0, 1] = swap[1, 0] = 1.0
    assert np.linalg.norm(swap[upper]) == pytest.approx(np.linalg.norm(swap) / math.sqrt(2))
    assert np.linalg.norm(np.eye(dim)[upper]) > 1.4 * np.linalg.norm(np.eye(dim)) / math.sqrt(2)


@pytest.mark.parametrize("dim", [1, 2, 5, 25])
def test_gamma_noise_has_its_density(dim: int) -> None:
    """Norm Gamma(d), direction uniform; and ±10 % is told apart."""
    z = draw_gamma(np.random.default_rng(1), (20_000, dim))
    norms = np.linalg.norm(z, axis=1)
    assert stats.kstest(norms, stats.gamma(dim).cdf).pvalue > ACCEPT
    for wrong in (0.9, 1.1):
        assert stats.kstest(norms * wrong, stats.gamma(dim).cdf).pvalue < REJECT
    if dim > 1:
        along = (z[:, 0] / norms + 1) / 2  # of a uniform direction: Beta((d−1)/2, (d−1)/2)
        assert stats.kstest(along, stats.beta((dim - 1) / 2, (dim - 1) / 2).cdf).pvalue > ACCEPT


@given(seeds, st.integers(1, 8))
def test_gamma_noise_is_pure_by_the_l2_norm_and_laplace_noise_is_not(seed: int, dim: int) -> None:
    """The log-density changes by at most ‖D‖₂ (gamma), and by ‖D‖₁ (Laplace), which a dense D makes √d ‖D‖₂."""
    rng = np.random.default_rng(seed)
    z, D = rng.standard_normal((2, dim)) * 3
    assert abs(ENERGY["gamma"](z) - ENERGY["gamma"](z - D)) <= np.linalg.norm(D) * (1 + 1e-12)
    dense = np.full(dim, 1 / math.sqrt(dim))
    assert ENERGY["laplace"](2 * dense) - ENERGY["laplace"](dense) == pytest.approx(math.sqrt(dim))


@pytest.mark.parametrize("kind", ["symmetric", "vector", "gamma", "laplace"])
def test_entries_have_the_stated_variance(kind: str) -> None:
    """Off the diagonal, at scale 1."""
    size = (50_000, 3, 3) if kind == "symmetric" else (50_000, 3)
    z = DRAW[kind](np.random.default_rng(2), size)  # type: ignore[index]
    entry = z[:, 0, 1] if kind == "symmetric" else z[:, 1]
    assert entry.var() == pytest.approx(entry_variance(kind, 3), rel=0.05)  # type: ignore[arg-type]


def test_reward_sensitivity() -> None:
    """‖x‖ |y − y'| ≤ L · range."""
    assert reward_sensitivity(2.0) == 2.0
    assert reward_sensitivity(2.0, reward_range=3.0) == 6.0


def test_bad_input() -> None:
    """One sentence each."""
    with pytest.raises(FedbanditError, match="context_bound is 0"):
        gram_sensitivity(0.0, 1.0)
    with pytest.raises(FedbanditError, match="reward_bound is inf"):
        gram_sensitivity(1.0, math.inf)
    with pytest.raises(FedbanditError, match="reward_weight is -1"):
        gram_sensitivity(1.0, 1.0, -1.0)
    with pytest.raises(FedbanditError, match=r"reward_weight is 2\.0, but must be at most 1"):
        gram_neighbours(1.0, 1.0, 2.0, 2)
    with pytest.raises(FedbanditError, match="dim is 1"):
        gram_neighbours(1.0, 1.0, 1.0, 1)
