"""A store in one SQLite file (write-ahead log; one process at a time)."""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from fedbandit.network.stores.blocks import in_blocks, of_blocks
from fedbandit.network.stores.store import FIRST_VERSION, VERSION, InUse, OneProcess, StoredJournal, StoreError

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
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))  # a client's has exact data
        except OSError as error:
            raise StoreError(f"The store {self.where} cannot be opened: {error.strerror}.") from None
        try:
            self._db = sqlite3.connect(self.path, timeout=0.0, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise StoreError(f"The store {self.where} cannot be opened: {error}.") from None
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
            self._db.executescript("BEGIN IMMEDIATE;" + _SCHEMA + "COMMIT;")
            self._db.execute("INSERT OR IGNORE INTO about VALUES ('version', ?)", (FIRST_VERSION,))
            (version,) = self._db.execute("SELECT value FROM about WHERE key = 'version'").fetchone()
        if version > VERSION:
            keep = _KEEP.format(remedy="install a version of fedbandit that reads it")
            raise StoreError(
                f"The store {self.where} is of version {version}, newer than is known here ({VERSION}); {keep}."
            )
        self._require_whole()

    def _require_whole(self) -> None:
        """Refuse a file in which anything is lost, or out of order.

        What is stored has checksums, but to which journal it belongs, and its place there, has none.
        """
        named = "SELECT journal FROM entries UNION SELECT journal FROM blocks"
        stray = f"SELECT journal FROM ({named}) WHERE journal NOT IN (SELECT journal FROM snapshots) LIMIT 1"
        with self._explained("read"):
            (said,) = self._db.execute("PRAGMA integrity_check(1)").fetchone()
            of_none = self._db.execute(stray).fetchone()
        if said != "ok" or of_none is not None:
            why = " ".join(said.split()) if of_none is None else f"a part is of {of_none[0]!r}, which is not there"
            keep = _KEEP.format(remedy="restore its newest backup")
            raise StoreError(f"The store {self.where} is damaged: {why}; {keep}.")

    def read(self, journal: str) -> tuple[bytes | None, list[bytes]]:
        """The snapshot and the entries since."""
        with self._explained("read"):
            found = self._db.execute("SELECT state FROM snapshots WHERE journal = ?", (journal,)).fetchone()
            blocks = self._db.execute("SELECT data FROM blocks WHERE journal = ? ORDER BY place", (journal,))
            snapshot = None if found is None else of_blocks(found[0], (data for (data,) in blocks))
            rows = self._db.execute("SELECT entry FROM entries WHERE journal = ? ORDER BY position", (journal,))
            return snapshot, [entry for (entry,) in rows]

    def append(self, journal: str, entries: Sequence[bytes], *, durable: bool = True) -> None:
        """Add entries, all or none."""
        with self._transaction(durable):
            self._db.executemany(
                "INSERT INTO entries (journal, entry) VALUES (?, ?)", ((journal, entry) for entry in entries)
            )

    def replace(self, journal: str, snapshot: bytes, *, durable: bool = True) -> None:
        """Put a snapshot in the place of everything."""
        begin, blocks = in_blocks(snapshot)
        with self._transaction(durable):
            self._db.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?)", (journal, begin))
            known = dict(self._db.execute("SELECT place, digest FROM blocks WHERE journal = ?", (journal,)).fetchall())
            self._db.executemany(
                "INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?)",
                ((journal, *block) for block in blocks if known.get(block.place) != block.digest),
            )
            if len(known) > len(blocks):
                self._db.execute("DELETE FROM blocks WHERE journal = ? AND place >= ?", (journal, len(blocks)))
            if blocks:
                self._db.execute("UPDATE about SET value = ? WHERE key = 'version'", (VERSION,))
            self._db.execute("DELETE FROM entries WHERE journal = ?", (journal,))

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
            if not os.path.exists(self.path):
                raise StoreError(f"The store {self.where} is gone.")

    def dump(self) -> list[StoredJournal]:
        """All journals, in one transaction."""
        with self._explained("read"):
            return [StoredJournal(name, *self.read(name)) for name in self.names()]

    def names(self) -> list[str]:
        """Of the journals there are."""
        with self._explained("read"):
            found = self._db.execute("SELECT journal FROM snapshots UNION SELECT journal FROM entries").fetchall()
            return [name for (name,) in found]

    def delete(self, journal: str) -> None:
        """Delete a journal."""
        with self._transaction(durable=True):
            for table in ("snapshots", "blocks", "entries"):
                self._db.execute(f"DELETE FROM {table} WHERE journal = ?", (journal,))

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
            if "locked" in str(error):
                raise InUse(f"The store {self.where} cannot be {verb}: another process has it open.") from None
            keep = ""
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:  # beside these eight bits: where it was seen
                keep = f"; {_KEEP.format(remedy='restore its newest backup')}"
            raise StoreError(f"The store {self.where} cannot be {verb}: {error}{keep}.") from None
