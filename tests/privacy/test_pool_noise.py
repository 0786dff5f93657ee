"""What a coordinator says about noise holds as often as it says, and repaired matrices are what they claim to be."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fedbandit.privacy.noise import draw_symmetric
from fedbandit.privacy.pool_noise import PoolNoise
from fedbandit.sums import EXACT

DRAWS = 4_000


def pool(dim: int, failure: float, **more: float) -> PoolNoise:
    """Two releases of two clients with different noise."""
    std = (np.array([1.0, 2.0]), np.array([0.5, 3.0]))
    return PoolNoise(std, reward_weight=0.7, looks=1, dim=dim, failure=failure, theta_bound=more.get("theta", 1.0))


@pytest.mark.parametrize("dim", [1, 3, 10])
def test_bounds_hold_as_often_as_stated(dim: int) -> None:
    """‖N‖ ≤ Λ fails with probability α/3, ‖h − Nθ‖ ≤ ν with 2α/3 at most; and Λ is not much too large."""
    failure, s = 0.3, 2.0
    noise = pool(dim, failure)
    spectral, deviation = noise.bounds(s)
    rng = np.random.default_rng(dim)
    N = s * draw_symmetric(rng, (DRAWS, dim, dim))
    h = s / 0.7 * rng.standard_normal((DRAWS, dim))
    theta = rng.standard_normal(dim)
    theta /= np.linalg.norm(theta)
    too_large = int((np.abs(np.linalg.eigvalsh(N)).max(axis=1) > spectral).sum())
    too_far = int((np.linalg.norm(h - N @ theta, axis=1) > deviation).sum())
    assert stats.binomtest(too_large, DRAWS, failure / 3, alternative="greater").pvalue > 1e-4
    assert stats.binomtest(too_far, DRAWS, 2 * failure / 3, alternative="greater").pvalue > 1e-4
    assert too_large > DRAWS * failure / 3 / 4
    low = 0.8 * spectral  # a fifth less would not hold
    assert (np.abs(np.linalg.eigvalsh(N)).max(axis=1) > low).mean() > failure / 3


def test_variances_add_up() -> None:
    """Over clients, each with its own number of releases; clients that have released nothing add nothing."""
    noise = pool(2, 0.1)
    assert noise.variance(0, 0) == 0.0
    assert noise.deviation({0: 2, 1: 1}) == pytest.approx(math.sqrt(4 + 0.25))
    assert noise.slack_of(0.0).noise == 0.0
    assert noise.slack_of(4.0).spectrum == pytest.approx(noise.bounds(2.0)[0])
    V, slack = noise.repair(np.eye(2), {}, 0.1)
    np.testing.assert_array_equal(V, np.eye(2))
    assert slack == EXACT


@pytest.mark.parametrize("size", [0.0, 5.0, 500.0])
def test_a_repaired_matrix_is_safe(size: float) -> None:
    """G + λI ⪯ f² V whenever ‖N‖ ≤ Λ, and V stays within ρ of what came."""
    dim, ridge, noise = 4, 0.1, pool(4, 0.05)
    spectral, _ = noise.bounds(noise.deviation({0: 2, 1: 2}))
    rng = np.random.default_rng(0)
    tried = 0
    for _ in range(200):
        X = math.sqrt(size) * rng.standard_normal((3, dim))
        G = X.T @ X
        N = noise.deviation({0: 2, 1: 2}) * draw_symmetric(rng, (dim, dim))
        if np.abs(np.linalg.eigvalsh(N)).max() > spectral:
            continue
        V, slack = noise.repair(G + N, {0: 2, 1: 2}, ridge)
        np.testing.assert_array_equal(V, V.T)
        f2 = (1 + slack.inflation) ** 2
        gap = f2 * (V + ridge * np.eye(dim)) - G - ridge * np.eye(dim)
        assert np.linalg.eigvalsh(gap)[0] > -1e-8 * max(1.0, size)
        assert slack.offset == pytest.approx(dim * math.log(f2))
        lift = slack.noise - noise.bounds(noise.deviation({0: 2, 1: 2}))[1]
        assert np.linalg.norm(V - G - N, 2) <= lift + 1e-8
        tried += 1
    assert tried > 150
