"""Drawing contexts once for all simulations that want them, and before they are wanted."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache

import numba

from fedbandit.environments.block import Block, Stream


class Ahead:
    """The blocks of a stream up to `end`, for one simulation or several that keep step.

    If the stream allows it (`draws_ahead`), a second thread draws a block while the one before it is run. What is drawn
    depends on seed and position alone, so it does not matter by whom or when. With NUMBA_NUM_THREADS=1, as in the
    workers of a comparison, which occupy all processors already, everything happens in one thread.
    """

    def __init__(self, stream: Stream, end: int) -> None:
        self._stream = stream
        self._end = end
        self._helped = getattr(stream, "draws_ahead", False) and numba.config.NUMBA_NUM_THREADS > 1
        self._present: tuple[int, Block] | None = None
        self._next: tuple[int, Future[Block]] | None = None
        self._process = os.getpid()

    def block(self, start: int) -> Block:
        """Interactions start, …, to the end of their chunk."""
        if self._present is None or self._present[0] != start:
            self._present = start, self._draw(start)
        return self._present[1]

    def _draw(self, start: int) -> Block:
        if self._process != os.getpid():  # forked: who was to draw the next block is not here
            self._process, self._next = os.getpid(), None
        begins, drawn = self._next or (-1, None)
        if drawn is not None and begins == start:
            block = drawn.result()
        else:
            if drawn is not None:
                wait([drawn])  # the stream serves one at a time
            block = self._stream.block(start, self._stop(start))
        self._next = None
        then = self._stop(start)
        if self._helped and then < self._end:
            self._next = then, _helper().submit(self._stream.block, then, self._stop(then))
        return block

    def _stop(self, start: int) -> int:
        chunk = self._stream.chunk
        return min((start // chunk + 1) * chunk, self._end)


@cache
def _helper() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="fedbandit-draws")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helper.cache_clear)  # threads do not survive a fork
