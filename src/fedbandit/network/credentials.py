"""Credentials: a table of names, roles and hashed tokens. `fedbandit keys` writes it; a coordinator follows changes.

A token is `fb-` and 43 random characters; only its SHA-256 is kept. It may be for one federation only, and expire; a
name may have several, so that a new one can be handed out before the old one ends. Roles: a *client* takes part, an
*observer* reads the live page and the metrics, an *admin* may quarantine clients, free places and take backups too.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from fedbandit.errors import FedbanditError, number, require
from fedbandit.network.refusal import Refusal

FILE = "credentials.db"
_FIRST = "credentials.json"  # what earlier versions wrote
Role = Literal["client", "observer", "admin"]
ROLES: tuple[Role, ...] = ("client", "observer", "admin")
_ALLOWED: dict[str, set[Role]] = {
    "client": {"client"},
    "observer": {"observer"},
    "admin": {"admin", "observer"},
    "anyone": set(ROLES),
}
MOST_DAYS = 1_000_000
"""The longest that a token can be asked for: no calendar goes on for ever."""
_LOOK_EVERY = 0.5  # seconds between looks at the file
_SCHEMA = """
CREATE TABLE IF NOT EXISTS tokens (
    hash TEXT PRIMARY KEY, name TEXT NOT NULL, role TEXT NOT NULL, federation TEXT NOT NULL DEFAULT '',
    made REAL NOT NULL, expires REAL NOT NULL DEFAULT 9e99, revoked REAL NOT NULL DEFAULT 9e99
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_name ON tokens (name);
"""


class Identity(NamedTuple):
    """An authenticated name and its role; on loopback without keys, any name that is claimed, with every role."""

    name: str
    role: str
    federation: str = ""
    """The only federation that the token is good for; empty: all of them."""
    until: float = math.inf
    """When the token expires."""

    def require(self, role: Role, federation: str = "") -> None:
        """Refuse an identity with another role, or of another federation; an empty one asks about all of them."""
        if role not in _ALLOWED[self.role]:
            raise Refusal("role", f"{self.name!r} has the role {self.role}, but this needs {role}.")
        if self.federation and self.federation != federation:
            what = f"federation {federation!r}" if federation else "all federations"
            raise Refusal("role", f"The token of {self.name!r} is for federation {self.federation!r}, not for {what}.")


class Token(NamedTuple):
    """A row of the table."""

    hash: str
    name: str
    role: str
    federation: str
    made: float
    expires: float
    revoked: float

    def state(self, at: float) -> str:
        """Whether it is good at that time: "valid", "revoked" or "expired"."""
        return "revoked" if self.revoked <= at else "expired" if self.expires <= at else "valid"


class Credentials:
    """The credentials in a folder; None lets anyone in by the name they give."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._changed: tuple[int, ...] | None = None
        self._looked = -1.0
        self.changes = 0
        """How often the table has been read."""
        self._by_hash: dict[str, Token] = {}
        self.look()

    def identify(self, authorization: str | None, claimed: str | None) -> Identity:
        """Who sends this `Authorization: Bearer …` header."""
        if self.folder is None:
            if not claimed or len(claimed) > 100 or not claimed.isprintable():
                raise Refusal("credentials", "Without keys a client must say its name, at most 100 characters.")
            return Identity(claimed, "anyone")
        self.look()
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Refusal(
                "credentials",
                "There is no token: pass token= or --token-file (in HTTP: 'Authorization: Bearer …').",
            )
        entry = self._by_hash.get(hash_token(token.strip()))
        if entry is None:
            raise Refusal("credentials", "The token is not known here.")
        state = entry.state(time.time())
        if state != "valid":
            raise Refusal("credentials", f"The token of {entry.name!r} has {_HAS[state]}.")
        return Identity(entry.name, entry.role, entry.federation, entry.expires)

    def ends(self, at: float) -> dict[str, tuple[float, int]]:
        """By role: when the first holder is left without a token, and how many are, because their last one expired.

        A token that is followed by another one is no end, nor is one that was revoked: somebody wanted that.
        """
        self.look()
        last: dict[tuple[str, str, str], float] = {}
        for token in self._by_hash.values():
            if token.state(at) != "revoked":
                holder = token.role, token.name, token.federation
                last[holder] = max(last.get(holder, 0.0), token.expires)
        ends: dict[str, tuple[float, int]] = {}
        for (role, *_), expires in last.items():
            first, without = ends.get(role, (9e99, 0))
            ends[role] = (min(first, expires), without) if expires > at else (first, without + 1)
        return ends

    def look(self) -> None:
        """Read the table again if it has changed; at most twice a second."""
        if self.folder is None or time.monotonic() - self._looked < _LOOK_EVERY:
            return
        self._looked = time.monotonic()
        changed = tuple(
            number for name in (FILE, f"{FILE}-wal") for number in _stamp(self.folder / name)
        )  # a write-ahead log is a file beside it
        if changed != self._changed:
            self._by_hash = {token.hash: token for token in list_tokens(self.folder)}
            self._changed = changed
            self.changes += 1


_HAS = {"revoked": "been revoked", "expired": "expired"}


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def hash_token(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


@contextmanager
def _open(folder: Path, *, new: bool = False) -> Iterator[sqlite3.Connection]:
    """The table, to be read or written by any number of processes."""
    path, first = folder / FILE, folder / _FIRST
    if not new and not path.exists() and not first.exists():
        raise FedbanditError(f"There are no keys in {str(folder)!r}; make them with fedbandit keys init.")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        with closing(sqlite3.connect(path, timeout=30.0, isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript(_SCHEMA)
            if first.exists():
                _take_over(db, first)
            yield db
    except (sqlite3.Error, OSError) as error:
        raise FedbanditError(f"{str(path)!r} is not a file of credentials: {error}.") from None


def _take_over(db: sqlite3.Connection, first: Path) -> None:
    """Credentials as earlier versions kept them."""
    try:
        rows = [
            (e["hash"], e["name"], e["role"], 0.0, 0.0 if e["revoked"] else 9e99) for e in json.loads(first.read_text())
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise FedbanditError(f"{str(first)!r} is not a file of credentials: {error}.") from None
    db.executemany("INSERT OR IGNORE INTO tokens (hash, name, role, made, revoked) VALUES (?, ?, ?, ?, ?)", rows)
    first.rename(first.with_suffix(".json.old"))


def make_table(folder: Path) -> None:
    """No tokens yet."""
    with _open(folder, new=True):
        pass


def list_tokens(folder: Path) -> list[Token]:
    """All tokens there are, by name and age."""
    with _open(folder) as db:
        rows = db.execute("SELECT hash, name, role, federation, made, expires, revoked FROM tokens ORDER BY name, made")
        return [Token(*row) for row in rows]


def add_credentials(
    folder: Path, names: Sequence[str], role: Role = "client", federation: str = "", days: float | None = None
) -> dict[str, str]:
    """A new token for each of these names, all or none; one that has a valid token is refused."""
    now = time.time()
    tokens = {}
    for name in names:
        if not name or len(name) > 100 or not name.isprintable():
            raise FedbanditError(f"The name is {name!r}, but must have 1 to 100 printable characters.")
        tokens[name] = f"fb-{secrets.token_urlsafe(32)}"
    with _open(folder) as db:
        db.execute("BEGIN IMMEDIATE")
        for name in names:
            query = "SELECT 1 FROM tokens WHERE name = ? AND revoked > ? AND expires > ? AND federation IN ('', ?)"
            if db.execute(query, (name, now, now, federation)).fetchone():
                db.execute("ROLLBACK")
                raise FedbanditError(f"There is a token for {name!r} already; revoke it first, or renew it.")
        _insert(db, tokens, role, federation, now, days)
        db.execute("COMMIT")
    return tokens


def add_credential(folder: Path, name: str, role: Role = "client", federation: str = "") -> str:
    """A new token for a name that has none."""
    return add_credentials(folder, [name], role, federation)[name]


def renew_credential(
    folder: Path, name: str, overlap: float = 7.0, days: float | None = None, federation: str | None = None
) -> str:
    """A new token for a name in place of those that it has, which end after `overlap` days.

    It is good for as long as the last one was made for, unless `days` says otherwise. Of a name that has tokens for
    several federations those of one are renewed, which has to be named; the others stay as they are.
    """
    number(overlap, "overlap", f"a number of days from 0 to {MOST_DAYS:,}", 0.0)
    require(overlap <= MOST_DAYS, "overlap", overlap, f"a number of days from 0 to {MOST_DAYS:,}")
    now = time.time()
    with _open(folder) as db:
        db.execute("BEGIN IMMEDIATE")
        query = (
            "SELECT role, federation, made, expires FROM tokens WHERE name = ? AND revoked > ? AND expires > ? "
            "ORDER BY made DESC"
        )
        found = [row for row in db.execute(query, (name, now, now)) if federation in (None, row[1])]
        if not found:
            db.execute("ROLLBACK")
            raise FedbanditError(f"There is no valid token for {name!r}{_where(federation)} in {str(folder)!r}.")
        if several := sorted({row[1] for row in found[1:]} - {found[0][1]}):
            db.execute("ROLLBACK")
            named = ", ".join(one or "all of them" for one in [found[0][1], *several])
            raise FedbanditError(
                f"{name!r} has tokens for several federations ({named}): say whose is to be renewed, by --federation."
            )
        role, federation, made, expires = found[0]
        query = "UPDATE tokens SET expires = min(expires, ?) WHERE name = ? AND federation = ? AND revoked > ?"
        db.execute(query, (now + overlap * 86_400, name, federation, now))
        token = f"fb-{secrets.token_urlsafe(32)}"
        if days is None and expires < 9e99:
            days = (expires - made) / 86_400
        _insert(db, {name: token}, role, federation, now, days)
        db.execute("COMMIT")
    return token


def _insert(
    db: sqlite3.Connection, tokens: dict[str, str], role: str, federation: str, now: float, days: float | None
) -> None:
    if days is not None and not 0.0 < days <= MOST_DAYS:
        raise FedbanditError(
            f"days is {days:g}, but must be > 0, as a token that has expired lets nobody in, and at most {MOST_DAYS:,}."
        )
    expires = 9e99 if days is None else now + days * 86_400
    rows = ((hash_token(token), name, role, federation, now, expires) for name, token in tokens.items())
    db.executemany("INSERT INTO tokens (hash, name, role, federation, made, expires) VALUES (?, ?, ?, ?, ?, ?)", rows)


def revoke_credential(folder: Path, name: str, federation: str | None = None) -> None:
    """No token of this name is good any more; or none that is for this federation alone, if one is named."""
    now = time.time()
    with _open(folder) as db:
        query = (
            "UPDATE tokens SET revoked = ? WHERE name = ? AND revoked > ? AND expires > ? "
            "AND (? IS NULL OR federation = ?)"
        )
        if db.execute(query, (now, name, now, now, federation, federation)).rowcount == 0:
            raise FedbanditError(f"There is no valid token for {name!r}{_where(federation)} in {str(folder)!r}.")


def _where(federation: str | None) -> str:
    return "" if federation is None else f" for federation {federation!r}" if federation else " for all federations"
