"""Where machines keep what must survive a crash: SQLite in one file, PostgreSQL by URL, or memory."""

from __future__ import annotations

import os
from pathlib import Path

from fedbandit.errors import FedbanditError
from fedbandit.network.stores.store import (
    InUse,
    MemoryStore,
    NotAllowed,
    NotOwner,
    Owner,
    Store,
    StoredJournal,
    StoreError,
)

__all__ = [
    "InUse",
    "MemoryStore",
    "NotAllowed",
    "NotOwner",
    "Owner",
    "Store",
    "StoreError",
    "StoredJournal",
    "copy_to",
    "open_store",
    "put",
]


def open_store(where: str | os.PathLike[str] | None, lease: float | None = None, *, many: bool = False) -> Store:
    """The store at a path or at a `postgresql://` URL; None keeps everything in memory.

    `lease` is for how many seconds an owner in PostgreSQL may give no sign of life before another can follow it.
    `many` is for a file of many members' uploads (a coordinator's): large entries, many at a time.

    >>> type(open_store(None)).__name__
    'MemoryStore'
    """
    if where is None:
        return MemoryStore()
    if os.fspath(where).startswith(("postgresql://", "postgres://")):
        from fedbandit.network.stores.postgres import LEASE, PostgresStore

        return PostgresStore(os.fspath(where), lease=LEASE if lease is None else lease)
    from fedbandit.network.stores.sqlite import COORDINATORS_PAGES, SQLiteStore

    return SQLiteStore(where, COORDINATORS_PAGES) if many else SQLiteStore(where)


def put(store: Store, journal: StoredJournal) -> None:
    """Let a store have this journal in place of the one of its name."""
    if journal.snapshot is None:
        raise FedbanditError(f"The journal {journal.name!r} has no snapshot to begin with.")
    store.replace(journal.name, journal.snapshot)
    store.append(journal.name, journal.entries)


def copy_to(path: Path, journals: list[StoredJournal]) -> None:
    """Write journals into a new file; one that is there is not overwritten."""
    if path.exists():
        raise FedbanditError(f"There is a file {str(path)!r} already.")
    copy = open_store(path)
    for journal in journals:
        put(copy, journal)
    copy.close()
