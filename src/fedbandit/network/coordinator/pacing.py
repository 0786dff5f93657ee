"""Not too much of the same: messages and requests of a client, and lines of a log."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from fedbandit.network.refusal import Refusal


class RateLimit:
    """A token bucket: `rate` a second, with bursts of as many as one second allows, or of `burst`."""

    def __init__(self, rate: float, burst: float | None = None) -> None:
        self.rate = rate
        self.level = self.most = rate if burst is None else burst
        self.at = time.monotonic()

    def take(self, count: float = 1.0) -> bool:
        """Whether so many more are allowed now; of more than there can ever be at once, all that there can be."""
        count = min(count, max(self.most, 1.0))
        before, self.at = self.at, time.monotonic()
        self.level = min(self.most, self.level + (self.at - before) * self.rate)
        if self.level < count:
            return False
        self.level -= count
        return True


_ASKED = {"erase": "be erased", "decline": "leave"}


class Requests:
    """How many requests of one client are under way – a body may come as slowly as it likes – and how often it may ask
    for what is seldom wanted: to be erased, which writes all there is anew, and to decline, after which it is invited.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._under_way: Counter[str] = Counter()
        self._seldom: dict[tuple[str, str], RateLimit] = {}

    @contextmanager
    def one(self, name: str) -> Iterator[None]:
        """While one is under way; one too many is refused."""
        if self._under_way[name] >= self.most:
            raise Refusal("rate", f"Client {name!r} has {self.most} requests under way already.")
        self._under_way[name] += 1
        try:
            yield
        finally:
            self._under_way[name] -= 1
            if not self._under_way[name]:
                del self._under_way[name]

    def seldom(self, what: str, name: str) -> None:
        """Refuse a client that wants this again and again."""
        if not self._seldom.setdefault((what, name), RateLimit(1 / 60, burst=4)).take():
            raise Refusal("rate", f"Client {name!r} asked to {_ASKED[what]} several times just now; try in a minute.")


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
