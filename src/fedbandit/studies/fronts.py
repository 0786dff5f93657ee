"""Fronts of regret against communication, compared where both have been measured.

Both are made monotone (nobody must use a threshold that another of its own beats on both counts) and interpolated in
logarithms, for each seed by itself; what is compared is the geometric mean of the ratio of costs over the common range.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedbandit.errors import FedbanditError
from fedbandit.types import Array

Dots = tuple[Array, Array]
"""Regret and cost, (points, seeds) each."""


class Comparison(NamedTuple):
    """How many times less the first front costs, as a logarithm for each seed; None if they have no regret in common.

    Then it is `ahead` if it has the lower regret and its dearest dot is the cheaper. `spans`: regrets of both.
    """

    log_ratios: Array | None
    ahead: bool | None
    spans: tuple[tuple[float, float], tuple[float, float]]


def compare_fronts(one: Dots, two: Dots) -> Comparison:
    """Seed by seed; open if the fronts meet with some seeds only."""
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
        return Comparison(np.array(ratios), None, spans)
    agreed = not ratios and len(set(ahead)) == 1
    return Comparison(None, ahead[0] if agreed else None, spans)


def _front(regret: Array, cost: Array) -> Dots:
    """Log regret, rising, and the least log cost at which at most that regret was had."""
    order = np.lexsort((cost, regret))
    spent = np.log(np.maximum(cost[order], 1.0))
    return np.log(regret[order]), np.minimum.accumulate(spent)
