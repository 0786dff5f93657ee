"""A store in a PostgreSQL database (`pip install 'fedbandit[postgres]'`)."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from fedbandit.errors import needs
from fedbandit.network.stores.blocks import in_blocks, of_blocks
from fedbandit.network.stores.claims import CHECK, Claims
from fedbandit.network.stores.store import NotAllowed, NotOwner, Owner, StoredJournal, StoreError

VERSION = 3
"""Of the tables. 1 had no owners: one process held the whole database, by the lock `_FIRST_LOCK`. 2 had no blocks."""
_FIRST_LOCK = 0xFEDBA
_SCHEMA = """
CREATE TABLE IF NOT EXISTS fedbandit_about (key TEXT PRIMARY KEY, value BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS fedbandit_snapshots (journal TEXT PRIMARY KEY, state BYTEA NOT NULL);
CREATE TABLE IF NOT EXISTS fedbandit_blocks (journal TEXT NOT NULL, place INTEGER NOT NULL, digest BYTEA NOT NULL,
    data BYTEA NOT NULL, PRIMARY KEY (journal, place));
ALTER TABLE fedbandit_blocks ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE TABLE IF NOT EXISTS fedbandit_entries
    (position BIGSERIAL PRIMARY KEY, journal TEXT NOT NULL, entry BYTEA NOT NULL) WITH (toast_tuple_target = 8160);
ALTER TABLE fedbandit_entries ALTER COLUMN entry SET STORAGE EXTERNAL;
CREATE TABLE IF NOT EXISTS fedbandit_owners (journal TEXT PRIMARY KEY, term BIGINT NOT NULL, holder BIGINT NOT NULL,
    address TEXT NOT NULL, configuration TEXT NOT NULL);
"""
# Entries are floats, which PostgreSQL cannot compress, and those of 2 to 8 kB (d = 25) stay in their rows: 1.4 times as
# fast as by default. One statement that checks the term, reads an array and is a transaction of its own is twice as
# fast as BEGIN, check, executemany, COMMIT; COPY in the place of executemany brought little.
_APPEND = f"""
WITH owner AS ({CHECK}) INSERT INTO fedbandit_entries (journal, entry)
SELECT %s, entry FROM owner, unnest(%b::bytea[]) WITH ORDINALITY AS given (entry, place) ORDER BY place
"""
_WRITE_BLOCKS = """
INSERT INTO fedbandit_blocks SELECT %s, * FROM unnest(%s::integer[], %b::bytea[], %b::bytea[])
ON CONFLICT (journal, place) DO UPDATE SET digest = EXCLUDED.digest, data = EXCLUDED.data
"""
_AT_ONCE = 64
"""Blocks in a statement."""

_NOT_DURABLE = "SET LOCAL synchronous_commit = off"
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
        options=f"-c statement_timeout={STATEMENT_SECONDS}s -c lock_timeout={STATEMENT_SECONDS}s "
        f"-c idle_in_transaction_session_timeout={STATEMENT_SECONDS}s",
    )


def dump(db: Any) -> list[StoredJournal]:
    """All journals, as one transaction sees them; for a backup no lock is needed."""
    with db.transaction():
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        snapshots = snapshots_of(db, None)
        entries: dict[str, list[bytes]] = {}
        for name, entry in db.execute("SELECT journal, entry FROM fedbandit_entries ORDER BY position").fetchall():
            entries.setdefault(name, []).append(bytes(entry))
    names = sorted({*snapshots, *entries})
    return [StoredJournal(name, snapshots.get(name), entries.get(name, [])) for name in names]


def snapshots_of(db: Any, journal: str | None) -> dict[str, bytes]:
    """The snapshot of this journal, or of all if it is None."""
    chosen, which = ("", ()) if journal is None else ("WHERE journal = %s", (journal,))
    begins = db.execute(f"SELECT journal, state FROM fedbandit_snapshots {chosen}", which).fetchall()
    blocks: dict[str, list[bytes]] = {}
    query = f"SELECT journal, data FROM fedbandit_blocks {chosen} ORDER BY journal, place"
    for name, data in db.execute(query, which).fetchall():
        blocks.setdefault(name, []).append(data)
    return {name: of_blocks(bytes(begin), blocks.get(name, [])) for name, begin in begins}


TABLES = ("fedbandit_snapshots", "fedbandit_blocks", "fedbandit_entries")
LEASE = 5.0
"""Seconds after which an owner that shows no sign of life may be followed by another."""


class PostgresStore:
    """Journals in a database, each owned by one process at a time (`claims.py`). A connection that breaks is made anew.

    A journal that was not claimed is claimed when it is first read or written; `patience` is how long that waits for
    another owner, which may be dying.
    """

    where = "PostgreSQL"

    def __init__(
        self, url: str, patience: float = 10.0, lease: float = LEASE, hanging: float = HANGING_SECONDS
    ) -> None:
        self._psycopg = needs("psycopg", "postgres", "PostgreSQL")
        self.url = url
        self._patience = patience
        self._db: Any = None
        self._one_at_a_time = threading.RLock()
        self._watchdog = Watchdog(hanging, self._hang_up)
        self.claims = Claims(self._psycopg, lambda: connect(self._psycopg, url), lease)
        with self._explained("opened"):
            self._connect()

    def read(self, journal: str) -> tuple[bytes | None, list[bytes]]:
        """The snapshot and the entries since."""
        with self._transaction(journal, "read"):
            snapshot = snapshots_of(self._db, journal).get(journal)
            query = "SELECT entry FROM fedbandit_entries WHERE journal = %s ORDER BY position"
            rows = self._db.execute(query, (journal,)).fetchall()
            return snapshot, [bytes(entry) for (entry,) in rows]

    def append(self, journal: str, entries: Sequence[bytes], *, durable: bool = True) -> None:
        """Add entries, all or none."""
        if not entries:
            return
        with self._explained("written"):
            self._own(journal)
            db, begun = self._connection(), time.monotonic()
            with nullcontext() if durable else db.transaction():
                if not durable:
                    db.execute(_NOT_DURABLE)
                written = db.execute(_APPEND, (journal, self.claims.term(journal), journal, list(entries))).rowcount
            self.claims.note(db, journal, begun, written > 0)

    def replace(self, journal: str, snapshot: bytes, *, durable: bool = True) -> None:
        """Put a snapshot in the place of everything."""
        begin, blocks = in_blocks(snapshot)
        with self._transaction(journal, "written", durable):
            self._db.execute(
                "INSERT INTO fedbandit_snapshots VALUES (%s, %s) "
                "ON CONFLICT (journal) DO UPDATE SET state = EXCLUDED.state",
                (journal, begin),
            )
            query = "SELECT place, digest FROM fedbandit_blocks WHERE journal = %s"
            known = {place: bytes(digest) for place, digest in self._db.execute(query, (journal,)).fetchall()}
            changed = [block for block in blocks if known.get(block.place) != block.digest]
            for start in range(0, len(changed), _AT_ONCE):
                places, digests, data = zip(*changed[start : start + _AT_ONCE], strict=True)
                self._db.execute(_WRITE_BLOCKS, (journal, list(places), list(digests), list(map(bytes, data))))
            if len(known) > len(blocks):
                query = "DELETE FROM fedbandit_blocks WHERE journal = %s AND place >= %s"
                self._db.execute(query, (journal, len(blocks)))
            self._db.execute("DELETE FROM fedbandit_entries WHERE journal = %s", (journal,))

    # Owners

    def claim(self, journal: str, address: str = "", configuration: str = "") -> None:
        """Become the owner of a journal, under a new term."""
        with self._reasons("claimed"):
            self.claims.claim(journal, address, configuration)

    def release(self, journal: str) -> None:
        """Be its owner no longer."""
        self.claims.release(journal)

    def holds(self, journal: str) -> bool:
        """Whether it was this process's a moment ago."""
        return self.claims.holds(journal)

    def confirm(self, journal: str) -> None:
        """Ask whether it is this process's now."""
        with self._transaction(journal, "read"):
            pass

    def owner(self, journal: str) -> Owner | None:
        """Whose it is, or was last."""
        with self._explained("read"):
            return self.claims.owner(self._connection(), journal)

    # The whole of it

    def compact(self) -> None:
        """Write the tables anew, without what was deleted or replaced. Needs the role that made them."""
        # A row version that an older transaction may still look at would be copied.
        others = """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
            AND pid <> pg_backend_pid() AND backend_xmin IS NOT NULL"""
        with self._one_at_a_time, self._reasons("compacted"):  # however long it takes
            db, deadline = self._connection(), time.monotonic() + self._patience
            while db.execute(others).fetchone()[0] and time.monotonic() < deadline:
                time.sleep(0.05)
            before = self.files()
            db.execute("SET statement_timeout = 0")
            try:
                for table in TABLES:
                    db.execute(f"VACUUM FULL {table}")
                with suppress(self._psycopg.errors.InsufficientPrivilege):
                    db.execute("SELECT pg_switch_wal()")
                    db.execute("CHECKPOINT")  # segments of the log that were written before are not needed any more
            finally:
                with suppress(self._psycopg.Error):
                    db.execute(f"SET statement_timeout = '{STATEMENT_SECONDS}s'")
            if any(old == new for old, new in zip(before.split(), self.files().split(), strict=True)):
                raise NotAllowed(
                    "The PostgreSQL store cannot be compacted: its tables are of another role, which has to run VACUUM "
                    f"FULL {', '.join(TABLES)}; or, from PostgreSQL 17 on, grant MAINTAIN on them."
                )

    def files(self) -> str:
        """The numbers of the tables' files: others once somebody has written them anew."""
        numbers = ", ".join(f"pg_relation_filenode('{table}')" for table in TABLES)
        with self._explained("read"):
            return " ".join(map(str, self._connection().execute(f"SELECT {numbers}").fetchone()))

    def check(self) -> None:
        """Ask something."""
        with self._explained("read"):
            self._connection().execute("SELECT 1").fetchone()

    def dump(self) -> list[StoredJournal]:
        """All journals, as one transaction sees them."""
        with self._explained("read"):
            return dump(self._connection())

    def names(self) -> list[str]:
        """Of the journals there are."""
        with self._explained("read"):
            return sorted(n for (n,) in self._connection().execute("SELECT journal FROM fedbandit_snapshots"))

    def delete(self, journal: str) -> None:
        """Delete a journal; its term stays, for whoever believes to own it."""
        with self._transaction(journal, "written"):
            for table in TABLES:
                self._db.execute(f"DELETE FROM {table} WHERE journal = %s", (journal,))

    def close(self) -> None:
        """End the connections."""
        self.claims.close()
        self._watchdog.end()
        if self._db is not None:
            self._db.close()

    def _hang_up(self) -> None:
        """Shut the socket down: whoever waits on it is told that the connection is broken."""
        with suppress(self._psycopg.Error, OSError), socket.socket(fileno=os.dup(self._db.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)

    def remove(self) -> None:
        """Delete the journals that are or were this process's, if nobody else has them, and close."""
        for journal in {*self.claims.terms, *self.claims.lost}:
            self.claim(journal)
            self.delete(journal)
        self.compact()
        self.close()

    def abandon(self) -> None:
        """In a child that was forked: the connections are the parent's."""
        for db in (self._db, self.claims):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(db))

    # How

    def _connection(self) -> Any:
        if self._db is None or self._db.closed:
            self._connect()
        return self._db

    def _connect(self) -> None:
        self._db = connect(self._psycopg, self.url)
        try:
            self._prepare()
            # A process that is stopped in a transaction has the owner's row locked: whoever follows it waits for this.
            self._db.execute(f"SET idle_in_transaction_session_timeout = {int(1000 * self.claims.lease)}")
            self.claims.begin_terms(self._db)
        except BaseException:
            self._db.close()  # one whose terms are not known to be new is never used
            raise

    def _prepare(self) -> None:
        """See that the tables are there and of a version that is known."""
        deadline = time.monotonic() + self._patience
        while (version := self._version()) < VERSION:
            if self._db.execute("SELECT pg_try_advisory_lock(%s)", (_FIRST_LOCK,)).fetchone()[0]:
                try:
                    with self._db.transaction():
                        self._db.execute(_SCHEMA)
                        values = "INSERT INTO fedbandit_about VALUES ('version', %s) "
                        self._db.execute(values + "ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value", (VERSION,))
                except self._psycopg.errors.InsufficientPrivilege:
                    there = f"its tables are of version {version}" if version else "it has no tables"
                    raise StoreError(
                        f"The PostgreSQL store cannot be opened: {there}, and this role may not make those of version "
                        f"{VERSION}; let the role that owns the database start a coordinator once."
                    ) from None
                self._db.execute("SELECT pg_advisory_unlock(%s)", (_FIRST_LOCK,))
            elif time.monotonic() > deadline:
                raise StoreError("The PostgreSQL store cannot be opened: an older version has it open.")
            else:
                time.sleep(0.1)
        if version > VERSION:
            raise StoreError(
                f"The PostgreSQL store is of version {version}, newer than this program knows ({VERSION})."
            )

    def _version(self) -> int:
        """Of the tables; 0 if there are none."""
        if self._db.execute("SELECT to_regclass('fedbandit_entries')").fetchone()[0] is None:  # a role may lack CREATE
            return 0
        return int(self._db.execute("SELECT value FROM fedbandit_about WHERE key = 'version'").fetchone()[0])

    @contextmanager
    def _transaction(self, journal: str, verb: str, durable: bool = True) -> Iterator[None]:
        """A transaction in which this process is the owner of a journal, from the beginning to the end."""
        with self._explained(verb):
            self._own(journal)
            with self._connection().transaction():
                self.claims.require(self._db, journal)
                if not durable:
                    self._db.execute(_NOT_DURABLE)
                yield

    def _own(self, journal: str) -> None:
        """Claim a journal that was never claimed."""
        deadline = time.monotonic() + self._patience
        while journal not in self.claims.terms and journal not in self.claims.lost:
            try:
                self.claims.claim(journal, "", "")
            except NotOwner:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    @contextmanager
    def _explained(self, verb: str) -> Iterator[None]:
        with self._one_at_a_time, self._watchdog.watching(), self._reasons(verb):
            yield

    @contextmanager
    def _reasons(self, verb: str) -> Iterator[None]:
        try:
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

    def dump(self) -> list[StoredJournal]:
        """All journals, as one transaction sees them."""
        return dump(self._db)

    def close(self) -> None:
        """End the connection."""
        self._db.close()


class Watchdog:
    """Calls `interrupt`, in a thread of its own, while an operation has been under way for more than `seconds`."""

    def __init__(self, seconds: float, interrupt: Callable[[], None]) -> None:
        self.seconds, self._interrupt = seconds, interrupt
        self._since: float | None = None
        self._ended = threading.Event()
        threading.Thread(target=self._watch, name="fedbandit-watchdog", daemon=True).start()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While an operation is under way; one inside another counts from when the outer one began."""
        outer, self._since = self._since, self._since or time.monotonic()
        try:
            yield
        finally:
            self._since = outer

    def end(self) -> None:
        """Nothing is watched any more."""
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(min(1.0, self.seconds / 4)):
            since = self._since
            if since is not None and time.monotonic() - since > self.seconds:
                self._interrupt()
