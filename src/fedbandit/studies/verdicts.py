"""When numbers decide something: differences seed by seed, held against their own noise; fronts, compared.

Systems of an experiment run on the same seeds, that is, on the same worlds: a seed that is hard is hard for all.
Decisive is therefore the mean of the *differences* and its standard error, not the errors of two means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from fedbandit import tails
from fedbandit.errors import FedbanditError
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
    """The margin that the verdict depends on: of those that give it the closest."""
    verdict = together(margins)
    places = [place for place, one in enumerate(margins) if one.holds is verdict]
    return min(places, key=lambda place: closeness[place])


Dots = tuple[Array, Array]
"""Regret and cost, (points, seeds) each."""


class FrontComparison(NamedTuple):
    """How many times less the first front costs, as a logarithm for each seed; None if they have no regret in common.

    Then it is `ahead` if it has the lower regret and its dearest dot is the cheaper. `spans`: regrets of both.
    """

    log_ratios: Array | None
    ahead: bool | None
    spans: tuple[tuple[float, float], tuple[float, float]]


def compare_fronts(one: Dots, two: Dots) -> FrontComparison:
    """Compare fronts of regret against communication where both have been measured; open if only some seeds meet.

    Both are made monotone (nobody must use a threshold that another of its own beats on both counts) and interpolated
    in logarithms, for each seed by itself; compared is the geometric mean of the ratio of costs over the common range.
    """
    if min(one[0].min(), two[0].min()) <= 0:
        raise FedbanditError("A front has a dot without regret, which no logarithm can compare.")
    (a, b) = (dots[0].mean(axis=1) for dots in (one, two))
    spans = ((float(a.min()), float(a.max())), (float(b.min()), float(b.max())))
    ratios, ahead = [], []
    for seed in range(one[0].shape[1]):
        first, second = (_front(regret[:, seed], cost[:, seed]) for regret, cost in (one, two))
        low, high = max(first[0][0], second[0][0]), min(first[0][-1], second[0][-1])
        if low < high:
            at = np.linspace(low, high, 50)
            ratios.append(float(np.mean(np.interp(at, *second) - np.interp(at, *first))))
        else:
            ahead.append(bool(first[0][-1] <= second[0][0] and first[1].max() <= second[1].min()))
    if not ahead:
        return FrontComparison(np.array(ratios), None, spans)
    agreed = not ratios and len(set(ahead)) == 1
    return FrontComparison(None, ahead[0] if agreed else None, spans)


def _front(regret: Array, cost: Array) -> Dots:
    """Log regret, rising, and the least log cost at which at most that regret was had."""
    order = np.lexsort((cost, regret))
    spent = np.log(np.maximum(cost[order], 1.0))
    return np.log(regret[order]), np.minimum.accumulate(spent)
