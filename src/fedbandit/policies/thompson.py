"""Linear Thompson sampling: the best arm of a sampled parameter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit.model import Part
from fedbandit.policies.sampling import Sampling
from fedbandit.types import Array


@dataclass(frozen=True)
class LinTS(Sampling):
    """Draw θ̃ ~ N(θ̂, α² V(λ)⁻¹) once a step and pull the arm with the largest xᵀθ̃.

    By default α = σ: θ̃ is a draw from the posterior of a Gaussian model with prior N(0, σ²/λ).

    Reference: Thompson 1933; Agrawal & Goyal 2013; Abeille & Lazaric 2017.

    Deviations:
        D1. The analyses ask for a spread of the width of Async-LinUCB, Eq. (5), times √d. In d = 25 that is pure
            exploration for longer than most experiments last (regret 3,170 where UCB has 90 and the posterior 107);
            `alpha` sets any spread one wants.
    """

    name: ClassVar[str] = "lints"
    takes_stacks: ClassVar[bool] = True

    def root(self, part: Part) -> Array:
        """α L with L Lᵀ = V(λ)⁻¹."""
        return self.scaled(part, np.asarray(np.linalg.cholesky(part.inverse), dtype=np.float64))
