"""Linear Thompson sampling: the best arm of a sampled parameter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedbandit.model import Model, Part
from fedbandit.policies.policy import Policy, WidthRule, best, sampled_shares
from fedbandit.types import Array

if TYPE_CHECKING:
    from fedbandit.streams import Draw


@dataclass(frozen=True)
class LinTS(WidthRule, Policy):
    """Draw θ̃ ~ N(θ̂, α² V(λ)⁻¹) once a step and pull the arm with the largest xᵀθ̃.

    Reference: Agrawal & Goyal 2013; Abeille & Lazaric 2017, with α of Async-LinUCB, Eq. (5).

    Deviations:
        D1. No further factor √d in the spread (the analysis of Abeille & Lazaric asks for it): it costs regret in
            every experiment we know, and `alpha` sets any spread one wants.
    """

    name: ClassVar[str] = "lints"

    def choose(self, model: Model, contexts: Array, draw: Draw) -> int:
        """The best arm of θ̃ = θ̂ + α L z with L Lᵀ = V(λ)⁻¹ and z ~ N(0, I)."""
        scores = np.zeros(len(contexts))
        for part, X in model.parts(contexts):
            scores += X @ (part.theta + self._spread(part) @ draw.normal(part.theta.size))
        return best(scores)

    def propensities(self, model: Model, contexts: Array, draw: Draw) -> Array:
        """Shares of `SAMPLES` sampled parameters, all at once."""
        return sampled_shares(model, contexts, draw, self._spread)

    def _spread(self, part: Part) -> Array:
        return np.asarray(self.sampling_width(part) * np.linalg.cholesky(part.inverse), dtype=np.float64)
