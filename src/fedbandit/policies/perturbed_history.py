"""LinPHE: greedy on a perturbed history."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedbandit.engine.fast.algebra import dot, part_of
from fedbandit.engine.fast.jit import compiled_lean
from fedbandit.engine.fast.packed import multiply_packed, unpack
from fedbandit.engine.fast.sampling import cholesky
from fedbandit.engine.fast.statistics import add_pending_unpacked, base_of, inverse_of, theta_of
from fedbandit.policies.plan import Code, PolicyPlan, WidthRule, sampling_width
from fedbandit.types import Array
from fedbandit.world import World


@dataclass(frozen=True)
class LinPHE(WidthRule):
    """Add fresh noise to every past reward, fit, and pull the best arm: θ̃ = V(λ)⁻¹ Σ x (y + α z), z ~ N(0, 1).

    Reference: Kveton et al., Perturbed-History Exploration in Stochastic Linear Bandits, 2019.

    Deviations:
        D1. Gaussian pseudo-rewards of mean zero instead of sums of Bernoulli ones: Σ x z is then N(0, V) and is drawn
            from the sufficient statistics alone, so the history need not be kept, nor shared.
        D2. Their scale a is set by the width of Async-LinUCB, Eq. (5), or by `alpha`.
    """

    def plan(self, world: World, ridge: float, key: NDArray[np.uint64]) -> PolicyPlan:
        """The numbers for this world."""
        return self.plan_with(Code.PERTURBED, world, ridge, key)


@compiled_lean
def spread_perturbed(plan: PolicyPlan, row: Array, z: Array, M: Array, theta: Array, V: Array) -> None:
    """θ = θ̂ + α V(λ)⁻¹ L z with L Lᵀ = V (without ridge); M and V may be larger than d."""
    d = z.shape[0]
    alpha = sampling_width(plan, row)
    A = part_of(V, d, d)
    unpack(base_of(row, d), A)
    add_pending_unpacked(row, d, A)
    cholesky(A, M)
    perturbed = M[d, :d]
    for i in range(d):
        perturbed[i] = alpha * dot(M[i, : i + 1], z[: i + 1])
    multiply_packed(inverse_of(row, d), perturbed, theta)
    estimate = theta_of(row, d)
    for i in range(d):
        theta[i] += estimate[i]
