"""Timing things against one another when other people use the machine too."""

from __future__ import annotations

import time
from collections.abc import Callable


def best_seconds(tasks: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The shortest time of each task; the tasks take turns, so that a slow spell hits them all."""
    best = dict.fromkeys(tasks, float("inf"))
    for _ in range(repeats):
        for name, task in tasks.items():
            begin = time.perf_counter()
            task()
            best[name] = min(best[name], time.perf_counter() - begin)
    return best


def table(header: list[str], lines: list[list[str]]) -> str:
    """A Markdown table."""
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
