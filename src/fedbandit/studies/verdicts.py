"""When numbers decide something: differences seed by seed, held against their own noise.

Systems of an experiment run on the same seeds, which means on the same worlds: a seed that is hard is hard for all.
What decides is therefore the mean of the *differences* and their standard error, not the errors of two means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from fedbandit import tails
from fedbandit.types import Array

LEVEL = 0.05
"""How often a difference that is nothing but noise may be taken for one in a given direction."""


class Margin(NamedTuple):
    """By how much something holds (it fails below zero): the mean over seeds and its standard error."""

    mean: float
    error: float  # NaN: one seed has none
    seeds: int

    @property
    def holds(self) -> bool | None:
        """Whether it holds; None if noise alone would do that too. One seed decides without knowing its noise."""
        if self.mean == 0 or self.within_noise:
            return None
        return self.mean > 0

    @property
    def within_noise(self) -> bool:
        """Whether the mean is smaller than Student's quantile of its standard error, for that many seeds."""
        if self.seeds < 2:
            return False
        return abs(self.mean) < students_quantile(self.seeds) * self.error


@cache
def students_quantile(seeds: int) -> float:
    """How many standard errors a mean must be away from zero: 6.3 for two seeds, 2.1 for five, 1.8 for ten."""
    return tails.students_quantile(LEVEL, seeds - 1)


def margin(samples: Array) -> Margin:
    """From one number a seed.

    >>> import numpy as np
    >>> margin(np.array([9.0, 11.0])), margin(np.array([9.0, 11.0])).holds, margin(np.array([-1.0, 3.0])).holds
    (Margin(mean=10.0, error=1.0, seeds=2), True, None)
    """
    error = float(samples.std(ddof=1)) / math.sqrt(samples.size) if samples.size > 1 else math.nan
    return Margin(float(samples.mean()), error, samples.size)


def together(margins: Sequence[Margin]) -> bool | None:
    """Whether all of them hold: one that fails refutes, one within noise leaves it open."""
    found = [one.holds for one in margins]
    return False if False in found else None if None in found else True


def telling(margins: Sequence[Margin], closeness: Sequence[float]) -> int:
    """Which of them the verdict hangs on: of those that give it the closest."""
    verdict = together(margins)
    places = [place for place, one in enumerate(margins) if one.holds is verdict]
    return min(places, key=lambda place: closeness[place])
