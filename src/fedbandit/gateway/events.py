"""A gateway's events in a SQLite file: what was answered, what waits for a reward, what is over.

| state    | meaning                                                                                 |
|----------|-----------------------------------------------------------------------------------------|
| waiting  | ranked; a reward may come                                                               |
| learning | the reward is here, and the client is about to learn it; after a crash it is told again |
| rewarded | learnt                                                                                  |
| default  | no reward came in time: the default reward was learnt                                   |
| expired  | no reward came in time, and there is no default                                         |

What is written survives the process being killed; a power cut may take the last events.

| format | what is new                                                                              |
|--------|------------------------------------------------------------------------------------------|
| 1      | –; where each action has a model of its own, ids are the numbers of models: `numbered`   |
| 2      | table `actions`: which model an id has. A file of format 1 goes on with numbers          |
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np

from fedbandit.network.stores import StoreError
from fedbandit.types import Array

FORMAT = 2
State = Literal["waiting", "learning", "rewarded", "default", "expired"]
_SCHEMA = """
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS actions (id TEXT PRIMARY KEY, number INTEGER NOT NULL UNIQUE) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events (
    event TEXT PRIMARY KEY, at REAL NOT NULL, deadline REAL, asked BLOB NOT NULL, answer TEXT NOT NULL,
    choice TEXT NOT NULL, features BLOB NOT NULL, agrees INTEGER NOT NULL, weight REAL,
    state TEXT NOT NULL, reward REAL, finished REAL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_deadline ON events (deadline) WHERE state = 'waiting';
CREATE INDEX IF NOT EXISTS by_end ON events (finished) WHERE finished IS NOT NULL;
CREATE INDEX IF NOT EXISTS interrupted ON events (event) WHERE state = 'learning';
"""
_FROM_1 = f"""
BEGIN IMMEDIATE;
UPDATE about SET value = {FORMAT} WHERE key = 'gateway';
INSERT INTO about VALUES ('numbered', 1);
COMMIT;
"""


class Event(NamedTuple):
    """One event.

    asked: digest of the request; answer: as it was given, JSON; choice: the client's id; features: of what was taken;
    agrees: whether the bandit's choice is what was taken; weight: π(a)/p of that, None if p is not known.
    """

    event: str
    at: float
    deadline: float | None
    asked: bytes
    answer: str
    choice: str
    features: Array
    agrees: bool
    weight: float | None
    state: State = "waiting"
    reward: float | None = None
    finished: float | None = None


_INSERT = f"INSERT INTO events VALUES ({', '.join('?' * len(Event._fields))})"


class Events:
    """The events in a file; in memory without a path. One process at a time, several threads."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = None if path is None else os.fspath(path)
        self.where = "memory" if path is None else repr(self._path)
        self.failing = ""
        """Why the last write failed, empty if it did not."""
        self._lock = threading.RLock()
        try:
            if path is not None:
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # features are raw data
            self._db = sqlite3.connect(
                ":memory:" if path is None else os.fspath(path),
                timeout=0.0, isolation_level=None, check_same_thread=False,
            )  # fmt: skip
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"The gateway's state {self.where} cannot be opened: {error}.") from None
        try:
            self._prepare()
        except BaseException:
            self._db.close()
            raise

    def _prepare(self) -> None:
        """Make the tables, and read what is kept in memory, too."""
        with self._explained("opened"):
            for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = NORMAL"):
                self._db.execute(f"PRAGMA {pragma}")
            self._db.executescript("BEGIN IMMEDIATE;" + _SCHEMA + "COMMIT;")
            self._db.execute("INSERT OR IGNORE INTO about VALUES ('gateway', ?)", (FORMAT,))
            found = self._about("gateway")
            if found == 1:
                self._db.executescript(_FROM_1)
                found = FORMAT
            self.numbered = self._about("numbered") == 1
            self.models = dict(self._db.execute("SELECT id, number FROM actions").fetchall())
            """Which model an action has, by its id."""
        if found != FORMAT:
            raise StoreError(f"The gateway's state {self.where} is of format {found}, this version knows {FORMAT}.")

    def name(self, models: Mapping[str, int]) -> None:
        """Actions have these models from now on."""
        with self._transaction():
            self._db.executemany("INSERT INTO actions VALUES (?, ?)", models.items())
        self.models |= models

    def add(self, event: Event) -> None:
        """Keep a new event."""
        values = event._replace(features=event.features.astype("<f8").tobytes())  # type: ignore[arg-type]
        with self._transaction():
            self._db.execute(_INSERT, values)

    def find(self, event: str) -> Event | None:
        """The event of this name."""
        with self._explained("read"):
            row = self._db.execute("SELECT * FROM events WHERE event = ?", (event,)).fetchone()
        return None if row is None else _event(row)

    def move(self, event: str, state: State, reward: float | None, finished: float | None) -> None:
        """Put an event into another state."""
        with self._transaction():
            self._db.execute(
                "UPDATE events SET state = ?, reward = ?, finished = ? WHERE event = ?",
                (state, reward, finished, event),
            )

    def interrupted(self) -> list[Event]:
        """Events whose reward was being learnt when the process ended."""
        return self._select("state = 'learning'")

    def overdue(self, now: float, most: int = 1000) -> list[Event]:
        """Events whose deadline is over, the oldest first."""
        return self._select("state = 'waiting' AND deadline <= ? ORDER BY deadline LIMIT ?", now, most)

    def forget(self, before: float) -> int:
        """Forget what was finished before this time; how many there were."""
        with self._transaction():
            return self._db.execute("DELETE FROM events WHERE finished < ?", (before,)).rowcount

    def check(self) -> None:
        """Read something, and see whether writing works and the file is still the one that was opened."""
        with self._explained("read"):
            self._db.execute("SELECT value FROM about WHERE key = 'gateway'").fetchone()
            if self._db.in_transaction:  # what is written now would be lost at a kill
                raise StoreError(f"The gateway's state {self.where} has a transaction that was left open.")
            if self._path is not None and not os.path.exists(self._path):
                raise StoreError(f"The gateway's state {self.where} is gone.")
            if self.failing:
                raise StoreError(f"The gateway's state {self.where} cannot be written: {self.failing}.")

    def try_again(self) -> None:
        """Write something, if the last write failed: nobody may ask for another."""
        if self.failing:
            with self._transaction():
                self._db.execute("UPDATE about SET value = value WHERE key = 'gateway'")

    def counts(self) -> dict[str, int]:
        """How many events are in each state."""
        with self._explained("read"):
            return dict(self._db.execute("SELECT state, COUNT(*) FROM events GROUP BY state").fetchall())

    def finished(self, most: int = 1_000_000) -> Array:
        """Of events with a reward, the latest: columns reward, agrees, weight (NaN if not known); (n, 3)."""
        with self._explained("read"):
            rows = self._db.execute(
                "SELECT reward, agrees, weight FROM events WHERE finished IS NOT NULL AND reward IS NOT NULL "
                "ORDER BY finished DESC LIMIT ?",
                (most,),
            ).fetchall()
        return np.array(rows, dtype=np.float64).reshape(-1, 3)

    def close(self) -> None:
        """Let others open it."""
        with self._lock:
            self._db.close()

    def _about(self, key: str) -> int | None:
        row = self._db.execute("SELECT value FROM about WHERE key = ?", (key,)).fetchone()
        return None if row is None else int(row[0])

    def _select(self, where: str, *values: Any) -> list[Event]:
        with self._explained("read"):
            return [_event(row) for row in self._db.execute(f"SELECT * FROM events WHERE {where}", values)]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All that is written within, or nothing of it; whatever goes wrong, no transaction stays open."""
        with self._explained("written"):
            changes = self._db.total_changes
            try:
                if self._db.in_transaction:  # whose own rollback has failed
                    self._db.execute("ROLLBACK")
                self._db.execute("BEGIN IMMEDIATE")
                yield
                self._db.execute("COMMIT")
                if self._db.total_changes > changes:  # a full disk has room for nothing
                    self.failing = ""
            except BaseException as error:
                if isinstance(error, sqlite3.Error):
                    self.failing = str(error)
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _explained(self, verb: str) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except sqlite3.Error as error:
            reason = "another gateway has it open" if "locked" in str(error) else str(error)
            raise StoreError(f"The gateway's state {self.where} cannot be {verb}: {reason}.") from None


def _event(row: tuple[Any, ...]) -> Event:
    event = Event(*row)
    return event._replace(features=np.frombuffer(row[6], dtype="<f8").astype(np.float64), agrees=bool(event.agrees))
