"""Logs that came through a gateway tell the truth about other policies; `python -m benchmarks gateway` has 200 logs."""

from __future__ import annotations

import pytest
from benchmarks.gateway import coverage


@pytest.mark.parametrize(("rate", "n"), [(0.5, 120), (0.004, 150)])
def test_intervals_hold_the_truth(rate: float, n: int) -> None:
    covered = coverage(20, n, rate)
    assert len(covered) == 6
    assert min(covered.values()) >= 0.75, covered  # of 20 with 95 %, fewer than 15 in one of 30,000
