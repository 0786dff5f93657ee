"""Drawing contexts once for all simulations that want them, and before they are wanted."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache

from fedbandit.environments.block import Block, Stream
from fedbandit.environments.kernels import PLAIN, using
from fedbandit.errors import require


class Ahead:
    """The blocks of a stream up to `end`, for one simulation or several that keep step.

    If the stream allows it (`draws_ahead`), a second thread draws a block while the one before it is run. What is drawn
    depends on seed and position alone, so it does not matter by whom or when. With `threads` = 1 everything happens in
    one thread; the default is `usable_threads()`. The fast engine sets `kernels` to its own.
    """

    def __init__(self, stream: Stream, end: int, *, threads: int | None = None) -> None:
        self._stream = stream
        self._end = end
        self._helped = stream.draws_ahead and (usable_threads() if threads is None else threads) > 1
        self.kernels = PLAIN
        self._present: tuple[int, Block] | None = None
        self._next: tuple[int, Future[Block]] | None = None
        self._process = os.getpid()

    def block(self, start: int) -> Block:
        """Interactions start, …, to the end of their chunk."""
        if self._present is not None and self._present[0] == start:
            return self._present[1]
        if self._process != os.getpid():  # forked: who was to draw the next block is not here
            self._process, self._next = os.getpid(), None
        begins, drawn = self._next or (-1, None)
        if drawn is not None and begins == start:
            block = drawn.result()
        else:
            if drawn is not None:
                wait([drawn])  # the stream serves one at a time
            block = self._make(start)
        self._next = None
        then = self._stop(start)
        if self._helped and then < self._end:
            self._next = then, _helper().submit(self._make, then)
        self._present = start, block
        return block

    def _make(self, start: int) -> Block:
        with using(self.kernels):
            return self._stream.block(start, self._stop(start))

    def _stop(self, start: int) -> int:
        chunk = self._stream.chunk
        return min((start // chunk + 1) * chunk, self._end)


def usable_threads() -> int:
    """FEDBANDIT_THREADS, or the processors that this process may use.

    It is 1 in the workers of a comparison, which occupy all processors already.
    """
    told = os.environ.get("FEDBANDIT_THREADS", "")
    if told:
        require(told.isdecimal() and int(told) >= 1, "FEDBANDIT_THREADS", told, "a whole number ≥ 1")
        return int(told)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _helper() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="fedbandit-draws")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helper.cache_clear)  # threads do not survive a fork
