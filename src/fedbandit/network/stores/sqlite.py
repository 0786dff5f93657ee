"""A store in one SQLite file (write-ahead log; one process at a time)."""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from fedbandit.errors import as_sentence
from fedbandit.network.stores.blocks import in_blocks, of_blocks
from fedbandit.network.stores.store import (
    FIRST_VERSION,
    VERSION,
    Damaged,
    InUse,
    OneProcess,
    StoredJournal,
    StoreError,
    require_snapshot,
)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS snapshots (journal TEXT PRIMARY KEY, state BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS blocks (journal TEXT NOT NULL, place INTEGER NOT NULL, digest BLOB NOT NULL,
    data BLOB NOT NULL, PRIMARY KEY (journal, place));
CREATE TABLE IF NOT EXISTS entries (position INTEGER PRIMARY KEY, journal TEXT NOT NULL, entry BLOB NOT NULL);
"""


COORDINATORS_PAGES = 32_768
"""Bytes of a page in a coordinator's file. An entry of 41 kB (d = 100) is ten pages of the usual 4 kB, each of which is
linked, written and, when a snapshot takes its place, read once more: pages that hold it take a quarter of an upload's
processor time away at d = 100 and a tenth at d = 25. A client, which writes some hundred bytes at a time, writes whole
pages, and keeps the small ones."""


_KEEP = (
    "keep the file and {remedy}: with a new one a node has lost its privacy ledger and what was not sent yet, and may "
    "be refused for ever"
)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class SQLiteStore(OneProcess):
    """Journals in a file. A second process that opens the file is refused: two would undo each other's work.

    `page` is for a file that is made; one that is there stays as it is.
    """

    def __init__(self, path: str | os.PathLike[str], page: int = 4096) -> None:
        self.path, self._page = os.fspath(path), page
        self.where = repr(self.path)
        self._durable: bool | None = None
        self._one_at_a_time = threading.RLock()
        try:
            opened = os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600)  # a client's has exact data
            self._file = _identity(os.fstat(opened))
            os.close(opened)
        except OSError as error:
            raise StoreError(f"The store {self.where} cannot be opened: {error.strerror}.") from None
        try:
            self._db = sqlite3.connect(self.path, timeout=0.0, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise explained(error, self.where, "opened") from None
        try:
            self._prepare()
        except StoreError:
            self._db.close()
            raise

    def _prepare(self) -> None:
        with self._explained("opened"):
            self._db.execute(f"PRAGMA page_size = {self._page}")
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            make_tables(self._db)
            require_known(self._db, self.where)
            why = what_is_wrong(self._db)
        if why is not None:
            keep = _KEEP.format(remedy="restore its newest backup")
            raise Damaged(f"The store {self.where} is damaged: {why}; {keep}.", why)

    def read(self, journal: str) -> tuple[bytes | None, list[bytes]]:
        """The snapshot and the entries since."""
        with self._explained("read"):
            return read_journal(self._db, journal, self.where)

    def append(self, journal: str, entries: Sequence[bytes], *, durable: bool = True) -> None:
        """Add entries, all or none."""
        with self._transaction(durable):
            write_entries(self._db, journal, entries)

    def replace(self, journal: str, snapshot: bytes, *, durable: bool = True) -> None:
        """Put a snapshot in the place of everything."""
        with self._transaction(durable):
            write_snapshot(self._db, journal, snapshot)

    def delete(self, journal: str) -> None:
        """Delete a journal."""
        with self._transaction(durable=True):
            for table in ("snapshots", "blocks", "entries"):
                self._db.execute(f"DELETE FROM {table} WHERE journal = ?", (journal,))

    def put(self, journals: Sequence[StoredJournal]) -> None:
        """Put whole journals in the place of those of their names."""
        with self._transaction(durable=True):
            put_journals(self._db, journals)

    def compact(self) -> None:
        """Write the file anew, and empty the log: neither has anything that was deleted."""
        with self._explained("written"):
            self._db.execute("PRAGMA secure_delete = ON")  # room that pages do not use is filled with zeros
            self._db.execute("VACUUM")
            busy, *_ = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                raise StoreError(f"The store {self.where} cannot be written: its log is in use.")

    def check(self) -> None:
        """Read something, and see whether the file is still the one that was opened."""
        with self._explained("read"):
            self._db.execute("SELECT value FROM about WHERE key = 'version'").fetchone()
            try:
                there = _identity(os.stat(self.path))
            except OSError:
                raise StoreError(f"The store {self.where} is gone.") from None
            if there != self._file:
                raise StoreError(f"The store {self.where} is not the file that was opened: another has its name now.")

    def names(self) -> list[str]:
        """Of the journals there are."""
        with self._explained("read"):
            return names_of(self._db)

    def dump(self) -> list[StoredJournal]:
        """All journals, in one transaction."""
        with self._explained("read"):
            return dump_of(self._db, self.where)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def remove(self) -> None:
        """Close the file and remove it."""
        self.close()
        for path in (self.path, f"{self.path}-wal", f"{self.path}-shm"):
            with suppress(FileNotFoundError):
                os.unlink(path)

    def abandon(self) -> None:
        """In a child that was forked: never touch the file, which is the parent's; closing it would end its log."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._db))  # so that nothing ever closes it here

    @contextmanager
    def _transaction(self, durable: bool) -> Iterator[None]:
        with self._explained("written"):
            if durable != self._durable:  # NORMAL: the operating system writes the log when it likes
                self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                self._durable = durable
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _explained(self, verb: str) -> Iterator[None]:
        try:
            with self._one_at_a_time:
                yield
        except sqlite3.Error as error:
            raise explained(error, self.where, verb) from None


# The tables, whatever connection they are seen through


def make_tables(db: sqlite3.Connection) -> None:
    """Those that are not there."""
    db.executescript("BEGIN IMMEDIATE;" + _SCHEMA + "COMMIT;")
    db.execute("INSERT OR IGNORE INTO about VALUES ('version', ?)", (FIRST_VERSION,))


def require_known(db: sqlite3.Connection, where: str) -> None:
    """Refuse a file of a newer version."""
    (version,) = db.execute("SELECT value FROM about WHERE key = 'version'").fetchone()
    if version > VERSION:
        keep = _KEEP.format(remedy="install a version of fedbandit that reads it")
        raise StoreError(f"The store {where} is of version {version}, newer than is known here ({VERSION}); {keep}.")


def what_is_wrong(db: sqlite3.Connection) -> str | None:
    """None unless anything in a file is lost, or out of order.

    What is stored has checksums, but to which journal it belongs, and its place there, has none.
    """
    named = "SELECT journal FROM entries UNION SELECT journal FROM blocks"
    stray = f"SELECT journal FROM ({named}) WHERE journal NOT IN (SELECT journal FROM snapshots) LIMIT 1"
    (said,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    if said != "ok":
        return " ".join(said.split())
    of_none = db.execute(stray).fetchone()
    return None if of_none is None else f"a part is of {of_none[0]!r}, which is not there"


def names_of(db: sqlite3.Connection) -> list[str]:
    """Of the journals there are."""
    query = "SELECT journal FROM snapshots UNION SELECT journal FROM entries ORDER BY journal"
    return [name for (name,) in db.execute(query)]


def read_journal(db: sqlite3.Connection, journal: str, where: str) -> tuple[bytes | None, list[bytes]]:
    """The snapshot and the entries since."""
    found = db.execute("SELECT state FROM snapshots WHERE journal = ?", (journal,)).fetchone()
    blocks = db.execute("SELECT place, digest, data FROM blocks WHERE journal = ? ORDER BY place", (journal,))
    snapshot = None if found is None else of_blocks(found[0], blocks, journal, where)
    rows = db.execute("SELECT entry FROM entries WHERE journal = ? ORDER BY position", (journal,))
    return snapshot, [entry for (entry,) in rows]


def dump_of(db: sqlite3.Connection, where: str) -> list[StoredJournal]:
    """All journals."""
    return [StoredJournal(name, *read_journal(db, name, where)) for name in names_of(db)]


def write_snapshot(db: sqlite3.Connection, journal: str, snapshot: bytes) -> None:
    """In the place of everything; of a long one those blocks that have changed."""
    begin, blocks = in_blocks(snapshot)
    db.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?)", (journal, begin))
    known = dict(db.execute("SELECT place, digest FROM blocks WHERE journal = ?", (journal,)).fetchall())
    db.executemany(
        "INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?)",
        ((journal, *block) for block in blocks if known.get(block.place) != block.digest),
    )
    if len(known) > len(blocks):
        db.execute("DELETE FROM blocks WHERE journal = ? AND place >= ?", (journal, len(blocks)))
    if blocks:
        db.execute("UPDATE about SET value = ? WHERE key = 'version'", (VERSION,))
    db.execute("DELETE FROM entries WHERE journal = ?", (journal,))


def write_entries(db: sqlite3.Connection, journal: str, entries: Sequence[bytes]) -> None:
    """Behind those that are there."""
    db.executemany("INSERT INTO entries (journal, entry) VALUES (?, ?)", ((journal, entry) for entry in entries))


def put_journals(db: sqlite3.Connection, journals: Sequence[StoredJournal]) -> None:
    """In the place of those of their names, every block of them."""
    for journal in journals:
        snapshot = require_snapshot(journal)
        db.execute("DELETE FROM blocks WHERE journal = ?", (journal.name,))
        write_snapshot(db, journal.name, snapshot)
        write_entries(db, journal.name, journal.entries)


def explained(error: sqlite3.Error, where: str, verb: str) -> StoreError:
    """What SQLite has said, with what to do about it."""
    if "locked" in str(error):
        return InUse(f"The store {where} cannot be {verb}: another process has it open.")
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:  # beside these eight bits: where it was seen
        keep = _KEEP.format(remedy="restore its newest backup")
        return Damaged(f"The store {where} cannot be {verb}: {error}; {keep}.", str(error))
    return StoreError(f"The store {where} cannot be {verb}: {as_sentence(error)}")


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
