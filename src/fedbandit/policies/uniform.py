"""Uniformly random arms: the yardstick every learner must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedbandit.model import Model
from fedbandit.policies.policy import Policy, Randomness
from fedbandit.types import Array

if TYPE_CHECKING:
    from fedbandit.streams import Draw


@dataclass(frozen=True)
class Uniform(Policy):
    """Pull each offered arm with equal probability, from the client's own counter-based stream."""

    name: ClassVar[str] = "uniform"
    only_explores: ClassVar[bool] = True
    randomness: ClassVar[Randomness] = "known"

    def choose(self, model: Model, contexts: Array, draw: Draw) -> int:  # noqa: ARG002 - it learns nothing
        """Any arm."""
        return draw.index(len(contexts))

    def propensities(self, model: Model, contexts: Array, draw: Draw) -> Array:  # noqa: ARG002 - it learns nothing
        """1/K."""
        return np.full(len(contexts), 1 / len(contexts))
