"""Who owns a journal in a PostgreSQL database that several coordinators share.

| what                                      | for                                                                     |
|-------------------------------------------|-------------------------------------------------------------------------|
| an advisory lock, on a session of its own | to notice that an owner is gone: the server frees it with the session   |
| `idle_session_timeout` of that session    | the server ends it if its process is stopped or cut off for `lease` s   |
| a row with a term, counted up by a claim  | safety: every write checks the term, and locks the row, in its own      |
|                                           | transaction (`CHECK`), so that a claim waits for it or it for a claim    |
| a random number of the process, `holder`  | to tell its own later terms from those of others                        |

The lock alone would not do: behind a pooler, after a failover of the server, or in a process that was stopped between
looking and writing, two may think that they have it. Then the later term writes, and the other one cannot.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fedbandit.network.stores.store import NotOwner, Owner

CHECK = "SELECT 1 FROM fedbandit_owners WHERE journal = %s AND term = %s FOR SHARE"
"""Whether a term is still the last one; nobody can begin another before this transaction is over."""
_BUMP = "UPDATE fedbandit_owners SET term = term + 1 WHERE journal = %s AND holder = %s AND term = %s RETURNING term"
_CLAIM = """
INSERT INTO fedbandit_owners (journal, term, holder, address, configuration) VALUES (%s, 1, %s, %s, %s)
ON CONFLICT (journal) DO UPDATE SET term = fedbandit_owners.term + 1, holder = EXCLUDED.holder,
    address = EXCLUDED.address, configuration = EXCLUDED.configuration RETURNING term
"""


def lock_number(journal: str) -> int:
    """The number of a journal's advisory lock, of 64 bits."""
    return int.from_bytes(hashlib.blake2b(f"fedbandit/{journal}".encode(), digest_size=8).digest(), "big", signed=True)


