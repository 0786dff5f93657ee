"""Where machines keep what must survive a crash: SQLite in one file, PostgreSQL by URL, or memory."""

from __future__ import annotations

import os
import weakref
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
    store = _opened(where, lease, many)
    _of_this_process.add(store)
    return store


def _opened(where: str | os.PathLike[str] | None, lease: float | None, many: bool) -> Store:
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


_of_this_process: weakref.WeakSet[Store] = weakref.WeakSet()


def _abandon_in_child() -> None:
    """After a fork the child must not touch the parent's files, not even by closing them."""
    for store in list(_of_this_process):
        store.abandon()
    _of_this_process.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_in_child)
