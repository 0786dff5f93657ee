"""Interfaces as other libraries have them: the same interactions and the same choices as ours."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.adapters import BanditEnv, LinearBandit
from fedbandit.errors import FedbanditError


@pytest.mark.parametrize("rounds", ["one", "all"])
def test_an_agent_in_the_manner_of_gymnasium_sees_what_simulate_shows(rounds: Literal["one", "all"]) -> None:
    world = fb.environments.homogeneous(n_clients=3, dim=4, n_arms=5, rounds=rounds)
    env = BanditEnv(world, horizon=60)
    result = fb.simulate(fb.linucb(), world, 60, 3, engine="plain")
    arms, total = result.arms.ravel(), 0.0
    observation, info = env.reset(seed=3)
    for t, arm in enumerate(arms.tolist()):
        assert observation["arms"].shape == (5, 4)
        observation, reward, terminated, truncated, info = env.step(arm)
        total += reward
        assert terminated == (t == arms.size - 1)
        assert not truncated
    assert info["regret"] == pytest.approx(result.regret[-1])
    assert total == pytest.approx(result.reward[-1])
    with pytest.raises(FedbanditError, match="call reset first"):
        env.step(0)


def test_an_arm_that_is_not_offered_is_refused() -> None:
    env = BanditEnv(fb.environments.homogeneous(n_clients=1, dim=2, n_arms=3), horizon=5)
    env.reset()
    with pytest.raises(FedbanditError, match="the arm is 3, but must be below 3"):
        env.step(3)


@pytest.mark.parametrize("policy", ["ucb", "lints", "igw", "greedy", "uniform"])
def test_an_estimator_learns(policy: str) -> None:
    rng = np.random.default_rng(0)
    theta = np.array([1.0, -0.5, 0.2])
    X = rng.uniform(-0.5, 0.5, (500, 3))
    bandit = LinearBandit(policy=policy, noise=0.1).fit(X, X @ theta + 0.1 * rng.standard_normal(500))
    np.testing.assert_allclose(bandit.coef_, theta, atol=0.1)
    offered = rng.uniform(-0.5, 0.5, (200, 4, 3))
    arms = bandit.predict(offered)
    earned = float((offered[np.arange(200), arms] @ theta).mean())
    if policy != "uniform":
        assert earned > 0.9 * float((offered @ theta).max(axis=1).mean())
    np.testing.assert_allclose(bandit.predict_expectations(offered), offered @ bandit.coef_)


def test_scikit_learn_can_clone_it() -> None:
    base = pytest.importorskip("sklearn.base")
    bandit = LinearBandit(alpha=0.7, policy="greedy").fit(np.eye(2), [1.0, 0.0])
    copy = base.clone(bandit)
    assert copy.get_params() == bandit.get_params()
    assert copy.n_ == 0
    assert copy.set_params(alpha=0.1).alpha == 0.1
    for wrong, sentence in (
        (lambda: bandit.set_params(alhpa=1), "did you mean 'alpha'"),
        (lambda: bandit.partial_fit(np.eye(3), np.ones(3)), "the length of a context is 3"),
        (lambda: bandit.fit(np.eye(2), np.ones(3)), "the shape of y"),
        (lambda: LinearBandit(policy="ubc").fit(np.eye(2), [1, 0]).predict(np.eye(2)), "did you mean 'ucb'"),
        (lambda: LinearBandit().coef_, "has not been fitted"),
    ):
        with pytest.raises(FedbanditError, match=sentence):
            wrong()
