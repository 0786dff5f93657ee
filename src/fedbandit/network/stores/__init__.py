"""Where machines keep what must survive a crash: SQLite in one file, PostgreSQL by URL, or memory."""

from __future__ import annotations

import os
import weakref

from fedbandit.network.stores.store import (
    Damaged,
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
    "Damaged",
    "InUse",
    "MemoryStore",
    "NotAllowed",
    "NotOwner",
    "Owner",
    "Store",
    "StoreError",
    "StoredJournal",
    "open_store",
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


_of_this_process: weakref.WeakSet[Store] = weakref.WeakSet()


def _abandon_in_child() -> None:
    """After a fork the child must not touch the parent's files, not even by closing them."""
    for store in list(_of_this_process):
        store.abandon()
    _of_this_process.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_in_child)
