"""Uniformly random arms: the yardstick every learner must beat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedbandit.policies.plan import Code, PolicyPlan, WidthRule
from fedbandit.world import World


@dataclass(frozen=True)
class Uniform:
    """Pull each offered arm with equal probability, from the client's own counter-based stream."""

    def plan(self, world: World, ridge: float, key: NDArray[np.uint64]) -> PolicyPlan:
        """The numbers for this world."""
        return WidthRule(alpha=0.0).plan_with(Code.UNIFORM, world, ridge, key)
