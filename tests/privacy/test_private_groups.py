"""Groups that are found from noisy releases: sound, the same without noise, and silent about raw numbers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fedbandit as fb


def small_world(**options: Any) -> fb.environments.Clustered:
    return fb.environments.clustered(
        n_clients=8, dim=4, n_arms=6, n_clusters=2, gap=0.9, contexts="sphere", rounds="all", **options
    )


# ------------------------------------------------------------------------------------------------------- privacy


PRIVATE = (fb.hetofedbandit_async, fb.clustered_linucb)


@pytest.mark.parametrize("make", PRIVATE)
def test_private_clusters_are_sound_and_machines_agree(make: Callable[..., fb.System]) -> None:
    env, system = small_world(), make(privacy=fb.privacy.PrivateStatistics(epsilon=4.0))
    fast, plain = (fb.simulate(system, env, 100, 1, engine=engine) for engine in ("fast", "plain"))
    assert fast.guarantee.basis == "proven"
    assert fast.guarantee.epsilon == 4.0
    assert np.array_equal(fast.arms, plain.arms)


@pytest.mark.parametrize("make", PRIVATE)
def test_without_noise_private_clusters_are_the_same(make: Callable[..., fb.System]) -> None:
    """ε = ∞ changes nothing but what triggers may read."""
    env = small_world()
    silent = make(privacy=fb.privacy.PrivateStatistics(epsilon=math.inf, reward_bound=10.0))  # nothing is clipped
    plain = dataclasses.replace(silent, privacy=fb.privacy.NoPrivacy())
    assert np.array_equal(fb.simulate(silent, env, 100, 1).arms, fb.simulate(plain, env, 100, 1).arms)


@pytest.mark.parametrize("make", [*PRIVATE, fb.feducb])
def test_when_and_what_private_clients_send_tells_no_raw_number(make: Callable[..., fb.System]) -> None:
    """With other data, uploads come at the same times, and measure what is known by counts alone."""
    system = make() if make is fb.feducb else make(privacy=fb.privacy.PrivateStatistics(epsilon=4.0))
    assert system.counts_only
    curves = [fb.simulate(system, small_world(noise=noise), 100, 1) for noise in (0.1, 0.5)]
    assert not np.array_equal(curves[0].reward, curves[1].reward)
    first, second = (result.communication.upload_curve for result in curves)
    assert np.array_equal(first, second)


@pytest.mark.parametrize("make", PRIVATE)
def test_local_privacy_of_rewards(make: Callable[..., fb.System]) -> None:
    result = fb.simulate(make(privacy=fb.privacy.NoisyRewards(8.0, -1.0, 1.0)), small_world(), 300, 0)
    assert result.guarantee.protects == "rewards"
    assert result.regret[-1] < fb.simulate(fb.uniform(), small_world(), 300, 0).regret[-1] / 2
