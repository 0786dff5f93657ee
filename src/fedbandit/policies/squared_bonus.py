"""The bonus of FCLUB's code: that of LinUCB without its square root."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedbandit.model import Model
from fedbandit.policies.policy import Policy, Randomness, WidthRule, best
from fedbandit.types import Array

if TYPE_CHECKING:
    from fedbandit.streams import Draw


@dataclass(frozen=True)
class SquaredBonus(WidthRule, Policy):
    """Pull the arm with the largest xᵀθ̂ + α xᵀ V(λ)⁻¹ x.

    No confidence bound: the bonus falls with 1/n instead of n^-½, so that exploration soon ends.

    Reference: the authors' code of FCLUB (Liu et al. 2022); the paper has the square root (Alg. 1 line 12).
    """

    name: ClassVar[str] = "squared"
    randomness: ClassVar[Randomness] = "none"

    def choose(self, model: Model, contexts: Array, draw: Draw) -> int:  # noqa: ARG002 - nothing is random
        """The arm with the largest score."""
        scores = model.means(contexts)
        for part, X in model.stacks(contexts):
            scores += self.width(part) * part.norms(X) ** 2
        return best(scores)
