"""Not too much of the same: messages of a client, and lines of a log."""

from __future__ import annotations

import time


class RateLimit:
    """A token bucket: `rate` a second, with bursts of as many as one second allows."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.level = rate
        self.at = time.monotonic()

    def take(self) -> bool:
        """Whether one more is allowed now."""
        before, self.at = self.at, time.monotonic()
        self.level = min(self.rate, self.level + (self.at - before) * self.rate)
        if self.level < 1.0:
            return False
        self.level -= 1.0
        return True


class QuietLog:
    """Lets the same thing be said once in a while only: a client that sends nonsense must not fill a disk."""

    def __init__(self, every: float = 10.0) -> None:
        self.every = every
        self._said: dict[str, float] = {}

    def says(self, what: str) -> bool:
        """Whether this is to be said now."""
        at = time.monotonic()
        if at - self._said.get(what, -self.every) < self.every:
            return False
        if len(self._said) > 10_000:
            self._said.clear()
        self._said[what] = at
        return True
