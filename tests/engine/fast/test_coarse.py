"""Means in single precision: as near as they claim to be, and of no influence on what is chosen."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedbandit as fb
from fedbandit.engine.fast import coarse
from fedbandit.engine.fast.choose import choose, ready_for, scratch
from fedbandit.engine.fast.coarse import LANES, LARGEST, LINE, coarse_copy, dot_each_coarsely, doubt
from fedbandit.engine.fast.jit import compiled
from fedbandit.engine.fast.packed import multiply_packed
from fedbandit.engine.fast.plan import plan_of
from fedbandit.engine.fast.row import N, empty_rows, inverse_of, start_row, theta_of
from fedbandit.engine.fast.rows import RowsLearner
from fedbandit.engine.fast.statistics import observe, scratch_matrix
from fedbandit.engine.simulation import Simulation
from fedbandit.policies import UCB
from fedbandit.types import Array, Ints
from fedbandit.world import World


@pytest.fixture(autouse=True)
def short_contexts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies do not pay for short ones, but must be as right."""
    monkeypatch.setattr(coarse, "LONG", 1)


DIMS = [1, 3, 4, 7, 8, 15, 16, 17, 25, 33]
MANY = 10**9


@pytest.mark.parametrize("d", DIMS)
def test_a_copy(d: int) -> None:
    """Rounded, each context in whole lines of the cache, zeros after it."""
    X = np.random.default_rng(d).standard_normal((5, d))
    copied = coarse_copy(X, MANY)
    assert copied.of is X
    np.testing.assert_array_equal(copied.X[:, :d], X.astype(np.float32))
    assert not copied.X[:, d:].any()
    assert copied.X.shape[1] % LINE == 0
    assert copied.X.ctypes.data % 64 == 0


def test_no_copy_is_made_where_it_would_not_pay_or_not_hold() -> None:
    X = np.ones((100, 3))
    assert coarse_copy(X, 400).X.shape == (100, LINE)
    assert coarse_copy(X, 399).X.size == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coarse, "LONG", 4)
        assert coarse_copy(X, 400).X.size == 0
    X[50, 1] = 2 * LARGEST
    assert coarse_copy(X, MANY).X.size == 0
    work = scratch(4, 3)
    assert ready_for(work, X, 1).coarse.of is X
    again = ready_for(ready_for(work, X, 1), X, MANY)
    assert again is not work
    assert again.coarse.X.size == 0, "the same contexts are not looked at twice"


