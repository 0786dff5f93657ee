"""The compiled kernels of drawing equal the plain ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedbandit as fb
from fedbandit.engine.fast.draws import COMPILED
from fedbandit.environments import Environment
from fedbandit.environments.kernels import PLAIN, using

E = fb.environments
ENVIRONMENTS: dict[str, Environment] = {
    "fresh": E.homogeneous(n_clients=5, dim=3, n_arms=4),
    "pool": E.homogeneous(n_clients=5, dim=3, n_arms=4, pool=30, rewards="bernoulli"),
    "large pool": E.global_local(n_clients=3000, dim=3, n_arms=4, pool=1500),
    "drift": E.clustered(n_clients=6, dim=5, n_arms=4, n_clusters=2, drift=(3, 9)),
    "collaborative": E.collaborative(n_clients=6, dim=5, n_arms=4),
    "fclub": E.fclub(),
    "feducb": E.feducb(n_clients=3, dim=4),
}


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 9), st.integers(0, 10**6))
def test_shuffles(k: int, more: int, n: int, seed: int) -> None:
    """Number for number."""
    size = k + more - 1
    below = np.random.default_rng(seed).integers(0, size - np.arange(k), size=(n, k))
    np.testing.assert_array_equal(COMPILED.shuffle_partially(below, size), PLAIN.shuffle_partially(below, size))


@given(st.integers(1, 9), st.integers(2, 30), st.integers(0, 10**6))
def test_rows(n: int, d: int, seed: int) -> None:
    """Up to rounding."""
    rng = np.random.default_rng(seed)
    X, theta, means = rng.standard_normal((n, d)), rng.standard_normal(d), rng.uniform(0, 0.9, n)
    theta /= np.linalg.norm(theta)
    scaled, turned = (X.copy(), X.copy()), (X.copy(), X.copy())
    for kernels, left, right in zip((PLAIN, COMPILED), scaled, turned, strict=True):
        kernels.scale_rows(left, means)
        kernels.turn_rows(right, means, theta)
    np.testing.assert_allclose(*scaled, rtol=1e-12)
    np.testing.assert_allclose(*turned, rtol=0, atol=1e-9)  # x nearly parallel to θ loses digits in both
    arms, parameters = rng.integers(0, n, (3, 4)), rng.standard_normal((3, d))
    expected = PLAIN.expected_rewards(X, arms, parameters)
    np.testing.assert_allclose(COMPILED.expected_rewards(X, arms, parameters), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_environments(name: str) -> None:
    """Whole blocks, of every kind of synthetic environment."""
    env = ENVIRONMENTS[name]
    plain = env.open(2).block(0, 50)
    with using(COMPILED):
        compiled = env.open(2).block(0, 50)
    for field in plain._fields:
        one, other = getattr(plain, field), getattr(compiled, field)
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12, err_msg=field)
