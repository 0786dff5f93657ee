"""The conditions under which a client speaks, compiled and as plain Python."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fedbandit import statistics as stats
from fedbandit.engine.fast.statistics import BASE_LOGDET, LOGDET, N_OWN, N_PENDING
from fedbandit.protocols.trigger import Kind, Trigger, pick, triggered

plain: Any = getattr(triggered, "py_func", triggered)


def speaks(kind: Kind, threshold: float, *, grown: float = 0.0, own: int = 0, pending: int = 0, batch: int = 1) -> bool:
    """Whether a row with these numbers speaks; both versions must agree, and neither may warn."""
    row = stats.empty_rows(1, 2)[0]
    row[BASE_LOGDET], row[LOGDET], row[N_OWN], row[N_PENDING] = 1.0, 1.0 + grown, own, pending
    answer = bool(triggered(int(kind), threshold, 1, row))
    assert bool(plain(int(kind), threshold, batch, row)) == answer
    return answer


def test_never() -> None:
    """Not even for −∞."""
    assert not speaks(Kind.NEVER, -math.inf, grown=5, own=3, pending=3)


@pytest.mark.parametrize("threshold", [0.0, 0.5, 3.0])
def test_logdet(threshold: float) -> None:
    """Above the threshold by more than a tie."""
    assert speaks(Kind.LOGDET, threshold, grown=threshold + 1e-6)
    assert not speaks(Kind.LOGDET, threshold, grown=threshold)
    assert not speaks(Kind.LOGDET, threshold, grown=threshold + 1e-10)
    assert not speaks(Kind.LOGDET, math.inf, grown=700.0)


def test_timed_logdet() -> None:
    """Δn times the growth."""
    assert speaks(Kind.TIMED_LOGDET, 1.0, grown=0.26, pending=4)
    assert not speaks(Kind.TIMED_LOGDET, 1.0, grown=0.25, pending=4)
    assert not speaks(Kind.TIMED_LOGDET, 1.0, grown=0.25 + 1e-10, pending=4)
    assert not speaks(Kind.TIMED_LOGDET, 0.0, grown=0.25, pending=0)
    assert not speaks(Kind.TIMED_LOGDET, math.inf, grown=700.0, pending=1000)


@pytest.mark.parametrize(
    ("factor", "own", "pending", "answer"),
    [
        (2.0, 1, 1, True),  # the first observation always
        (2.0, 3, 1, False),
        (2.0, 4, 2, True),
        (1.0, 7, 1, True),
        (1.0, 7, 0, False),  # nothing to send
        (1.5, 3, 1, True),
        (1.1, 11, 1, True),  # 1.1 · 10 is a little more than 11
        (math.inf, 1, 1, False),
        (math.inf, 100, 100, False),
    ],
)
def test_count(factor: float, own: int, pending: int, answer: bool) -> None:
    """Own observations against those sent so far; an infinite factor is never, and no NaN on the way."""
    assert speaks(Kind.COUNT, factor, own=own, pending=pending) == answer


def test_one_threshold_for_all_or_one_for_each() -> None:
    """`pick` and `Trigger.of`."""
    for_all, for_each = Trigger.of(Kind.LOGDET, 2.0, "raw"), Trigger.of(Kind.LOGDET, np.array([1.0, 3.0]), "raw")
    assert [pick(for_all.thresholds, i) for i in range(2)] == [2.0, 2.0]
    assert [pick(for_each.thresholds, i) for i in range(2)] == [1.0, 3.0]
