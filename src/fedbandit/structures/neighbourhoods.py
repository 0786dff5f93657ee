"""Everybody learns with those whom a test finds like them: no clusters, a neighbourhood for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit.errors import number
from fedbandit.structures.homogeneity import critical_value
from fedbandit.structures.homogeneity_cliques import LEVEL, check_test
from fedbandit.structures.structure import Structure
from fedbandit.types import Array
from fedbandit.world import World


@dataclass(frozen=True)
class Neighbourhoods(Structure):
    """A user's arms are scored with the statistics of all users j for which s(i, j) ≤ v, summed; all data are central.

    test_level: δ of v = F⁻¹(1 − δ/N²; df), χ² with df = rank X_i + rank X_j − rank [X_i; X_j].
    test_threshold: v itself, instead.
    retest: a user is tested against all others when the number of its observations has grown by this factor; 1 for
        after each observation.
    noise: σ of the test, by default what the world declares.

    Reference: Li, Wu & Wang, DyClu (Unifying clustered and non-stationary bandits), 2021, for parameters that stay.

    Deviations:
        D1. There are no change points: one model a user, for ever.
        D2. `retest` is 1.02: neighbours' data are always up to date, who is a neighbour may be 2 % of the data late.
    """

    test_level: float | None = None
    test_threshold: float | None = None
    retest: float = 1.02
    noise: float | None = None

    separate: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check every parameter."""
        check_test(self.test_level, self.test_threshold)
        number(self.retest, "retest", "a finite number ≥ 1", at_least=1.0)
        if self.noise is not None:
            number(self.noise, "noise", "a finite number ≥ 0, or None", at_least=0.0)

    def thresholds(self, world: World) -> Array:
        """v for df = 0, …, d; without degrees of freedom nothing is tested."""
        if self.test_threshold is not None:
            return np.array([np.inf] + [self.test_threshold] * world.dim)
        tail = (LEVEL if self.test_level is None else self.test_level) / world.n_clients**2
        return np.array([critical_value(tail, df, 0.0) for df in range(world.dim + 1)])
