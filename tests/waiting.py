"""Waiting for what happens in other threads and processes."""

from __future__ import annotations

import time
from collections.abc import Callable

NEVER = 120.0
"""Seconds after which a test gives up: so long that only what never happens takes it."""


def eventually(condition: Callable[[], object]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + NEVER
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)
