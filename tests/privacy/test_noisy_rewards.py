"""Noise on rewards, as the compiled code draws it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fedbandit.errors import FedbanditError
from fedbandit.privacy import NoisyRewards
from fedbandit.rewards import AS_THEY_ARE, learnt, reward_plan
from fedbandit.types import Array

ACCEPT, REJECT = 1e-4, 1e-6


def noises(privacy: NoisyRewards, y: float, clients: int = 4, steps: int = 5_000, seed: int = 0) -> Array:
    """What is added to y."""
    plan = reward_plan(privacy.reward_rule, seed)
    return np.array([[learnt(plan, y, i, step) - y for step in range(steps)] for i in range(clients)])


def test_the_noise_is_laplace_of_the_stated_scale() -> None:
    """Range/ε; ±10 % is told apart."""
    z = noises(NoisyRewards(0.5, low=-1.0, high=1.0), 0.3).ravel()
    assert stats.kstest(z, stats.laplace(scale=4.0).cdf).pvalue > ACCEPT
    for wrong in (0.9, 1.1):
        assert stats.kstest(z, stats.laplace(scale=4.0 * wrong).cdf).pvalue < REJECT


def test_noise_does_not_depend_on_the_reward_and_differs_by_client_step_and_seed() -> None:
    """The same for other rewards; no two alike otherwise, and not correlated."""
    privacy = NoisyRewards(1.0)
    z = noises(privacy, 0.0, clients=3, steps=3_000)
    np.testing.assert_allclose(noises(privacy, 1.0, clients=3, steps=3_000), z, atol=1e-9)
    assert np.unique(z).size > 0.999 * z.size
    for a, b in ((z[0], z[1]), (z[0][:-1], z[0][1:]), (z[0], noises(privacy, 0.0, 1, 3_000, seed=1)[0])):
        assert abs(stats.spearmanr(a, b).statistic) < 4 / math.sqrt(len(a))


def test_rewards_out_of_range() -> None:
    """Clipped and counted, or refused; a reward at the limit is neither."""
    plan = reward_plan(NoisyRewards(1e9).reward_rule, 0)
    assert [round(learnt(plan, y, 0, 0), 6) for y in (-3.0, 0.0, 0.5, 1.0, 1.5)] == [0.0, 0.0, 0.5, 1.0, 1.0]
    assert plan.clipped[0] == 2
    strict = reward_plan(NoisyRewards(1e9, excess="refuse").reward_rule, 0)
    assert math.isnan(learnt(strict, 1.5, 0, 0))
    assert strict.clipped[0] == 0


def test_without_noise_rewards_stay_as_they_are() -> None:
    """ε = ∞ claims nothing, so nothing is clipped either."""
    assert NoisyRewards(math.inf).reward_rule == AS_THEY_ARE
    assert NoisyRewards(math.inf).guarantee().basis == "none"


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({"epsilon": 0.0}, "epsilon is 0.0, but must be a number > 0"),
        ({"epsilon": 1.0, "low": 1.0, "high": 0.0}, "high is 0.0, but must be above low = 1"),
        ({"epsilon": 1.0, "excess": "ignore"}, "excess is 'ignore', but must be 'clip' or 'refuse'"),
    ],
)
def test_bad_parameters(keywords: dict[str, object], sentence: str) -> None:
    """One sentence each."""
    with pytest.raises(FedbanditError) as error:
        NoisyRewards(**keywords)  # type: ignore[arg-type]
    assert sentence in str(error.value)
