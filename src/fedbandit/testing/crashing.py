"""A store whose process crashes on demand, just before or just after a write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from fedbandit.network.stores import MemoryStore


class Crash(Exception):
    """The process ends here."""


class CrashingStore(MemoryStore):
    """A store in memory; `crash` says whether the process ends before or after the next write."""

    def __init__(self) -> None:
        super().__init__()
        self.crash: Literal["", "before", "after"] = ""

    def append(self, journal: str, entries: object, *, durable: bool = True) -> None:
        """Add entries, or crash."""
        self._write(lambda: MemoryStore.append(self, journal, entries, durable=durable))  # type: ignore[arg-type]

    def replace(self, journal: str, snapshot: bytes, *, durable: bool = True) -> None:
        """Replace everything, or crash."""
        self._write(lambda: MemoryStore.replace(self, journal, snapshot, durable=durable))

    def _write(self, write: Callable[[], None]) -> None:
        crash, self.crash = self.crash, ""
        if crash == "before":
            raise Crash
        write()
        if crash == "after":
            raise Crash
