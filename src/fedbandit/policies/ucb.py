"""LinUCB: the largest upper confidence bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedbandit.model import Model, Part
from fedbandit.policies.policy import Policy, Randomness, WidthRule, best
from fedbandit.types import Array

if TYPE_CHECKING:
    from fedbandit.streams import Draw


@dataclass(frozen=True)
class UCB(WidthRule, Policy):
    """Pull the arm with the largest xᵀθ̂ + α √(xᵀ V(λ)⁻¹ x), plus ν ‖V(λ)⁻¹x‖₂ where ‖b − Vθ − Σ x η‖ ≤ ν is noise.

    In a model of two parts, each has its own α (Async-LinUCB, Eq. 8).

    Reference: Abbasi-Yadkori et al. 2011; Async-LinUCB (Li & Wang 2022), Eq. (5), for the width α.

    >>> UCB(alpha=0.5)
    UCB(alpha=0.5, noise=None, confidence=0.1)
    """

    name: ClassVar[str] = "ucb"
    randomness: ClassVar[Randomness] = "none"

    def choose(self, model: Model, contexts: Array, draw: Draw) -> int:  # noqa: ARG002 - nothing is random
        """The arm with the largest bound."""
        scores = model.means(contexts)
        for part, X in model.stacks(contexts):
            scores += self.bonuses(part, X)
        return best(scores)

    def bonuses(self, part: Part, X: Array) -> Array:
        """α ‖x‖_{V(λ)⁻¹} + ν ‖V(λ)⁻¹x‖₂ of each context."""
        bonuses, noise = self.width(part) * part.norms(X), self.noise_width(part)
        return bonuses if noise == 0.0 else bonuses + noise * part.lengths(X)
