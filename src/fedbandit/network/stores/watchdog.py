"""Notices that a server does not answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Watchdog:
    """Calls `interrupt`, in a thread of its own, while a statement has been under way for more than `seconds`."""

    def __init__(self, seconds: float, interrupt: Callable[[], None]) -> None:
        self.seconds, self._interrupt = seconds, interrupt
        self._since: float | None = None
        self._ended = threading.Event()
        threading.Thread(target=self._watch, name="fedbandit-watchdog", daemon=True).start()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While an operation is under way; one inside another goes on counting."""
        outer, self._since = self._since, self._since or time.monotonic()
        try:
            yield
        finally:
            self._since = None if outer is None else self._since

    def begin(self) -> None:
        """The next statement of an operation begins: the server has answered until now."""
        if self._since is not None:
            self._since = time.monotonic()

    def end(self) -> None:
        """Nothing is watched any more."""
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(min(1.0, self.seconds / 4)):
            since = self._since
            if since is not None and time.monotonic() - since > self.seconds:
                self._interrupt()