class Claims:
    """The journals that this process owns. `connect` makes a session; a thread keeps the one with the locks alive."""

    def __init__(self, psycopg: Any, connect: Callable[[], Any], lease: float) -> None:
        self._psycopg, self._connect, self.lease = psycopg, connect, lease
        self.holder = secrets.randbits(62)
        self.terms: dict[str, int] = {}
        """The term of each journal that is this process's."""
        self.lost: set[str] = set()
        """Journals that were, and may not be written before they are claimed again."""
        self._sure: dict[str, float] = {}  # when each was known to be this process's
        self._unneeded: set[str] = set()  # locks that this session may still have
        self._db: Any = None
        self._one_at_a_time = threading.RLock()  # for the session with the locks
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def claim(self, journal: str, address: str, configuration: str) -> None:
        """Take the lock and begin a term, or say whose it is."""
        with self._one_at_a_time:
            begun = time.monotonic()
            db = self._session()
            self._unlock_unneeded()
            if not _locked(db, journal):
                raise NotOwner(journal, self.owner(db, journal))
            try:
                (term,) = db.execute(_CLAIM, (journal, self.holder, address, configuration)).fetchone()
            except BaseException:
                self._unlock(journal)
                raise
            self.lost.discard(journal)
            self._sure[journal] = begun
            self.terms[journal] = term
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep_alive, name="fedbandit-owner", daemon=True)
                self._thread.start()

    def release(self, journal: str) -> None:
        """Give up a journal."""
        if journal not in self.terms:
            return
        self.lose(journal)
        if not self._one_at_a_time.acquire(timeout=self.lease):  # the server hangs
            return
        try:
            query = "UPDATE fedbandit_owners SET address = '' WHERE journal = %s AND holder = %s"
            self._unlock_unneeded()
            self._db.execute(query, (journal, self.holder))
        except self._psycopg.Error:  # then the session is gone, and the lock with it
            pass
        finally:
            self._one_at_a_time.release()

    def holds(self, journal: str) -> bool:
        """Whether the journal was this process's within the last `lease` seconds, before which nobody can have it."""
        return journal in self.terms and time.monotonic() - self._sure[journal] < self.lease

    def require(self, db: Any, journal: str) -> None:
        """In the transaction of a write: refuse unless the term is the last one, and keep it so until the end."""
        begun = time.monotonic()
        self.note(db, journal, begun, db.execute(CHECK, (journal, self.term(journal))).fetchone() is not None)

    def term(self, journal: str) -> int:
        """Of a journal; one that nobody ever has if it is not this process's."""
        return self.terms.get(journal, -1)

    def note(self, db: Any, journal: str, begun: float, owned: bool) -> None:
        """A statement that began then has found the term to be the last one, or refuse what it would have done."""
        if not owned:
            self.lose(journal)
            raise NotOwner(journal, self.owner(db, journal))
        self._sure[journal] = begun

    def begin_terms(self, db: Any) -> None:
        """A new session for writes: the last write of the old one may be under way, so a new term is begun.

        This waits for it, so that whatever is read now is all there is.
        """
        for journal, term in list(self.terms.items()):
            found = db.execute(_BUMP, (journal, self.holder, term)).fetchone()
            if found is None:
                self.lose(journal)
            else:
                self.terms[journal] = found[0]

    def lose(self, journal: str) -> None:
        """A journal is another's now."""
        self.terms.pop(journal, None)
        self.lost.add(journal)
        self._unneeded.add(journal)

    def owner(self, db: Any, journal: str) -> Owner | None:
        """Whose a journal is or was, as the database has it."""
        query = "SELECT address, configuration, term FROM fedbandit_owners WHERE journal = %s"
        found = db.execute(query, (journal,)).fetchone()
        return None if found is None else Owner(*found)

    def close(self) -> None:
        """Give up everything."""
        self._stopping.set()
        for journal in list(self.terms):
            self.release(journal)
        if self._thread is not None:
            self._thread.join(self.lease)
        if self._db is not None:
            self._db.close()

    def _session(self) -> Any:
        """The session with the locks; a new one has none yet."""
        if self._db is None or self._db.closed:
            self._db = self._connect()
            self._unneeded.clear()
            self._db.execute("SET lock_timeout = '2s'")  # a write of the last owner may still be under way
            with suppress(self._psycopg.errors.UndefinedObject):  # PostgreSQL 13: keepalives of TCP have to do
                self._db.execute(f"SET idle_session_timeout = {int(1000 * self.lease)}")
        return self._db

    def _unlock(self, journal: str) -> None:
        self._db.execute("SELECT pg_advisory_unlock(%s)", (lock_number(journal),))

    def _unlock_unneeded(self) -> None:
        while self._unneeded:
            self._unlock(self._unneeded.pop())

    def _keep_alive(self) -> None:
        """Five times in a lease: show that this process lives, and see whether everything is still its own."""
        while not self._stopping.wait(self.lease / 5):
            try:
                with self._one_at_a_time:
                    self._look()
            except self._psycopg.Error:
                with self._one_at_a_time:
                    if self._db is not None:
                        self._db.close()

    def _look(self) -> None:
        begun = time.monotonic()
        db, mine = self._session(), list(self.terms)
        query = "SELECT journal, holder FROM fedbandit_owners WHERE journal = ANY(%s)"
        holders = dict(db.execute(query, (mine,)).fetchall())
        for journal in mine:
            if holders.get(journal) != self.holder or not _locked(db, journal):
                self.lose(journal)
            else:
                self._sure[journal] = begun
        self._unlock_unneeded()


def _locked(db: Any, journal: str) -> bool:
    """Whether this session has the lock now, once."""
    query = """SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid()
        AND classid::bigint = %(high)s AND objid::bigint = %(low)s AND objsubid = 1"""
    unsigned = lock_number(journal) % 2**64
    if db.execute(query, {"high": unsigned >> 32, "low": unsigned % 2**32}).fetchone() is not None:
        return True
    return bool(db.execute("SELECT pg_try_advisory_lock(%s)", (lock_number(journal),)).fetchone()[0])
