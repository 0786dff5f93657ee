"""A client's own data and the others' noisy ones: exact without noise, alone with too much, and widths that hold."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

import fedbandit as fb
from fedbandit.engine.fast.packed import unpacked
from fedbandit.engine.fast.plan import noise_width, plan_of, width
from fedbandit.engine.fast.row import inverse_of, theta_of
from fedbandit.engine.fast.row_model import shared_row
from fedbandit.engine.fast.statistics import scratch_matrix
from fedbandit.machines import mixing
from fedbandit.machines.mixing import WEIGHTS, mix
from fedbandit.model import Width
from fedbandit.policies import UCB
from fedbandit.privacy.noise import draw_symmetric
from fedbandit.privacy.pool_noise import PoolNoise
from fedbandit.streams import policy_key
from fedbandit.sums import EXACT, Slack, Sums
from fedbandit.types import Array
from fedbandit.world import World

DIM, RIDGE, SIGMA, CONFIDENCE, FAILURE, KAPPA = 4, 0.1, 0.5, 0.2, 0.1, 0.7
PLAN = plan_of(UCB(noise=SIGMA, confidence=CONFIDENCE), World(2, DIM, 1000), RIDGE, policy_key(0))


def exact_width(sums: Sums) -> Width:
    """α of a model with exactly these statistics."""
    _, logdet = np.linalg.slogdet(sums.V / RIDGE + np.eye(DIM))
    return Width(SIGMA * math.sqrt(max(float(logdet), 0.0) + 2 * math.log(1 / CONFIDENCE)) + math.sqrt(RIDGE), SIGMA)


def observed(rng: np.random.Generator, n: int, theta: Array) -> Sums:
    """n interactions with noisy rewards."""
    X = rng.standard_normal((n, theta.size))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = X @ theta + SIGMA * rng.standard_normal(n)
    return Sums(X.T @ X, X.T @ y, n)


def test_without_noise_the_sums_add_up() -> None:
    """To the bit, and with nothing more to know."""
    rng = np.random.default_rng(0)
    own, others = observed(rng, 5, np.zeros(DIM)), observed(rng, 50, np.zeros(DIM))
    mixed, slack = mix(own, others, EXACT, RIDGE, Width(1.0))
    np.testing.assert_array_equal(mixed.V, own.V + others.V)
    np.testing.assert_array_equal(mixed.b, own.b + others.b)
    assert (mixed.n, slack) == (55, EXACT)


def test_too_much_noise_is_learning_alone() -> None:
    """Then the weight is 0: own data as they are, and the width of exact statistics."""
    rng = np.random.default_rng(1)
    own, others = observed(rng, 200, np.zeros(DIM)), observed(rng, 10, np.zeros(DIM))
    mixed, slack = mix(own, others, Slack(noise=1e6, spectrum=1e6), RIDGE, Width(1.0))
    np.testing.assert_array_equal(mixed.V, own.V)
    np.testing.assert_array_equal(mixed.b, own.b)
    assert (slack.noise, slack.inflation, slack.offset) == (0.0, 0.0, 0.0)


def test_weights_fall_as_noise_grows() -> None:
    """From trusting the others as oneself to not at all; the weight is read off V."""
    rng = np.random.default_rng(2)
    own, others = observed(rng, 20, np.zeros(DIM)), observed(rng, 2_000, np.zeros(DIM))
    weights = []
    for spectrum in np.geomspace(1e-6, 1e6, 40):
        mixed, _ = mix(own, others, Slack(noise=spectrum, spectrum=spectrum), RIDGE, Width(1.0))
        weights.append(float(np.trace(mixed.V - own.V) / np.trace(others.V)))
    assert weights[0] == pytest.approx(1.0)
    assert weights[-1] == 0.0
    assert all(before >= after - 1e-12 for before, after in pairwise(weights))
    assert all(min(abs(weight - known) for known in WEIGHTS) < 1e-9 for weight in weights)


@pytest.mark.parametrize("data", [1.1, 2.0, 50.0])
def test_the_inflation_covers_the_noise(data: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """G + G' + λI ⪯ f² V for the worst noise of norm Λ, also in directions that need no lift."""
    monkeypatch.setattr(mixing, "WEIGHTS", (1.0,))
    spectrum = 10.0
    worst = -spectrum * np.diag([1.0, 1.0, 0.0, 0.0])  # the first direction is lifted by Λ, the second not at all
    exact = np.diag([0.0, data * spectrum, 100.0, 100.0])
    own = Sums(np.eye(DIM), np.zeros(DIM), 30)
    mixed, slack = mix(own, Sums(exact + worst, np.zeros(DIM), 100), Slack(spectrum=spectrum), RIDGE, Width(1.0))
    inside = own.V + exact + RIDGE * np.eye(DIM)
    gap = (1 + slack.inflation) ** 2 * (mixed.V + RIDGE * np.eye(DIM)) - inside
    assert np.linalg.eigvalsh(gap)[0] > -1e-9


