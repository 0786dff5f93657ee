"""Backups: all journals of a store in one SQLite file, whatever the store is; and stores made of them again."""

from __future__ import annotations

import os
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Protocol

from fedbandit.errors import FedbanditError
from fedbandit.network.coordinator.journal import KIND
from fedbandit.network.stores import StoredJournal, StoreError, copy_to
from fedbandit.network.stores.sqlite import SQLiteStore
from fedbandit.state import unpack, unpack_entry


class Dumped(Protocol):
    """Whatever has journals."""

    def dump(self) -> list[StoredJournal]:
        """All of them, as they are at one time."""
        ...


def write_backup(store: Dumped) -> bytes:
    """A backup of a store that may be in use, as the bytes of a file."""
    journals = store.dump()
    with tempfile.TemporaryDirectory(prefix="fedbandit-") as folder:
        path = Path(folder) / "backup.db"
        copy_to(path, journals)
        return path.read_bytes()


def read_backup(path: Path) -> list[StoredJournal]:
    """The journals of a backup, each of which can be read."""
    if not path.is_file():
        raise FedbanditError(f"There is no file {str(path)!r}.")
    with tempfile.TemporaryDirectory(prefix="fedbandit-") as folder:  # a copy: nothing beside the file is changed
        copy = Path(folder) / "backup.db"
        copy.write_bytes(path.read_bytes())
        try:
            with closing(SQLiteStore(copy)) as store:
                journals = store.dump()
        except StoreError as error:  # of the copy, with advice for a node's own store
            reason, _, _ = str(error).rstrip(".").partition(";")
            raise FedbanditError(f"{reason.replace(f'store {str(copy)!r}', f'backup {str(path)!r}')}.") from None
    for journal in journals:
        unpack(KIND, journal.snapshot or b"", repr(str(path)))
        for entry in journal.entries:
            unpack_entry(KIND, entry, repr(str(path)))
    return journals


def save(path: Path, data: bytes) -> None:
    """Write a backup, whole or not at all, readable by its owner alone; a file that is there is not overwritten."""
    if path.exists():
        raise FedbanditError(f"There is a file {str(path)!r} already.")
    partial = path.with_name(path.name + ".partial")
    with os.fdopen(os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    read_backup(partial)
    os.replace(partial, path)
