"""Where machines keep what must survive a crash: SQLite in one file, PostgreSQL by URL, or memory."""

from __future__ import annotations

import os

from fedbandit.network.stores.store import Journal, MemoryStore, NotOwner, Owner, Store, StoreError

__all__ = ["Journal", "MemoryStore", "NotOwner", "Owner", "Store", "StoreError", "open_store"]


def open_store(where: str | os.PathLike[str] | None, lease: float | None = None) -> Store:
    """The store at a path or at a `postgresql://` URL; None keeps everything in memory.

    `lease` is for how many seconds an owner in PostgreSQL may give no sign of life before another can follow it.

    >>> type(open_store(None)).__name__
    'MemoryStore'
    """
    if where is None:
        return MemoryStore()
    if os.fspath(where).startswith(("postgresql://", "postgres://")):
        from fedbandit.network.stores.postgres import LEASE, PostgresStore

        return PostgresStore(os.fspath(where), lease=LEASE if lease is None else lease)
    from fedbandit.network.stores.sqlite import SQLiteStore

    return SQLiteStore(where)
