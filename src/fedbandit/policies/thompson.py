"""Linear Thompson sampling: the best arm of a sampled parameter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedbandit.engine.fast.algebra import dot, part_of
from fedbandit.engine.fast.jit import compiled_lean
from fedbandit.engine.fast.packed import unpack
from fedbandit.engine.fast.sampling import cholesky
from fedbandit.engine.fast.statistics import inverse_of, theta_of
from fedbandit.policies.plan import Code, PolicyPlan, WidthRule, sampling_width
from fedbandit.types import Array
from fedbandit.world import World


@dataclass(frozen=True)
class LinTS(WidthRule):
    """Draw θ̃ ~ N(θ̂, α² V(λ)⁻¹) once a step and pull the arm with the largest xᵀθ̃.

    Reference: Agrawal & Goyal 2013; Abeille & Lazaric 2017, with α of Async-LinUCB, Eq. (5).

    Deviations:
        D1. No further factor √d in the spread (the analysis of Abeille & Lazaric asks for it): it costs regret in
            every experiment we know, and `alpha` sets any spread one wants.
    """

    def plan(self, world: World, ridge: float, key: NDArray[np.uint64]) -> PolicyPlan:
        """The numbers for this world."""
        return self.plan_with(Code.THOMPSON, world, ridge, key)


@compiled_lean
def spread_thompson(plan: PolicyPlan, row: Array, z: Array, M: Array, theta: Array, V: Array) -> None:
    """θ = θ̂ + α L z with L Lᵀ = V(λ)⁻¹; M and V may be larger than d."""
    alpha = sampling_width(plan, row)
    d = z.shape[0]
    A = part_of(V, d, d)
    unpack(inverse_of(row, d), A)
    cholesky(A, M)
    estimate = theta_of(row, d)
    for i in range(d):
        theta[i] = estimate[i] + alpha * dot(M[i, : i + 1], z[: i + 1])
