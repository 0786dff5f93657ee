"""Pure exploration: the arm about which least is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedbandit.model import Model
from fedbandit.policies.policy import Policy, Randomness, best
from fedbandit.types import Array

if TYPE_CHECKING:
    from fedbandit.streams import Draw


@dataclass(frozen=True)
class Widest(Policy):
    """Pull the arm with the largest ‖x‖_{V(λ)⁻¹}; estimated rewards play no part, so their unit does not either.

    In a model of several parts the squares of the norms add up, as variances of independent estimates do.

    Reference: greedy D-optimal design (Fedorov 1972): det V(λ) grows by the factor 1 + ‖x‖²_{V(λ)⁻¹}.
    """

    name: ClassVar[str] = "widest"
    randomness: ClassVar[Randomness] = "none"
    only_explores: ClassVar[bool] = True

    def choose(self, model: Model, contexts: Array, draw: Draw) -> int:  # noqa: ARG002 - nothing is random
        """The arm with the largest norm."""
        squares = np.zeros(len(contexts))
        for part, X in model.stacks(contexts):
            squares += part.norms(X) ** 2
        return best(np.sqrt(squares))
