"""A store in a PostgreSQL database (`pip install 'fedbandit[postgres]'`)."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from fedbandit.errors import needs
from fedbandit.network.stores.store import VERSION, Journal, StoreError
from fedbandit.network.stores.watchdog import Watchdog

_LOCK = 0xFEDBA  # of the advisory lock that one process holds
_SCHEMA = """
CREATE TABLE IF NOT EXISTS fedbandit_about (key TEXT PRIMARY KEY, value BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS fedbandit_snapshots (journal TEXT PRIMARY KEY, state BYTEA NOT NULL);
CREATE TABLE IF NOT EXISTS fedbandit_entries
    (position BIGSERIAL PRIMARY KEY, journal TEXT NOT NULL, entry BYTEA NOT NULL);
"""


STATEMENT_SECONDS = 30
"""After this a statement is given up by the server."""

HANGING_SECONDS = STATEMENT_SECONDS + 5
"""After this by us: a server process that is stopped, or its machine, gives up nothing, and answers keep-alives."""


def connect(psycopg: Any, url: str) -> Any:
    """A connection that notices, within a minute, that nobody answers. A password may be in PGPASSWORD or ~/.pgpass."""
    return psycopg.connect(
        url,
        autocommit=True,
        connect_timeout=10,
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
        tcp_user_timeout=STATEMENT_SECONDS * 1000,
        options=f"-c statement_timeout={STATEMENT_SECONDS}s -c lock_timeout={STATEMENT_SECONDS}s",
    )


def dump(db: Any) -> list[Journal]:
    """All journals, as one transaction sees them; for a backup no lock is needed."""
    with db.transaction():
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        snapshots = dict(db.execute("SELECT journal, state FROM fedbandit_snapshots").fetchall())
        entries: dict[str, list[bytes]] = {}
        for name, entry in db.execute("SELECT journal, entry FROM fedbandit_entries ORDER BY position").fetchall():
            entries.setdefault(name, []).append(bytes(entry))
    names = sorted({*snapshots, *entries})
    return [
        Journal(name, bytes(snapshots[name]) if name in snapshots else None, entries.get(name, [])) for name in names
    ]


class PostgresStore:
    """Journals in a database, held by one process at a time. A connection that breaks is made anew at the next use."""

    where = "PostgreSQL"

    def __init__(self, url: str, patience: float = 10.0, hanging: float = HANGING_SECONDS) -> None:
        self._psycopg = needs("psycopg", "postgres", "PostgreSQL")
        self.url = url
        self._patience = patience
        self._db: Any = None
        self._one_at_a_time = threading.RLock()
        self._watchdog = Watchdog(hanging, self._hang_up)
        with self._explained("opened"):
            self._connect()

    def read(self, journal: str) -> tuple[bytes | None, list[bytes]]:
        """The snapshot and the entries since."""
        with self._explained("read"), self._connection().transaction():
            found = self._db.execute("SELECT state FROM fedbandit_snapshots WHERE journal = %s", (journal,)).fetchone()
            query = "SELECT entry FROM fedbandit_entries WHERE journal = %s ORDER BY position"
            rows = self._db.execute(query, (journal,)).fetchall()
            return (None if found is None else bytes(found[0])), [bytes(entry) for (entry,) in rows]

    def append(self, journal: str, entries: Sequence[bytes], *, durable: bool = True) -> None:
        """Add entries, all or none."""
        with self._transaction(durable), self._db.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO fedbandit_entries (journal, entry) VALUES (%s, %s)",
                [(journal, entry) for entry in entries],
            )

    def replace(self, journal: str, snapshot: bytes, *, durable: bool = True) -> None:
        """Put a snapshot in the place of everything."""
        with self._transaction(durable):
            self._db.execute(
                "INSERT INTO fedbandit_snapshots VALUES (%s, %s) "
                "ON CONFLICT (journal) DO UPDATE SET state = EXCLUDED.state",
                (journal, snapshot),
            )
            self._db.execute("DELETE FROM fedbandit_entries WHERE journal = %s", (journal,))

    def check(self) -> None:
        """Ask something, and whether this session still holds the lock."""
        with self._explained("read"):
            query = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND objid = %s"
            if self._connection().execute(query, (_LOCK,)).fetchone() is None:
                raise StoreError("The PostgreSQL store is not this coordinator's any more: its lock is lost.")

    def dump(self) -> list[Journal]:
        """All journals, as one transaction sees them."""
        with self._explained("read"):
            return dump(self._connection())

    def close(self) -> None:
        """End the connection."""
        self._watchdog.end()
        if self._db is not None:
            self._db.close()

    def _hang_up(self) -> None:
        """Shut the socket down: whoever waits on it is told that the connection is broken."""
        with suppress(self._psycopg.Error, OSError), socket.socket(fileno=os.dup(self._db.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)

    def abandon(self) -> None:
        """In a child that was forked: the connection is the parent's."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._db))

    def _connection(self) -> Any:
        if self._db is None or self._db.closed:
            self._connect()
        return self._db

    def _connect(self) -> None:
        self._db = connect(self._psycopg, self.url)
        try:
            self._take_possession()
        except BaseException:
            self._db.close()  # a connection without the lock is never used
            raise

    def _take_possession(self) -> None:
        """Get the lock, and see that the tables are there and of a version that is known."""
        deadline = time.monotonic() + self._patience  # a coordinator that was killed may be dying still
        while not self._db.execute("SELECT pg_try_advisory_lock(%s)", (_LOCK,)).fetchone()[0]:
            if time.monotonic() > deadline:
                raise StoreError("The PostgreSQL store cannot be opened: another coordinator has it open.")
            time.sleep(0.1)
        if self._db.execute("SELECT to_regclass('fedbandit_entries')").fetchone()[0] is None:  # a role may lack CREATE
            with self._db.transaction():
                self._db.execute(_SCHEMA)
                values = "INSERT INTO fedbandit_about VALUES ('version', %s) ON CONFLICT DO NOTHING"
                self._db.execute(values, (VERSION,))
        (version,) = self._db.execute("SELECT value FROM fedbandit_about WHERE key = 'version'").fetchone()
        if version > VERSION:
            raise StoreError(
                f"The PostgreSQL store is of version {version}, newer than this program knows ({VERSION})."
            )

    @contextmanager
    def _transaction(self, durable: bool) -> Iterator[None]:
        with self._explained("written"), self._connection().transaction():
            if not durable:
                self._db.execute("SET LOCAL synchronous_commit = off")
            yield

    @contextmanager
    def _explained(self, verb: str) -> Iterator[None]:
        try:
            with self._one_at_a_time, self._watchdog.watching():
                yield
        except self._psycopg.Error as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise StoreError(f"The PostgreSQL store cannot be {verb}: {reason}.") from None


class ReadOnlyPostgres:
    """A database that a running coordinator may have open, for a backup: nothing but `dump`."""

    where = "PostgreSQL"

    def __init__(self, url: str) -> None:
        psycopg = needs("psycopg", "postgres", "PostgreSQL")
        try:
            self._db = connect(psycopg, url)
        except psycopg.Error as error:
            raise StoreError(f"The PostgreSQL store cannot be opened: {' '.join(str(error).split())}.") from None

    def dump(self) -> list[Journal]:
        """All journals, as one transaction sees them."""
        return dump(self._db)

    def close(self) -> None:
        """End the connection."""
        self._db.close()
