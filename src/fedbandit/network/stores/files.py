"""Journals in a file that nobody has open: backups."""

from __future__ import annotations

import os
import sqlite3
import urllib.parse
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from fedbandit.errors import FedbanditError, as_sentence
from fedbandit.files import require_new, writing
from fedbandit.network.stores.sqlite import dump_of, explained, make_tables, put_journals, require_known, what_is_wrong
from fedbandit.network.stores.store import Damaged, StoredJournal

T = TypeVar("T")


def read_file(path: Path) -> list[StoredJournal]:
    """All journals of a file; nothing is changed, in it or beside it. One without any is refused."""
    where = repr(str(path))
    if not path.is_file():
        raise FedbanditError(f"There is no file {where}.")
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size:
        raise FedbanditError(f"The file {where} is no backup, but a store that is in use or was not closed: {log}.")
    try:
        uri = f"file:{urllib.parse.quote(str(path.absolute()))}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as db:
            if not db.execute("SELECT 1 FROM sqlite_master").fetchone():  # nor a table: it was made, but never written
                raise _without_journals(where)
            require_known(db, where)
            if (why := what_is_wrong(db)) is not None:
                raise unusable(path, why)
            journals = dump_of(db, where)
    except Damaged as error:
        raise unusable(path, error.why) from None
    except sqlite3.Error as error:
        if path.stat().st_size and getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT:
            raise unusable(path, str(error)) from None
        raise FedbanditError(f"The file {where} is no backup: {as_sentence(error)}") from None
    if not journals:
        raise _without_journals(where)
    return journals


def _without_journals(where: str) -> FedbanditError:
    return FedbanditError(f"The file {where} is no backup: there is no journal in it.")


def unusable(path: Path, why: str) -> FedbanditError:
    """The refusal of a damaged backup."""
    return FedbanditError(f"The backup {str(path)!r} is damaged: {why}; take another one.")


def set_aside(path: Path) -> Path:
    """Keep a damaged store, with its log, under another name; which it is."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    kept = path.with_name(f"{path.name}.damaged-{stamp}")
    for end in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            path.with_name(path.name + end).rename(kept.with_name(kept.name + end))
    return kept


def as_file(journals: Sequence[StoredJournal]) -> bytes:
    """Journals as the bytes of a file. It is made in memory: no temporary file can be left behind, or have no room."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        try:
            make_tables(db)
            db.execute("BEGIN")
            put_journals(db, journals)
            db.execute("COMMIT")
            return db.serialize()
        except sqlite3.Error as error:
            raise explained(error, "of the backup in memory", "written") from None


def save(path: Path, data: bytes, read: Callable[[Path], T]) -> T:
    """Write a file, whole or not at all, readable by its owner alone; one that is there is not overwritten.

    What `read` finds in it, before it has its name.
    """
    require_new(path)
    with writing(path) as partial:
        with os.fdopen(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return read(partial)
