"""A node's journal: entries of what happens, and now and then a snapshot in their place.

What is written grows with what happens, not with what there is: the snapshot is written anew when the entries since the
last one are larger than it, so that each byte is rewritten a constant number of times.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import Store, StoreError
from fedbandit.state import State, pack, pack_entry, unpack

KIND = "client"
COMPACT_AFTER = 2**20
"""Bytes of entries after which a snapshot may be written; more if the last snapshot was larger."""
MOST_UNWRITTEN = 4096
"""Entries that may wait in memory while the store cannot be written; beyond that a snapshot takes their place."""


def stored_agreement(store: Store, kind: str = KIND) -> tuple[Agreement, int] | None:
    """The agreement and the member number that a store was made for."""
    snapshot, _ = store.read(kind)
    if snapshot is None:
        return None
    header = unpack(kind, snapshot, store.where).header
    return Agreement.of_json(header["agreement"]), int(header["member"])


def has_nothing(store: Store, kind: str = KIND) -> bool:
    """Whether a store is known to be nobody's; one that cannot be read may be somebody's."""
    try:
        return store.read(kind)[0] is None
    except StoreError:
        return False


class NodeJournal:
    """The entries and the snapshot of a node in its store, in which it is called as its kind is.

    `add` and `defer` are called with the lock held, which is that of the state: `capture` is called with it, and gives
    a function that makes the state when the lock is free again. The other methods are called one at a time, without.
    """

    def __init__(
        self,
        store: Store,
        kind: str,
        lock: AbstractContextManager[Any],
        capture: Callable[[], Callable[[], State]],
    ) -> None:
        self.store, self.kind = store, kind
        self._lock = lock
        self._capture = capture
        self._unwritten: list[bytes] = []
        self._deferred = False  # a snapshot has to take the place of entries
        self._entries = self._snapshot = 0  # bytes of entries since the last snapshot, and of that

    def add(self, entry: bytes) -> None:
        """Note an entry, to be written soon."""
        if self._deferred:
            return  # a snapshot will have it
        if len(self._unwritten) < MOST_UNWRITTEN:
            self._unwritten.append(pack_entry(self.kind, entry))
        else:
            self.defer()

    def defer(self) -> None:
        """Let the next write be a snapshot, which has everything."""
        self._deferred = True
        self._unwritten.clear()

    def write(self, *, durable: bool = False) -> None:
        """Write what waits in memory; if `durable`, this and all before survives a power cut."""
        if self._deferred:
            self.replace(durable=durable)
            return
        with self._lock:
            entries, self._unwritten = self._unwritten, []
        if not entries:
            return
        try:
            self.store.append(self.kind, entries, durable=durable)
        except BaseException:
            with self._lock:
                self._unwritten = entries + self._unwritten
                if self._deferred or len(self._unwritten) > MOST_UNWRITTEN:
                    self.defer()
            raise
        self._entries += sum(map(len, entries))

    def replace(self, *, durable: bool) -> None:
        """Write a snapshot in the place of everything."""
        with self._lock:
            self.defer()
            finish = self._capture()
            self._deferred = False  # entries from now on are after this snapshot
        try:
            data = pack(self.kind, finish())
            self.store.replace(self.kind, data, durable=durable)
        except BaseException:
            with self._lock:
                self.defer()
            raise
        self._entries, self._snapshot = 0, len(data)

    def compact(self) -> None:
        """Write a snapshot if the entries since the last one are larger than it. For a thread that has the time."""
        if self._entries > max(COMPACT_AFTER, self._snapshot):
            self.replace(durable=False)