@given(st.sampled_from(DIMS), st.integers(1, 9), st.sampled_from([1e-30, 1e-3, 1.0, 1e6]), st.integers(0, 2**20))
def test_means_are_as_near_as_claimed(d: int, n: int, scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = scale * rng.standard_normal((12, d))
    theta = rng.standard_normal(d)
    arms = rng.integers(0, 12, size=n)
    out = np.full(n + -n % 4, np.nan)
    dot_each_coarsely(theta, coarse_copy(X, MANY), arms, out)
    size = np.linalg.norm(theta) * np.linalg.norm(X[arms], axis=1)
    exact = np.array([sum(float(a) * float(b) for a, b in zip(x, theta, strict=True)) for x in X[arms]])
    assert (np.abs(out[:n] - exact) <= doubt(d, size.max())).all()


def test_the_doubt_is_no_larger_than_need_be() -> None:
    """Means of a thousand pairs come within a hundredth of it."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 25))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    out, arms = np.zeros(1000), np.arange(1000)
    dot_each_coarsely(X[0], coarse_copy(X, MANY), arms, out)
    assert np.abs(out - X @ X[0]).max() > doubt(25, 1.0) / 100


def trained(d: int, rng: np.random.Generator, n: int) -> Array:
    """A row of n observations."""
    row: Array = empty_rows(1, d)[0]
    start_row(row, d, 0.1)
    u, work = np.zeros(d), scratch_matrix(d)
    for _ in range(n):
        x = rng.standard_normal(d)
        x /= np.linalg.norm(x)
        multiply_packed(inverse_of(row, d), x, u)
        observe(row, x, float(rng.standard_normal()), u, 0.1, work)
    assert row[N] == n
    return row


@given(
    st.sampled_from([2, 5, 25]),
    st.integers(1, 12),
    st.sampled_from([0.0, 1e-7, 1e-3, 1.0]),
    st.sampled_from([None, 0.0, 1e-6]),
    st.integers(0, 2**20),
)
def test_the_same_arm_is_chosen_with_and_without(d: int, n: int, apart: float, alpha: float | None, seed: int) -> None:
    """Also among contexts that hardly differ, which single precision cannot tell apart."""
    rng = np.random.default_rng(seed)
    one = rng.standard_normal(d)
    X = one + apart * rng.standard_normal((20, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    arms: Ints = rng.integers(0, 20, size=n)
    row = trained(d, rng, int(rng.integers(0, 3 * d)))
    plan = plan_of(UCB(alpha=alpha), World(1, d, 10, bound=1.0, noise=0.5), 0.1, np.zeros(2, dtype=np.uint64))
    work = scratch(n, d)
    expected = choose(plan, row.copy(), 0, X, arms, work)
    u = work.best_u.copy()
    coarsely = ready_for(work, X, MANY)
    assert choose(plan, row.copy(), 0, X, arms, coarsely) == expected
    np.testing.assert_array_equal(coarsely.best_u, u)


def test_what_single_precision_would_get_wrong() -> None:
    """The second mean is larger by 4·10⁻⁹, and in single precision less than the exact first one by 2·10⁻⁸."""
    X = np.array([[0.5 + 2.5e-8, 0.0], [0.5 + 2.9e-8, 0.0]])
    row = trained(2, np.random.default_rng(0), 1)
    theta_of(row, 2)[:] = [1.0, 0.0]
    plan = plan_of(UCB(alpha=0.0), World(1, 2, 10, bound=1.0), 0.1, np.zeros(2, dtype=np.uint64))
    work = ready_for(scratch(2, 2), X, MANY)
    out = np.zeros(4)
    dot_each_coarsely(theta_of(row, 2), work.coarse, np.arange(2), out)
    assert out[0] == out[1]
    assert choose(plan, row, 0, X, np.arange(2), work) == 1


def test_a_simulation_is_the_same_with_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    env = fb.environments.homogeneous(n_clients=20, dim=17, n_arms=9, pool=60)
    results = []
    for shortest in (1, 18):
        monkeypatch.setattr(coarse, "LONG", shortest)
        simulation = Simulation(fb.async_linucb(), env, 5000, 0, engine="fast")
        while not simulation.finished:
            simulation.advance()
        assert isinstance(simulation.learner, RowsLearner)
        assert (simulation.learner.work.coarse.X.size > 0) == (shortest == 1)
        results.append(simulation.result())
    coarsely, exactly = results
    np.testing.assert_array_equal(coarsely.arms, exactly.arms)
    np.testing.assert_array_equal(coarsely.regret, exactly.regret)


@pytest.mark.parametrize("size", [1e12, 1e150])
def test_parameters_too_large_for_single_precision(size: float) -> None:
    """They are multiplied exactly instead."""
    X = np.array([[1.0, 0.0], [0.0, 1.0]])
    row = trained(2, np.random.default_rng(0), 1)
    theta_of(row, 2)[:] = [-size, size]
    plan = plan_of(UCB(alpha=1.0), World(1, 2, 10, bound=1.0), 0.1, np.zeros(2, dtype=np.uint64))
    assert choose(plan, row, 0, X, np.arange(2), ready_for(scratch(2, 2), X, MANY)) == 1


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="plain arrays may be of any kind")
def test_vectors_of_doubles_are_refused() -> None:
    from fedbandit.engine.fast.coarse import load_eight, totals_of

    @compiled
    def first(x: Array) -> float:
        eight = load_eight(x, 0)  # type: ignore[arg-type]
        return float(totals_of(eight, eight, eight, eight).sum())

    with pytest.raises(numba.TypingError, match="single-precision"):
        first(np.zeros(LANES))
