"""Waiting for what a thread does."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def to_the_end(thread: Coroutine[Any, Any, T]) -> T:
    """What a thread does. Whoever is cancelled, however often, waits for it too: nothing else may begin while it is
    under way.
    """
    task = asyncio.ensure_future(thread)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    if not task.cancelled():
        task.exception()  # nobody hears it
    raise cancelled
