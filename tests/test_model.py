"""The ridge model against sums of what it saw: V, b, inverse, θ̂ and logdet are exact, whatever happens when."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbandit.errors import FedbanditError
from fedbandit.model import REFRESH_EVERY, RidgeModel
from fedbandit.solving import solve
from fedbandit.sums import EXACT, LARGE, Slack, Sums, add, added, zero_sums

RIDGE = 0.5


def exact(model: RidgeModel, V: np.ndarray, b: np.ndarray, offset: float = 0.0) -> None:
    """The model is the ridge regression of (V, b)."""
    A = V + RIDGE * np.eye(len(b))
    np.testing.assert_allclose(model.inverse, np.linalg.inv(A), atol=1e-9)
    np.testing.assert_allclose(model.theta, np.linalg.solve(A, b), atol=1e-9)
    assert model.logdet == pytest.approx(np.linalg.slogdet(A / RIDGE)[1] + offset, abs=1e-9)
    np.testing.assert_allclose(model.V, V, atol=1e-9)
    np.testing.assert_allclose(model.b, b, atol=1e-9)


@given(
    seed=st.integers(0, 2**32 - 1),
    steps=st.lists(st.sampled_from(["observe", "send", "adopt", "store"]), min_size=1, max_size=40),
    dim=st.integers(1, 9),
)
@settings(deadline=None)
def test_whatever_happens_it_is_the_regression_of_what_it_has(seed: int, steps: list[str], dim: int) -> None:
    rng = np.random.default_rng(seed)
    model = RidgeModel(dim, RIDGE)
    shared, pending, offset = (
        Sums(np.zeros((dim, dim)), np.zeros(dim), 0),
        Sums(np.zeros((dim, dim)), np.zeros(dim), 0),
        0.0,
    )
    for step in steps:
        if step == "observe":
            x, y = rng.standard_normal(dim), float(rng.standard_normal())
            model.observe(x, y)
            pending = Sums(pending.V + np.outer(x, x), pending.b + y * x, pending.n + 1)
        elif step == "send":
            np.testing.assert_allclose(model.pending().V, pending.V, atol=1e-9)
            assert model.pending().n == pending.n
            model.mark_sent()
            shared = Sums(shared.V + pending.V, shared.b + pending.b, shared.n + pending.n)
            pending = zero_sums(dim)
            assert model.shared_logdet == model.logdet
        elif step == "adopt":
            X = rng.standard_normal((3, dim))
            shared, offset = Sums(X.T @ X, X.T @ rng.standard_normal(3), 3), float(rng.random())
            model.adopt(shared, Slack(offset=offset, headstart=0.1), version=7)
            base = np.linalg.slogdet(shared.V / RIDGE + np.eye(dim))[1]
            assert model.shared_logdet == pytest.approx(base + offset - 0.1, abs=1e-9)
        else:
            again = RidgeModel(dim, RIDGE)
            again.load(*model.dump())
            model = again
        exact(model, shared.V + pending.V, shared.b + pending.b, offset)
        assert (model.n, model.n_pending) == (shared.n + pending.n, pending.n)


def test_an_inverse_is_computed_afresh_now_and_then() -> None:
    rng = np.random.default_rng(0)
    model, V = RidgeModel(3, RIDGE), np.zeros((3, 3))
    for _ in range(REFRESH_EVERY + 5):
        x = rng.standard_normal(3)
        model.observe(x, 0.0)
        V += np.outer(x, x)
    exact(model, V, np.zeros(3))


def test_a_model_that_waits_for_releases_learns_from_them_alone() -> None:
    model = RidgeModel(2, RIDGE, fresh=False)
    model.observe(np.array([1.0, 0.0]), 1.0)
    assert (model.n, model.n_own, model.n_pending) == (0, 1, 1)
    np.testing.assert_array_equal(model.theta, np.zeros(2))
    model.mark_sent()
    noisy = Sums(np.diag([1.5, 0.2]), np.array([0.7, 0.1]), 1)
    model.observe(np.array([0.0, 1.0]), 1.0)
    model.adopt(noisy, EXACT, 1)
    exact(model, noisy.V, noisy.b)
    assert model.pending().n == 1


def test_members_that_are_sent_the_same_share_one_inverse() -> None:
    sums = Sums(np.eye(3), np.ones(3), 3)
    assert solve(sums, RIDGE) is solve(sums, RIDGE)
    assert solve(sums, RIDGE) is not solve(sums, 2 * RIDGE)
    assert solve(Sums(np.eye(3), np.ones(3), 3), RIDGE) is not solve(sums, RIDGE)


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 6), min_size=1, max_size=8), st.booleans())
@settings(deadline=None, max_examples=25)
def test_large_sums_that_grow_by_little_are_solved_exactly(seed: int, steps: list[int], noisy: bool) -> None:
    rng = np.random.default_rng(seed)
    d = LARGE
    sums = Sums(np.zeros((d, d)), np.zeros(d), 0)
    for n in (80, *steps):
        X = rng.standard_normal((n, d)) / 8
        sums = add(sums, Sums(X.T @ X, X.sum(axis=0), n))
        if noisy:  # of full rank: no few observations have added that
            sums = add(sums, Sums(np.diag(rng.uniform(0, 0.1, d)), np.zeros(d), 0))
        found, A = solve(sums, RIDGE), sums.V + RIDGE * np.eye(d)
        np.testing.assert_allclose(found.inverse, np.linalg.inv(A), atol=1e-11)
        np.testing.assert_allclose(found.theta, np.linalg.solve(A, sums.b), atol=1e-9)
        assert found.logdet == pytest.approx(np.linalg.slogdet(A / RIDGE)[1], abs=1e-9)
    assert max(steps) > d // 16 or found.updates == (0 if noisy else sum(steps))


@given(st.integers(0, 2**32 - 1), st.integers(0, 5))
def test_what_was_added_is_found_if_it_is_little(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((9, 12)), rng.standard_normal((n, 12))
    V, W = X.T @ X, X.T @ X + Y.T @ Y
    found = added(W, V, n)
    assert found is not None
    np.testing.assert_allclose(found.T @ found, Y.T @ Y, atol=1e-9)
    assert added(W, V, n - 1) is None if n else added(V, W + np.eye(12), 3) is None
    symmetric = rng.standard_normal((12, 12))
    assert added(V + symmetric + symmetric.T, V, 4) is None, "that is no sum of four observations"


def test_a_matrix_that_no_observations_can_have_is_refused() -> None:
    with pytest.raises(FedbanditError, match="not positive definite"):
        RidgeModel(2, RIDGE).adopt(Sums(np.diag([1.0, -2.0]), np.zeros(2), 2))
