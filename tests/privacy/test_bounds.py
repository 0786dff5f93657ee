"""Shifts and widths: they hold as often as they say, and would not if they were smaller."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedbandit.audit.likelihood import run_stream
from fedbandit.errors import FedbanditError
from fedbandit.privacy.bounds import (
    NoiseBounds,
    gamma_norm_tail,
    largest_eigenvalue_tail,
    noise_bounds,
    psd_shift,
    published_bounds,
    reward_noise_bound,
)
from fedbandit.privacy.mechanism import Mechanism, gram_mechanism, reward_mechanism
from fedbandit.privacy.noise import draw_gamma, draw_symmetric
from fedbandit.privacy.published import feducb_privatiser
from fedbandit.types import Array

N_MAX, DIM, FAILURE, STREAMS = 16, 4, 0.05, 8_000


def gram_noise(mechanism: Mechanism, streams: int, seed: int) -> tuple[Array, Array]:
    """The noise on V and on b: releases × streams × …"""
    zeros = np.zeros((mechanism.n_max, *mechanism.shape))
    noise = run_stream(mechanism, zeros, streams, np.random.default_rng(seed))
    return noise[..., :-1, :-1], noise[..., :-1, -1] / mechanism.reward_weight


@pytest.mark.parametrize("dim", [1, 2, 3, 6, 11])
def test_the_eigenvalue_tail_is_right_and_nearly_exact(dim: int) -> None:
    """Against sampled matrices: never below the true probability (to sampling error), at most 15 % above."""
    samples = 40_000
    largest = np.linalg.eigvalsh(draw_symmetric(np.random.default_rng(dim), (samples, dim, dim)))[:, -1]
    for probability in (0.1, 0.01):
        x = np.quantile(largest, 1 - probability)
        error = 4 * math.sqrt(probability / samples)
        bound = float(largest_eigenvalue_tail(np.array(x), dim))
        assert probability - error <= bound <= 1.15 * probability + error


@pytest.mark.parametrize("dim", [1, 2, 7, 64, 255, 256])
def test_half_of_the_eigenvalues_are_positive(dim: int) -> None:
    """The density of states has mass d and is symmetric: a wrong term would show."""
    assert float(largest_eigenvalue_tail(np.array(0.0), dim)) == pytest.approx(dim / 2, rel=1e-6)


def test_large_dimensions_have_a_coarser_bound() -> None:
    """Where the table ends the bound by concentration takes over: larger, by an eighth in x."""
    for x in (33.0, 34.0, 35.0):
        assert float(largest_eigenvalue_tail(np.array(x), 256)) < float(largest_eigenvalue_tail(np.array(x), 257))
    exact = float(largest_eigenvalue_tail(np.array(33.5), 256))
    assert float(largest_eigenvalue_tail(np.array(1.125 * 33.5), 257)) < exact


@pytest.mark.parametrize("kind", ["blt", "tree"])
def test_the_shift_holds_at_all_releases_and_is_tight(kind: str) -> None:
    """Noise + ρI is positive semi-definite throughout a stream, except for FAILURE of them; with 0.8 ρ it is not."""
    mechanism = gram_mechanism(1.0, 1e-5, N_MAX, DIM, kind=kind)  # type: ignore[arg-type]
    lowest = np.linalg.eigvalsh(gram_noise(mechanism, STREAMS, seed=0)[0])[..., 0].min(axis=0)
    shift = psd_shift(mechanism, failure=FAILURE)
    assert FAILURE / 3 < np.mean(lowest < -shift) <= FAILURE
    assert np.mean(lowest < -0.8 * shift) > 2 * FAILURE


def test_the_three_bounds_hold_together() -> None:
    """ρ_min ≤ λ_min(H), λ_max(H) ≤ ρ_max and ‖h‖_{H⁻¹} ≤ κ at every release, and none of them is idle."""
    mechanism = gram_mechanism(1.0, 1e-5, N_MAX, DIM)
    bounds = noise_bounds(mechanism, failure=FAILURE)
    N, h = gram_noise(mechanism, STREAMS, seed=1)
    H = N + bounds.shift * np.eye(DIM)
    spectrum = np.linalg.eigvalsh(H)
    length = np.sqrt((h * np.linalg.solve(H, h[..., None])[..., 0]).sum(axis=-1))
    outside = (spectrum[..., 0] < bounds.rho_min) | (spectrum[..., -1] > bounds.rho_max) | (length > bounds.kappa)
    assert np.mean(outside.any(axis=0)) <= FAILURE
    assert np.mean((np.linalg.norm(h, axis=-1) > bounds.reward_noise).any(axis=0)) > FAILURE / 8
    assert np.mean((np.abs(np.linalg.eigvalsh(N)).max(axis=-1) > bounds.gram_noise).any(axis=0)) > FAILURE / 8


def test_the_shift_makes_the_width_smallest() -> None:
    """S √ρ_max + κ, among all shifts with the same noise."""
    for theta_bound in (0.3, 1.0, 5.0):
        bounds = noise_bounds(gram_mechanism(1.0, 1e-5, N_MAX, DIM), theta_bound=theta_bound)

        def width(rho_min: float, theta_bound: float = theta_bound, bounds: NoiseBounds = bounds) -> float:
            return theta_bound * math.sqrt(rho_min + 2 * bounds.gram_noise) + bounds.reward_noise / math.sqrt(rho_min)

        assert width(bounds.rho_min) == pytest.approx(theta_bound * math.sqrt(bounds.rho_max) + bounds.kappa)
        assert all(width(bounds.rho_min) <= width(factor * bounds.rho_min) for factor in (0.5, 0.9, 1.1, 2.0))


def test_clients_noise_adds_up_in_variance() -> None:
    """100 clients need ten times one client's shift, not a hundred times; looking more often costs little."""
    mechanism = gram_mechanism(1.0, 1e-5, 128, 10)
    one, many = noise_bounds(mechanism), noise_bounds(mechanism, streams=100)
    assert many.gram_noise == pytest.approx(10 * one.gram_noise)
    assert many.reward_noise == pytest.approx(10 * one.reward_noise)
    apart = noise_bounds(mechanism, streams=100, simultaneous=False)
    assert many.gram_noise < apart.gram_noise < 1.3 * many.gram_noise


