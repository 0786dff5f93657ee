"""The curve of the live page."""

from __future__ import annotations

from fedbandit.network.coordinator.activity import POINTS, Activity


def test_activity_is_bounded_however_long_and_however_the_clock_jumps() -> None:
    activity = Activity()
    for second in range(10_000):
        activity.add(1e9 + second, uploads=1, bytes=10)
    activity.add(5.0, uploads=1)
    activity.add(2e9, downloads=3)
    assert len(activity.slices) <= POINTS
    totals = [sum(column) for column in zip(*activity.slices, strict=True)]
    assert totals == [10_001, 3, 100_000]
    again = Activity()
    again.restore(activity.state())
    assert again.state() == activity.state()
