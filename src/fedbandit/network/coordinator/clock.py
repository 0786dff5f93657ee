"""The time of day that a coordinator goes by, and waiting for what a thread does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_offset = time.time() - time.monotonic()


def now() -> float:
    """The time of day, by a clock that never goes back while the coordinator runs.

    It follows the system's forward: while a machine is suspended the monotonic clock stands still, and one that has
    started with a clock that was behind is put right later. Else uploads of today would be of the future for ever.
    """
    global _offset
    monotonic = time.monotonic()
    _offset = max(_offset, time.time() - monotonic)
    return _offset + monotonic


async def to_the_end(thread: Coroutine[Any, Any, T]) -> T:
    """What a thread does. Whoever is cancelled waits for it too: nothing else may begin while it is under way."""
    task = asyncio.ensure_future(thread)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # nobody hears it
        raise