def test_by_worth_too_much_noise_is_learning_alone() -> None:
    """Own data as they are to a millionth, and the usual width; with little noise the width of one direction."""
    rng = np.random.default_rng(4)
    own, others = observed(rng, 200, np.zeros(DIM)), observed(rng, 2_000, np.zeros(DIM))
    mixed, slack = mix(own, others, Slack(bias=1e6, noise=1e7, spectrum=1e7), RIDGE, Width(1.0, SIGMA))
    np.testing.assert_allclose(mixed.V, own.V, atol=1e-5)
    assert slack.offset == pytest.approx(0.0, abs=1e-4)
    many = Sums(1e6 * others.V, 1e6 * others.b, 10**6)
    mixed, slack = mix(own, many, Slack(bias=1.0, noise=5.0, spectrum=5.0), RIDGE, Width(1.0, SIGMA))
    _, logdet = np.linalg.slogdet(mixed.V / RIDGE + np.eye(DIM))
    assert slack.offset == pytest.approx(-logdet, rel=1e-3)
    assert slack.bias == pytest.approx(-np.sqrt(RIDGE), rel=1e-3)


def noised(rng: np.random.Generator, exact: Sums, s: float) -> Sums:
    """What is released of these statistics with noise s."""
    V = exact.V + s * draw_symmetric(rng, exact.V.shape)
    return Sums(V, exact.b + s / KAPPA * rng.standard_normal(exact.b.size), exact.n)


@pytest.mark.parametrize("n_own", [5, 200])
def test_by_worth_noise_is_not_taken_for_observations(n_own: int) -> None:
    """Eigenvalues of noise of any size count for nothing: that is learning alone, down to the same width."""
    rng = np.random.default_rng(6)
    theta = np.full(DIM, 0.5)
    own, alone = observed(rng, n_own, theta), list[bool]()
    for s in (1e4, 1e6):
        noise = PoolNoise((np.array([s]),), KAPPA, looks=1, dim=DIM)
        for _ in range(20):
            others = noised(rng, observed(rng, 100, theta), s)
            mixed, slack = mix(own, others, noise.slack_of(s * s), RIDGE, Width(1.0, SIGMA))
            alone.append(np.allclose(mixed.V, own.V, atol=1e-3) and abs(slack.offset) + abs(slack.bias) < 0.02)
    assert np.mean(alone) > 0.85  # the rest is chance: noise that is larger than 15 of 16 times


@pytest.mark.parametrize("alike", [True, False])
def test_by_worth_the_matrix_is_nearer_than_what_was_released(alike: bool) -> None:
    """Also where the others observe other contexts than the client: James & Stein's estimator is never worse, d ≥ 6."""
    rng, s, dim = np.random.default_rng(7), 10.0, 6
    noise, errors = PoolNoise((np.array([s]),), KAPPA, looks=1, dim=dim), np.zeros(2)
    for _ in range(400):
        own, exact = observed(rng, 60, np.zeros(dim)), observed(rng, 300, np.zeros(dim))
        if not alike:
            exact = exact._replace(V=np.diag([120.0, 75.0, 60.0, 25.0, 15.0, 5.0]))
        others = noised(rng, exact, s)
        expected, mu = mixing._expected(own, others, noise.slack_of(s * s), SIGMA)
        errors += [np.sum((V - exact.V) ** 2) for V in (expected, others.V)]
        assert s**2 / KAPPA**2 <= mu * SIGMA**2 * (1 + 1e-12) <= s**2 * (1 + 1 / KAPPA**2) * (1 + 1e-12)
    assert errors[0] < (0.75 if alike else 1.0) * errors[1]  # T is as far from G' as noise is: about a half is left


