"""Activity over time, for the live page: a curve of bounded length, however long a federation runs."""

from __future__ import annotations

from typing import Any

POINTS = 240
"""When there are more points than this, neighbours are joined and each stands for twice the time."""

COLUMNS = ("uploads", "downloads", "bytes")
RECENT_WIDTH, RECENT_SLICES = 5.0, 120
"""Seconds of a slice of the recent past, and how many of them are kept: ten minutes."""


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
        self._recent: dict[int, list[int]] = {}

    def recent(self, at: float) -> list[list[int]]:
        """The slices of the last ten minutes, the last one that of `at`; not kept over a restart."""
        last = int(at / RECENT_WIDTH)
        return [self._recent.get(k, [0, 0, 0]) for k in range(last - RECENT_SLICES + 1, last + 1)]

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
        k = int(at / RECENT_WIDTH)
        if k not in self._recent:
            self._recent = {i: kept for i, kept in self._recent.items() if i > k - RECENT_SLICES} | {k: [0, 0, 0]}
        for column, count in enumerate((uploads, downloads, bytes)):
            self.slices[index][column] += count
            self._recent[k][column] += count

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
        """Go on from what `state` gave, before a crash or a move."""
        self.begin, self.width, self.slices = state["begin"], state["width"], state["slices"]
