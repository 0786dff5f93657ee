"""Greedy: the largest estimated mean, no exploration but what the ridge gives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedbandit.policies.plan import Code, PolicyPlan, WidthRule
from fedbandit.world import World


@dataclass(frozen=True)
class Greedy:
    """Pull the arm with the largest xᵀθ̂."""

    def plan(self, world: World, ridge: float, key: NDArray[np.uint64]) -> PolicyPlan:
        """The numbers for this world."""
        return WidthRule(alpha=0.0).plan_with(Code.GREEDY, world, ridge, key)
