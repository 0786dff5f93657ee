"""How far a client believes in its group: alike groups help, others do no harm, and nothing tells which they were."""

from __future__ import annotations

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.machines import exchange
from fedbandit.machines.doubt import doubted
from fedbandit.sums import EXACT, Slack, Sums
from fedbandit.types import Array

DIM, RIDGE, SIGMA = 6, 1.0, 0.3


def observed(rng: np.random.Generator, n: int, theta: Array) -> Sums:
    """n interactions with noisy rewards."""
    X = rng.standard_normal((n, DIM))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return Sums(X.T @ X, X.T @ (X @ theta + SIGMA * rng.standard_normal(n)), n)


def plus(a: Sums, b: Sums) -> Sums:
    """Together."""
    return Sums(a.V + b.V, a.b + b.b, a.n + b.n)


def weight(n: int, distance: float, noise: float = 0.0) -> float:
    """The weight that a client with n observations gives a group of 400 that far away, with noise so long in b."""
    given = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        theta, away = (v / np.linalg.norm(v) for v in rng.standard_normal((2, DIM)))
        own, others = observed(rng, n, theta), observed(rng, 400, theta + distance * away)
        privacy = rng.standard_normal(DIM) * noise / DIM**0.5
        mixed = plus(own, others._replace(b=others.b + privacy))
        found, slack = doubted(own, mixed, Slack(noise=noise), RIDGE, SIGMA)
        given.append(float((found.V - own.V)[0, 0] / others.V[0, 0]))
        np.testing.assert_allclose(found.V, own.V + given[-1] * others.V, atol=1e-9)
        np.testing.assert_allclose(found.b, own.b + given[-1] * (mixed.b - own.b), atol=1e-9)
        assert slack.noise == pytest.approx(given[-1] * noise)
        assert found.n == n + 400, "what uploads tell must not depend on what was found"
    return float(np.mean(given))


def test_a_group_of_another_kind_loses_its_weight_as_own_data_show_it() -> None:
    """A newcomer has nothing to doubt with; the more noise a group has, the less there is to see (and to take)."""
    assert weight(0, 0.0) > 0.99
    assert weight(0, 0.3) > 0.99
    assert weight(300, 0.0) > 0.3
    assert weight(300, 0.0, 20.0) > 0.25
    assert weight(300, 1.0) < 0.02
    assert weight(300, 0.1) > weight(300, 0.3) > weight(300, 1.0)
    assert weight(300, 1.0, 20.0) > weight(300, 1.0)


@pytest.mark.parametrize("distance", [0.0, 0.05, 0.1, 0.2, 0.5, 1.0])
def test_the_mean_squared_error_is_not_above_that_of_own_data(distance: float) -> None:
    """Green & Strawderman's theorem, for design matrices that are multiples of I: whatever the group's parameter is."""
    rng, own_n, group_n, tries = np.random.default_rng(5), 20.0, 60.0, 4000
    own_error = error = 0.0
    for _ in range(tries):
        away = rng.standard_normal(DIM)
        theta = distance * away / np.linalg.norm(away)  # of the group; the client's own is 0
        own = Sums(own_n * np.eye(DIM), SIGMA * own_n**0.5 * rng.standard_normal(DIM), 20)
        group_b = group_n * theta + SIGMA * group_n**0.5 * rng.standard_normal(DIM)
        mixed = Sums((own_n + group_n) * np.eye(DIM), own.b + group_b, 80)
        found, _ = doubted(own, mixed, EXACT, 1e-9, SIGMA)
        own_error += float(np.sum((own.b / own_n) ** 2))
        error += float(np.sum(np.linalg.solve(found.V, found.b) ** 2))
    assert error <= 1.005 * own_error
    if distance == 0.0:
        assert error < 0.65 * own_error, "and where the group is alike, it helps"


def test_wrong_clusters_do_not_make_private_users_worse_off_than_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters nearer than the noise lets FCLUB's test see are put together; whoever doubts does not pay for it.

    Of docs/clusters-fclub.md's MovieLens world, in small: users 0.5 apart, each of its own kind.
    """
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((12, 4))
    theta = 0.6 * np.eye(4)[3] + 0.35 * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    env = fb.environments.fclub(theta=theta, n_servers=3, n_arms=6)
    system = fb.cdp_fclub_dc(epsilon=8.0, delta=0.1)

    def regret(which: fb.System) -> float:
        return float(np.mean([fb.simulate(which, env, 20_000, seed).regret[-1] for seed in range(2)]))

    alone, guarded = regret(fb.linucb(alpha=1.5, ridge=1.0)), regret(system)
    monkeypatch.setattr(exchange, "doubted", lambda _own, mixed, slack, *_: (mixed, slack))
    assert regret(system) > 2 * alone
    assert guarded < 1.1 * alone


def test_users_of_whom_no_two_are_alike_hardly_pay_for_sharing() -> None:
    """Worlds of `benchmarks.doubt`; moved by (d − 2)/gᵀC⁻¹g instead of (d − 3)/gᵀC⁻¹g they had 1.08 times."""
    ratios = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        common, directions = rng.standard_normal(3), rng.standard_normal((12, 3))
        v = common / np.linalg.norm(common) + 0.35 * 2**0.5 * directions / np.linalg.norm(directions, axis=1)[:, None]
        theta = np.hstack([v / np.linalg.norm(v, axis=1)[:, None], np.ones((12, 1))]) / 2**0.5
        env = fb.environments.fclub(theta=theta, n_servers=3, n_arms=10)
        both = fb.linucb(alpha=1.5, ridge=1.0), fb.cdp_fclub_dc(epsilon=30.0, delta=0.1)
        ratios.append([fb.simulate(system, env, 30_000, seed).regret[-1] for system in both])
    alone, shared = np.mean(ratios, axis=0)
    assert shared < 1.04 * alone
