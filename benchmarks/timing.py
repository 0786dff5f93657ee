"""Timing things against one another when other people use the machine too."""

from __future__ import annotations

import time
from collections.abc import Callable


def seconds(tasks: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """The times of each task; the tasks take turns, so that a slow spell hits them all."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(repeats):
        for name, task in tasks.items():
            begin = time.perf_counter()
            task()
            times[name].append(time.perf_counter() - begin)
    return times


def best_seconds(tasks: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The shortest time of each task."""
    return {name: min(times) for name, times in seconds(tasks, repeats).items()}


def table(header: list[str], lines: list[list[str]]) -> str:
    """A Markdown table."""
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
