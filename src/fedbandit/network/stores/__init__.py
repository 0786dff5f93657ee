"""Where machines keep what must survive a crash: SQLite in one file, PostgreSQL by URL, or memory."""

from __future__ import annotations

import os

from fedbandit.network.stores.store import Journal, MemoryStore, Store, StoreError

__all__ = ["Journal", "MemoryStore", "Store", "StoreError", "open_store"]


def open_store(where: str | os.PathLike[str] | None) -> Store:
    """The store at a path or at a `postgresql://` URL; None keeps everything in memory.

    >>> type(open_store(None)).__name__
    'MemoryStore'
    """
    if where is None:
        return MemoryStore()
    if os.fspath(where).startswith(("postgresql://", "postgres://")):
        from fedbandit.network.stores.postgres import PostgresStore

        return PostgresStore(os.fspath(where))
    from fedbandit.network.stores.sqlite import SQLiteStore

    return SQLiteStore(where)