@pytest.mark.parametrize("batch", [16, 32])
def test_with_hardly_any_budget_it_is_learning_alone(batch: int) -> None:
    """Arm for arm, nearly: an agent gains nothing and loses nothing."""
    env = fb.environments.feducb(n_clients=3, dim=4)
    private = fb.privacy.PrivateStatistics(1e-4, 1e-9)
    system = fb.System(protocol=fb.protocols.Synchronous(growth=1.5, batch=batch), privacy=private)
    shared, alone = fb.simulate(system, env, 300, 0).arms, fb.simulate(fb.linucb(), env, 300, 0).arms
    assert np.mean(shared == alone) > 0.98


@pytest.mark.parametrize(("n_others", "s"), [(300, 3.0), (3_000, 20.0), (30_000, 80.0)])
def test_by_worth_the_estimate_is_better_than_either(n_others: int, s: float) -> None:
    """Than that of own data, and than trusting the others' noisy sums as they are."""
    noise, rng = PoolNoise((np.array([s]),), KAPPA, looks=1, dim=DIM), np.random.default_rng(5)
    errors = np.zeros(3)
    for _ in range(200):
        theta = rng.standard_normal(DIM)
        theta /= np.linalg.norm(theta)
        own, exact = observed(rng, 60, theta), observed(rng, n_others, theta)
        others = noised(rng, exact, s)
        mixed, _ = mix(own, others, noise.slack_of(s * s), RIDGE, Width(1.0, SIGMA))
        trusting = Sums(own.V + others.V, own.b + others.b, 0)
        errors += [
            np.linalg.norm(np.linalg.solve(sums.V + RIDGE * np.eye(DIM), sums.b) - theta)
            for sums in (mixed, own, trusting)
        ]
    assert errors[0] < min(errors[1:])


def failures(n_others: int, s: float, *, honest: bool) -> int:
    """In how many of 300 draws some |xᵀ(θ̂ − θ)| exceeds its bound, computed as clients compute it."""
    noise = PoolNoise((np.array([s]),), KAPPA, looks=1, dim=DIM, failure=FAILURE, mixing="bound")
    rng = np.random.default_rng(3)
    count, scratch = 0, scratch_matrix(DIM)
    for _ in range(300):
        theta = rng.standard_normal(DIM)
        theta /= np.linalg.norm(theta)
        own, exact = observed(rng, 30, theta), observed(rng, n_others, theta)
        others = noised(rng, exact, s)
        known = noise.slack_of(s * s) if honest else Slack(noise=1e-9, spectrum=1e-9)
        sums, slack = mix(own, others, known, RIDGE, exact_width(own))
        row = shared_row([sums], slack, DIM, RIDGE, scratch)
        X = rng.standard_normal((40, DIM))
        U = X @ unpacked(inverse_of(row, DIM), DIM)
        bound = width(PLAN, row) * np.sqrt(np.einsum("ij,ij->i", X, U))
        bound += noise_width(PLAN, row) * np.linalg.norm(U, axis=1)
        count += bool((np.abs(X @ (theta_of(row, DIM) - theta)) > bound).any())
    return count


@pytest.mark.parametrize(("n_others", "s"), [(2_000, 1.0), (2_000, 20.0), (20_000, 60.0), (100, 5.0)])
def test_widths_hold_as_often_as_stated(n_others: int, s: float) -> None:
    """Whatever the weight: they fail with probability CONFIDENCE + FAILURE at most."""
    count = failures(n_others, s, honest=True)
    assert stats.binomtest(count, 300, CONFIDENCE + FAILURE, alternative="greater").pvalue > 1e-4


def test_widths_that_know_nothing_of_the_noise_do_not_hold() -> None:
    """So the test above can fail."""
    assert failures(2_000, 80.0, honest=False) > 300 * (CONFIDENCE + FAILURE) * 2
