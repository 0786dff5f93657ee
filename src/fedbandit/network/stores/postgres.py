"""A store in a PostgreSQL database (`pip install 'fedbandit[postgres]'`)."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from fedbandit.errors import needs
from fedbandit.network.stores import tables
from fedbandit.network.stores.blocks import in_blocks
from fedbandit.network.stores.claims import CHECK, Claims
from fedbandit.network.stores.compaction import Compaction
from fedbandit.network.stores.store import NotOwner, Owner, StoredJournal, StoreError, require_snapshot
from fedbandit.network.stores.tables import STATEMENT_SECONDS, connect, said_by
from fedbandit.network.stores.watchdog import Watchdog

# One statement that checks the term, reads an array and is a transaction of its own is twice as fast as BEGIN, check,
# executemany, COMMIT; COPY in the place of executemany brought little.
_APPEND = f"""
WITH owner AS ({CHECK}) INSERT INTO fedbandit_entries (journal, entry)
SELECT %s, entry FROM owner, unnest(%b::bytea[]) WITH ORDINALITY AS given (entry, place) ORDER BY place
"""
_NOT_DURABLE = "SET LOCAL synchronous_commit = off"
HANGING_SECONDS = STATEMENT_SECONDS + 5
"""After this by us: a server process that is stopped, or its machine, gives up nothing, and answers keep-alives."""
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
            snapshot = tables.snapshots_of(self._db, journal, self.where).get(journal)
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
        parts = in_blocks(snapshot)
        with self._transaction(journal, "written", durable):
            tables.write_snapshot(self._execute, journal, *parts)

    def put(self, journals: Sequence[StoredJournal]) -> None:
        """Put whole journals in the place of those of their names; each of them must be this process's."""
        parts = [in_blocks(require_snapshot(journal)) for journal in journals]
        with self._explained("written"):
            for journal in journals:
                self._own(journal.name)
            with self._connection().transaction():
                for journal in journals:
                    self.claims.require(self._db, journal.name)
                for (name, _, entries), (begin, blocks) in zip(journals, parts, strict=True):
                    tables.forget_blocks(self._execute, name)
                    tables.write_snapshot(self._execute, name, begin, blocks)
                    for some in tables.parts(entries):
                        self._execute(_APPEND, (name, self.claims.term(name), name, some))
                self._watchdog.begin()  # the end of the transaction is a statement, too

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
        compaction = Compaction(self._psycopg, self._patience)
        while True:
            with self._one_at_a_time, self._reasons("compacted"):  # a step takes as long as it takes
                pause = compaction.step(self._connection())
            if pause is None:
                return
            time.sleep(pause)

    def files(self) -> str:
        """The numbers of the tables' files: others once somebody has written them anew."""
        with self._explained("read"):
            return " ".join(map(str, tables.files(self._connection())))

    def check(self) -> None:
        """Ask something."""
        with self._explained("read"):
            self._connection().execute("SELECT 1").fetchone()

    def names(self) -> list[str]:
        """Of the journals there are."""
        with self._explained("read"):
            return tables.names(self._connection())

    def dump(self) -> list[StoredJournal]:
        """All journals, as one transaction sees them."""
        with self._explained("read"):
            return tables.dump(self._connection(), self.where)

    def delete(self, journal: str) -> None:
        """Delete a journal; its term stays, for whoever believes to own it."""
        with self._transaction(journal, "written"):
            for table in tables.TABLES:
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
        try:
            self.compact()
        finally:
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
            tables.prepare(self._psycopg, self._db, self._patience)
            # A process that is stopped in a transaction has the owner's row locked: whoever follows it waits for this.
            self._db.execute(f"SET idle_in_transaction_session_timeout = {int(1000 * self.claims.lease)}")
            self.claims.begin_terms(self._db)
        except BaseException:
            self._db.close()  # one whose terms are not known to be new is never used
            raise

    def _execute(self, query: str, values: Sequence[Any]) -> Any:
        """One statement of several: each has as long as one alone."""
        self._watchdog.begin()
        return self._db.execute(query, values)

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
                self._watchdog.begin()  # the end of the transaction is a statement, too

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
            raise said_by(error, verb) from None


class ReadOnlyPostgres:
    """A database that a running coordinator may have open, for a backup: nothing but `dump`, and no table is made."""

    where = "PostgreSQL"

    def __init__(self, url: str) -> None:
        self._psycopg = needs("psycopg", "postgres", "PostgreSQL")
        with self._reasons("opened"):
            self._db = connect(self._psycopg, url)
        try:
            with self._reasons("read"):
                tables.require_there(self._db)
        except StoreError:
            self._db.close()
            raise

    def dump(self) -> list[StoredJournal]:
        """All journals, as one transaction sees them."""
        with self._reasons("read"):
            return tables.dump(self._db, self.where)

    def close(self) -> None:
        """End the connection."""
        self._db.close()

    @contextmanager
    def _reasons(self, verb: str) -> Iterator[None]:
        try:
            yield
        except self._psycopg.Error as error:
            raise said_by(error, verb) from None
