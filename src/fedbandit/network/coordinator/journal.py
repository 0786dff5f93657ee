"""The journal of a federation: what was accepted, in order, and now and then a snapshot in its place."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from fedbandit.network.stores import Store, StoredJournal, StoreError
from fedbandit.state import State, pack, pack_entry, unpack, unpack_entry

KIND = "coordinator"
_HEAD = struct.Struct("<BdH")  # kind, time, length of the name
_NUMBER = struct.Struct("<Q")
FRAME, ENROLMENT, QUARANTINE, ROUND, TICK, ABSENT, SUSPENSION, DEPARTURE, READMISSION, SUSPICION, SUM = range(1, 12)
"""Kinds of entries. QUARANTINE is that of format 1, which has a reason and nobody who gave it. There is no 12."""

COPY = 13
"""An upload of a copy of a client's state was refused, and seen."""

OTHERS, CALLED, FORWARDED = range(14, 17)
"""Of a relay: what came down from above, a call from there, and that what was below has gone up."""

GIVEN_UP = 17
"""A secure sum was not opened: nobody waits for these members, who are not absent for that."""

LOST = 18
"""A member has shown that it has a publication of a trusted coordinator that is not in this store."""

VERIFIED = 19
"""A member has repeated the last upload that was applied: it has the history that is here."""


RETRY_SECONDS = 300.0
"""After this a snapshot that was due and failed is tried again, or when there are twice as many entries."""


class Entry(NamedTuple):
    """Something that was accepted: when, from whom, and what."""

    kind: int
    at: float
    name: str
    rest: bytes = b""

    def encode(self) -> bytes:
        """As bytes of the journal."""
        text = self.name.encode()
        return pack_entry(KIND, _HEAD.pack(self.kind, self.at, len(text)) + text + self.rest)

    @classmethod
    def decode(cls, data: bytes) -> Entry:
        """What `encode` gave, without its checksum."""
        kind, at, length = _HEAD.unpack_from(data)
        start = _HEAD.size + length
        return cls(kind, at, data[_HEAD.size : start].decode(), data[start:])

    def numbers(self) -> list[int]:
        """The numbers that `rest` has."""
        return [number for (number,) in _NUMBER.iter_unpack(self.rest)]


def numbers(*values: int) -> bytes:
    """Numbers as an entry has them."""
    return b"".join(map(_NUMBER.pack, values))


class Journal:
    """Entries and snapshots of one federation in a store.

    A snapshot is due after `snapshot_every` entries that are together at least as long as the last one was: so writing
    them takes no more than twice what the entries need, however large a federation is.
    """

    def __init__(self, store: Store, name: str, snapshot_every: int) -> None:
        self.store, self.name, self.snapshot_every = store, name, snapshot_every
        self.behind = False
        """Whether memory has what the store has not, because a write has failed."""
        self.unproven = 0
        """Bytes of the longest write that has failed, until one that is as long succeeds."""
        self.late = ""
        """Why a snapshot that is due could not be written; empty if none is."""
        self.late_snapshots = 0
        """How often that has happened."""
        self._next_try = 0, 0.0  # with so many entries, or `RETRY_SECONDS` after the last one
        self.snapshot_bytes = 0
        self._entries = self._bytes = 0

    def read(self) -> tuple[State | None, list[Entry]]:
        """The snapshot, None if there is none, and the entries since."""
        snapshot, entries = self.store.read(self.name)
        self._entries, self._bytes = len(entries), sum(map(len, entries))
        self.snapshot_bytes = 0 if snapshot is None else len(snapshot)
        state = None if snapshot is None else unpack(KIND, snapshot, self.store.where)
        return state, [Entry.decode(unpack_entry(KIND, entry, self.store.where)) for entry in entries]

    def snapshot(self, state: State, *, whole: bool = False) -> None:
        """Put a snapshot in the place of everything. Nothing else has what it has: if it fails, memory is ahead.

        `whole`: nothing of what the store has is believed to be as it was written.
        """
        data = pack(KIND, state)
        try:
            self._replace(data, whole)
        except BaseException:
            self.behind = True
            raise

    def _replace(self, data: bytes, whole: bool = False) -> None:
        try:
            if whole:
                self.store.put([StoredJournal(self.name, data, [])])
            else:
                self.store.replace(self.name, data)
        except BaseException:
            self.unproven = max(self.unproven, len(data))
            raise
        self.unproven = 0 if len(data) >= self.unproven else self.unproven
        self._entries = self._bytes = 0
        self.snapshot_bytes, self.late, self._next_try = len(data), "", (0, 0.0)

    def write(self, entries: list[Entry], state: Callable[[], State]) -> None:
        """Add entries, all or none; a snapshot of the state after them if one is due."""
        if not entries:
            return
        encoded = [entry.encode() for entry in entries]
        size = sum(map(len, encoded))
        try:
            self.store.append(self.name, encoded)
        except BaseException:
            self.behind, self.unproven = True, max(self.unproven, size)
            raise
        self.unproven = 0 if size >= self.unproven else self.unproven
        self._entries += len(encoded)
        self._bytes += size
        if self._entries >= self.snapshot_every and self._bytes >= self.snapshot_bytes:
            self._try_snapshot(state, entries[-1].at)

    def _try_snapshot(self, state: Callable[[], State], at: float) -> None:
        """The entries are safe; a snapshot that fails costs as much as one that does not, and is tried seldom."""
        count, then = self._next_try
        if self._entries < count and abs(at - then) < RETRY_SECONDS:
            return
        try:
            self._replace(pack(KIND, state()))
        except StoreError as error:
            self.late = f"A snapshot is due, and cannot be written: {error}"
            self.late_snapshots += 1
            self._next_try = 2 * self._entries, at
