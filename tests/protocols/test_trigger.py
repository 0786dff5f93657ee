"""The conditions under which a client speaks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from fedbandit.protocols import CountGrowth, Growth, Silence, TimedGrowth, Trigger, timed_growth
from fedbandit.protocols.trigger import as_thresholds


@dataclass
class Model:
    """What a trigger looks at."""

    n_own: int = 0
    n_pending: int = 0
    grown: float = 0.0
    shared_logdet: float = 1.0

    @property
    def logdet(self) -> float:
        """What is shared, and the growth."""
        return self.shared_logdet + self.grown


ANY = as_thresholds(1.0)


def speaks(trigger: Trigger, threshold: float, *, grown: float = 0.0, own: int = 0, pending: int = 0) -> bool:
    return trigger.fires(Model(own, pending, grown), threshold)


def test_silence() -> None:
    """Not even for −∞."""
    assert not speaks(Silence(), -math.inf, grown=5, own=3, pending=3)


@pytest.mark.parametrize("threshold", [0.0, 0.5, 3.0])
def test_growth(threshold: float) -> None:
    """Above the threshold by more than a tie."""
    assert speaks(Growth(ANY), threshold, grown=threshold + 1e-6)
    assert not speaks(Growth(ANY), threshold, grown=threshold)
    assert not speaks(Growth(ANY), threshold, grown=threshold + 1e-10)
    assert not speaks(Growth(ANY), math.inf, grown=700.0)


def test_timed_growth() -> None:
    """Δn times the growth."""
    trigger = TimedGrowth(ANY)
    assert timed_growth(Model(n_pending=4, grown=0.5)) == 2.0
    assert speaks(trigger, 1.0, grown=0.26, pending=4)
    assert not speaks(trigger, 1.0, grown=0.25, pending=4)
    assert not speaks(trigger, 1.0, grown=0.25 + 1e-10, pending=4)
    assert not speaks(trigger, 0.0, grown=0.25, pending=0)
    assert not speaks(trigger, math.inf, grown=700.0, pending=1000)


@pytest.mark.parametrize(
    ("factor", "own", "pending", "batch", "answer"),
    [
        (2.0, 1, 1, 1, True),  # the first observation always
        (2.0, 3, 1, 1, False),
        (2.0, 4, 2, 1, True),
        (2.0, 4, 2, 2, True),
        (2.0, 4, 2, 3, False),  # too few for a batch
        (1.0, 7, 1, 1, True),
        (1.0, 7, 0, 1, False),  # nothing to send
        (1.5, 3, 1, 1, True),
        (1.1, 11, 1, 1, True),  # 1.1 · 10 is a little more than 11
        (math.inf, 1, 1, 1, False),
        (math.inf, 100, 100, 1, False),
    ],
)
def test_count_growth(factor: float, own: int, pending: int, batch: int, answer: bool) -> None:
    """Own observations against those sent so far; an infinite factor is never, and no NaN on the way."""
    assert speaks(CountGrowth(ANY, batch), factor, own=own, pending=pending) == answer


def test_thresholds_are_a_copy_for_all_or_for_each() -> None:
    given = np.array([1.0, 3.0])
    thresholds = as_thresholds(given)
    given[0] = 5.0
    assert thresholds.tolist() == [1.0, 3.0]
    assert as_thresholds(2.0).tolist() == [2.0]
