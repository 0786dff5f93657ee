"""The bonus of FCLUB's code: that of LinUCB without its square root."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedbandit.engine.fast.algebra import dot, dot_each
from fedbandit.engine.fast.jit import compiled_lean
from fedbandit.engine.fast.packed import multiply_packed
from fedbandit.engine.fast.statistics import inverse_of, theta_of
from fedbandit.engine.fast.ties import winner
from fedbandit.policies.plan import Code, PolicyPlan, WidthRule, width
from fedbandit.types import Array, Ints
from fedbandit.world import World


@dataclass(frozen=True)
class SquaredBonus(WidthRule):
    """Pull the arm with the largest xᵀθ̂ + α xᵀ V(λ)⁻¹ x.

    No confidence bound: the bonus falls with 1/n instead of n^-½, so that exploration soon ends.

    Reference: the authors' code of FCLUB (Liu et al. 2022); the paper has the square root (Alg. 1 line 12).
    """

    def plan(self, world: World, ridge: float, key: NDArray[np.uint64]) -> PolicyPlan:
        """The numbers for this world."""
        return self.plan_with(Code.SQUARED, world, ridge, key)


@compiled_lean
def choose_squared(plan: PolicyPlan, row: Array, X: Array, arms: Ints, scores: Array, u: Array) -> int:
    """The lowest index within TIE of the largest score."""
    d = X.shape[1]
    alpha = width(plan, row)
    dot_each(theta_of(row, d), X, arms, scores)
    for a in range(arms.shape[0]):
        x = X[arms[a]]
        multiply_packed(inverse_of(row, d), x, u)
        scores[a] += alpha * dot(x, u)
    return winner(scores, arms.shape[0])