def test_published_shift_holds_many_times_over_and_published_kappa_does_not() -> None:
    """FedUCB's Λ against its own noise, at d = 10; its κ there, and at d = 100, where it fails as a rule."""
    published = published_bounds(1.0, 1e-5, 128, 10)
    needed = psd_shift(feducb_privatiser(1.0, 1e-5, 128, 10))
    assert 10 < published.shift / needed < 20
    assert published.shift / psd_shift(gram_mechanism(1.0, 1e-5, 128, 10)) > 60
    assert published.rho_max == 3 * published.rho_min
    for dim, too_small in ((10, False), (100, True)):
        mechanism = feducb_privatiser(1.0, 1e-5, 128, dim)
        bounds = published_bounds(1.0, 1e-5, 128, dim)
        noise = draw_symmetric(np.random.default_rng(0), (20, dim + 1, dim + 1))
        noise *= mechanism.scale * math.sqrt(7)  # release 127 is the sum of seven nodes
        H, h = noise[:, :-1, :-1] + bounds.shift * np.eye(dim), noise[:, :-1, -1]
        length = np.sqrt((h * np.linalg.solve(H, h[..., None])[..., 0]).sum(axis=-1))
        assert np.mean(length > bounds.kappa) == pytest.approx(1.0 if too_small else 0.0, abs=0.2)


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("dim", [1, 5])
def test_the_norm_of_gamma_sums(copies: int, dim: int) -> None:
    """√(2W) g has the tail of sums of gamma noise."""
    samples = 100_000
    norms = np.linalg.norm(draw_gamma(np.random.default_rng(0), (copies, samples, dim)).sum(axis=0), axis=1)
    for probability in (0.5, 0.1, 0.01):
        tail = gamma_norm_tail(float(np.quantile(norms, 1 - probability)), copies, dim)
        assert tail == pytest.approx(probability, abs=4 * math.sqrt(probability / samples))


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_reward_noise_stays_below_its_bound(delta: float) -> None:
    """Gaussian and gamma trees, with three clients' streams added."""
    mechanism = reward_mechanism(1.0, delta, N_MAX, DIM, kind="tree")
    bound = reward_noise_bound(mechanism, streams=3, failure=FAILURE)
    zeros = np.zeros((N_MAX, DIM))
    noise = (
        run_stream(mechanism, zeros, 3 * STREAMS, np.random.default_rng(4)).reshape(N_MAX, 3, STREAMS, DIM).sum(axis=1)
    )
    largest = np.linalg.norm(noise, axis=-1).max(axis=0)
    assert FAILURE / 3 < np.mean(largest > bound) <= FAILURE
    assert np.mean(largest > 0.8 * bound) > 2 * FAILURE
    assert bound < reward_noise_bound(mechanism, streams=3, simultaneous=False, failure=FAILURE)


def test_rare_failures_are_bounded_too() -> None:
    """Far beyond the table, with a hundred thousand releases of a thousand clients."""
    mechanism = gram_mechanism(1.0, 1e-5, 10**5, DIM)
    usual = noise_bounds(mechanism, streams=1000)
    rare = noise_bounds(mechanism, streams=1000, simultaneous=False, failure=1e-9)
    assert usual.gram_noise < rare.gram_noise < 2 * usual.gram_noise
    tree = reward_mechanism(1.0, 0.0, 10**5, DIM, kind="tree")
    assert reward_noise_bound(tree, failure=1e-9) < 2 * reward_noise_bound(tree)


def test_no_noise_needs_no_shift() -> None:
    """ε = ∞."""
    assert noise_bounds(gram_mechanism(math.inf, 0.1, 8, 2)) == (0.0, 0.0, 0.0)
    assert psd_shift(gram_mechanism(math.inf, 0.1, 8, 2)) == 0.0
    assert reward_noise_bound(reward_mechanism(math.inf, 0.1, 8, 2)) == 0.0
    assert reward_noise_bound(reward_mechanism(math.inf, 0.0, 8, 2, kind="tree")) == 0.0


def test_bad_input() -> None:
    """One sentence each."""
    mechanism = gram_mechanism(1.0, 0.1, 8, 2)
    with pytest.raises(FedbanditError, match="failure is 0"):
        noise_bounds(mechanism, failure=0.0)
    with pytest.raises(FedbanditError, match="streams is 0"):
        psd_shift(mechanism, streams=0)
    with pytest.raises(FedbanditError, match="theta_bound is 0"):
        noise_bounds(mechanism, theta_bound=0.0)
    with pytest.raises(FedbanditError, match="noise is 'vector'"):
        noise_bounds(reward_mechanism(1.0, 0.1, 8, 2))
    with pytest.raises(FedbanditError, match="noise is 'symmetric'"):
        reward_noise_bound(mechanism)
