"""Backups: all journals of a store in one SQLite file, whatever the store is; and stores made of them again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from fedbandit.errors import FedbanditError
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.journal import KIND
from fedbandit.network.coordinator.recorded import Event
from fedbandit.network.stores import Damaged, StoredJournal
from fedbandit.network.stores.files import as_file, read_file, unusable
from fedbandit.state import StateError, unpack, unpack_entry

MENDED = "the store was damaged, and was written anew"


class Dumped(Protocol):
    """Whatever has journals."""

    @property
    def where(self) -> str:
        """Which store it is."""
        ...

    def dump(self) -> list[StoredJournal]:
        """All of them, as they are at one time."""
        ...


def _cannot_mend(error: Damaged) -> None:
    raise error


def write_backup(store: Dumped, mend: Callable[[Damaged], None] = _cannot_mend) -> bytes:
    """A backup of a store that may be in use, as the bytes of a file.

    What is damaged in the store is refused; if `mend` returns, it is read again.
    """
    while True:
        try:
            journals = _whole(store)
            break
        except Damaged as error:
            mend(error)
    if not journals:
        raise FedbanditError(f"The store {store.where} has no federation in it: there is nothing to back up.")
    return as_file(journals)


def _whole(store: Dumped) -> list[StoredJournal]:
    journals = store.dump()
    for journal in journals:
        try:
            _require_readable(journal, store.where)
        except StateError as error:
            if not error.damaged:
                raise
            raise Damaged(str(error), error.damaged, journal.name) from None
    return journals


def _require_readable(journal: StoredJournal, where: str) -> None:
    unpack(KIND, journal.snapshot or b"", where)
    for entry in journal.entries:
        unpack_entry(KIND, entry, where)


def from_memory(federations: Mapping[str, Federation]) -> Callable[[Damaged], None]:
    """Writes what is damaged anew, once each: these federations, in which nothing happens meanwhile, have it all.

    Nothing else would: of a long snapshot only blocks are written that have changed in memory.
    """
    mended: set[str | None] = set()

    def mend(error: Damaged) -> None:
        federation = federations.get(error.journal or "")
        if federation is None or error.journal in mended or federation.journal.behind:
            raise error
        mended.add(error.journal)
        federation.journal.snapshot(federation.state(), whole=True)
        federation.events.append(Event(MENDED, {"reason": error.why}))

    return mend


def read_backup(path: Path) -> list[StoredJournal]:
    """The journals of a backup, each of which can be read."""
    journals = read_file(path)
    for journal in journals:
        try:
            _require_readable(journal, repr(str(path)))
        except StateError as error:
            if not error.damaged:
                raise
            raise unusable(path, f"{journal.name!r}: {error.damaged}") from None
    return journals
