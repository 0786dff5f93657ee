"""What a client does to a reward before it learns from it: check its range, and noise it if asked to."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError
from fedbandit.streams import Purpose, key_of, philox


class RewardRule(NamedTuple):
    """Rewards must be in [low, high]: others are clipped, or refused. Then Laplace(scale) is added."""

    low: float = -math.inf
    high: float = math.inf
    clip: bool = True
    scale: float = 0.0


AS_THEY_ARE = RewardRule()


class RewardPlan(NamedTuple):
    """A rule as kernels see it."""

    low: float
    high: float
    clip: bool
    scale: float
    key: NDArray[np.uint64]
    clipped: NDArray[np.int64]  # (1,) how many so far


def reward_plan(rule: RewardRule, seed: int) -> RewardPlan:
    """The plan of a rule for the random stream of a seed."""
    return RewardPlan(*rule, key_of(seed, Purpose.NOISE), np.zeros(1, dtype=np.int64))


def learnt(plan: RewardPlan, y: float, client: int, step: int) -> float:
    """The reward that a client learns from as its observation number `step`; NaN if y is refused."""
    if y < plan.low or y > plan.high:
        if not plan.clip:
            return math.nan
        plan.clipped[0] += 1
        y = min(max(y, plan.low), plan.high)
    if plan.scale > 0.0:
        words = philox(plan.key, client, step, 0)
        magnitude = -math.log((words[0] + 0.5) / 2**32)
        y += plan.scale * (magnitude if words[1] % 2 else -magnitude)
    return y


def refused(rule: RewardPlan | RewardRule, y: float) -> FedbanditError:
    """The sentence for a reward out of range."""
    return FedbanditError(
        f"A reward is {y:g}, but the privacy guarantee holds for rewards in [{rule.low:g}, {rule.high:g}]; scale "
        "rewards, declare a larger bound, or choose excess='clip'."
    )
