"""Greedy: the largest estimated mean, no exploration but what the ridge gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedbandit.model import Model
from fedbandit.policies.policy import Policy, Randomness, best
from fedbandit.types import Array

if TYPE_CHECKING:
    from fedbandit.streams import Draw


@dataclass(frozen=True)
class Greedy(Policy):
    """Pull the arm with the largest xᵀθ̂."""

    name: ClassVar[str] = "greedy"
    randomness: ClassVar[Randomness] = "none"

    def choose(self, model: Model, contexts: Array, draw: Draw) -> int:  # noqa: ARG002 - nothing is random
        """The arm with the largest estimated mean."""
        return best(model.means(contexts))
