"""Activity over time, for the live page: a curve of bounded length, however long a federation runs."""

from __future__ import annotations

from typing import Any

POINTS = 240
"""When there are more points than this, neighbours are joined and each stands for twice the time."""

COLUMNS = ("uploads", "downloads", "bytes")


class Activity:
    """Uploads, downloads and bytes in consecutive slices of time.

    >>> activity = Activity()
    >>> activity.add(100.2, uploads=1, bytes=40); activity.add(101.5, downloads=2); activity.add(90.0, uploads=1)
    >>> activity.begin, activity.width, activity.slices
    (100.0, 1.0, [[2, 0, 40], [0, 2, 0]])
    """

    def __init__(self) -> None:
        self.begin = 0.0
        self.width = 1.0
        self.slices: list[list[int]] = []

    def add(self, at: float, *, uploads: int = 0, downloads: int = 0, bytes: int = 0) -> None:
        """Count something at time `at`; a clock that has jumped back counts in the first slice, or the last it had."""
        if not self.slices:
            self.begin = float(int(at))
            self.slices.append([0, 0, 0])
        while (at - self.begin) / self.width >= POINTS:
            self._halve()
        index = max(0, int((at - self.begin) / self.width))
        while len(self.slices) <= index:
            self.slices.append([0, 0, 0])
        for column, count in enumerate((uploads, downloads, bytes)):
            self.slices[index][column] += count

    def _halve(self) -> None:
        self.width *= 2
        if len(self.slices) % 2:
            self.slices.append([0, 0, 0])
        self.slices = [
            [a + b for a, b in zip(*pair, strict=True)]
            for pair in zip(self.slices[::2], self.slices[1::2], strict=True)
        ]

    def state(self) -> dict[str, Any]:
        """Plain values."""
        return {"begin": self.begin, "width": self.width, "slices": self.slices}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.begin, self.width, self.slices = state["begin"], state["width"], state["slices"]
