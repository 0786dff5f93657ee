"""A bar for what takes long: in a terminal where a command runs, and in a notebook."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

DELAY = 0.5  # seconds until a bar is shown


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this."""
    return "ipykernel" in sys.modules


def bar(total: int | None, unit: str, *, scaled: bool = False) -> Any:
    """A bar of tqdm that is gone when it is done; in a file or pipe there is none."""
    from tqdm import tqdm

    hidden = False if in_notebook() else None  # None: unless there is a terminal
    return tqdm(total=total, unit=f" {unit}", unit_scale=scaled, disable=hidden, leave=False, delay=DELAY)


@contextmanager
def reporting(progress: Callable[[int], object] | None, total: int, unit: str) -> Iterator[Callable[[int], object]]:
    """Whom to tell how much was done: who was named, or in a notebook a bar, or nobody."""
    if progress is not None or not in_notebook():
        yield progress or (lambda _: None)
        return
    with bar(total, unit, scaled=total > 10_000) as shown:
        yield shown.update
