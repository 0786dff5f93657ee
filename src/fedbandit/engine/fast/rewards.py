"""`fedbandit.rewards.learnt`, compiled."""

from __future__ import annotations

import math

import numpy as np

from fedbandit.engine.fast.jit import compiled_apart
from fedbandit.engine.fast.streams import philox
from fedbandit.rewards import RewardPlan


@compiled_apart
def learnt(plan: RewardPlan, y: float, client: int, step: int) -> float:
    """The reward that a client learns from as its observation number `step`; NaN if y is refused."""
    if y < plan.low or y > plan.high:
        if not plan.clip:
            return math.nan
        plan.clipped[0] += 1
        y = min(max(y, plan.low), plan.high)
    if plan.scale > 0.0:
        words = philox(plan.key, client, step, 0)
        magnitude = -math.log((float(words[0]) + 0.5) / 4294967296.0)
        y += plan.scale * (magnitude if words[1] & np.uint64(1) else -magnitude)
    return y
