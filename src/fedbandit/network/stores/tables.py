"""The tables of a PostgreSQL store, and what is written into them and read out of them.

Versions. 1 had no owners: one process held the whole database, by the lock `_FIRST_LOCK`. 2 had no blocks; in 3 their
beginnings had no mark (`blocks.py`). Tables become 4 with the first snapshot that is in blocks: until then an older
version of fedbandit can go on with them, and its standbys can take over during an upgrade.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from fedbandit.errors import as_sentence
from fedbandit.network.stores.blocks import Block, of_blocks
from fedbandit.network.stores.store import StoredJournal, StoreError

FIRST_VERSION, VERSION = 2, 4
_FIRST_LOCK = 0xFEDBA
TABLES = ("fedbandit_snapshots", "fedbandit_blocks", "fedbandit_entries")
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
# fast as by default.
_WRITE_BLOCKS = """
INSERT INTO fedbandit_blocks SELECT %s, * FROM unnest(%s::integer[], %b::bytea[], %b::bytea[])
ON CONFLICT (journal, place) DO UPDATE SET digest = EXCLUDED.digest, data = EXCLUDED.data
"""
_AT_ONCE = 64
"""Blocks in a statement."""

STATEMENT_SECONDS = 30
"""After this a statement is given up by the server."""


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


def said_by(psycopg_error: Exception, verb: str) -> StoreError:
    """What PostgreSQL or its driver has said."""
    said = str(psycopg_error).strip() or type(psycopg_error).__name__
    return StoreError(f"The PostgreSQL store cannot be {verb}: {as_sentence(said)}")


def prepare(psycopg: Any, db: Any, patience: float) -> None:
    """See that the tables are there and of a version that is known."""
    deadline = time.monotonic() + patience
    while (version := version_of(db)) < FIRST_VERSION or not has_blocks(db):
        if db.execute("SELECT pg_try_advisory_lock(%s)", (_FIRST_LOCK,)).fetchone()[0]:
            try:
                with db.transaction():
                    db.execute(_SCHEMA)
                    _raise_version(db.execute, FIRST_VERSION)
            except psycopg.errors.InsufficientPrivilege:
                there = f"its tables are of version {version}" if version else "it has no tables"
                raise StoreError(
                    f"The PostgreSQL store cannot be opened: {there}, and this role may not make those of version "
                    f"{VERSION}; let the role that owns the database start a coordinator once."
                ) from None
            db.execute("SELECT pg_advisory_unlock(%s)", (_FIRST_LOCK,))
        elif time.monotonic() > deadline:
            raise StoreError("The PostgreSQL store cannot be opened: an older version has it open.")
        else:
            time.sleep(0.1)
    require_known(version)


def require_there(db: Any) -> None:
    """Refuse a database that has no tables, or newer ones; none are made."""
    if (version := version_of(db)) == 0:
        raise StoreError("The PostgreSQL store has no tables of fedbandit: there is nothing in it to be read.")
    require_known(version)


def require_known(version: int) -> None:
    """Refuse tables of a newer version."""
    if version > VERSION:
        raise StoreError(f"The PostgreSQL store is of version {version}, newer than this program knows ({VERSION}).")


def version_of(db: Any) -> int:
    """Of the tables; 0 if there are none."""
    if not _is_there(db, "fedbandit_entries"):  # a role may lack CREATE
        return 0
    return int(db.execute("SELECT value FROM fedbandit_about WHERE key = 'version'").fetchone()[0])


def has_blocks(db: Any) -> bool:
    """Whether there is a table for them; it is made beside those of version 2."""
    return _is_there(db, "fedbandit_blocks")


def _is_there(db: Any, table: str) -> bool:
    return db.execute("SELECT to_regclass(%s)", (table,)).fetchone()[0] is not None


def _raise_version(execute: Callable[..., Any], version: int) -> None:
    query = "INSERT INTO fedbandit_about VALUES ('version', %s) ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value "
    execute(query + "WHERE fedbandit_about.value < EXCLUDED.value", (version,))


def files(db: Any) -> tuple[int, ...]:
    """The numbers of the tables' files: others once they have been written anew."""
    numbers = ", ".join(f"pg_relation_filenode('{table}')" for table in TABLES)
    return tuple(db.execute(f"SELECT {numbers}").fetchone())


def names(db: Any) -> list[str]:
    """Of the journals there are."""
    query = "SELECT journal FROM fedbandit_snapshots UNION SELECT journal FROM fedbandit_entries ORDER BY journal"
    return [name for (name,) in db.execute(query).fetchall()]


def dump(db: Any, where: str) -> list[StoredJournal]:
    """All journals, as one transaction sees them; for a backup no lock is needed."""
    with db.transaction():
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        snapshots = snapshots_of(db, None, where)
        entries: dict[str, list[bytes]] = {}
        for name, entry in db.execute("SELECT journal, entry FROM fedbandit_entries ORDER BY position").fetchall():
            entries.setdefault(name, []).append(bytes(entry))
    return [StoredJournal(n, snapshots.get(n), entries.get(n, [])) for n in sorted({*snapshots, *entries})]


def snapshots_of(db: Any, journal: str | None, where: str) -> dict[str, bytes]:
    """The snapshot of this journal, or of all if it is None."""
    chosen, which = ("", ()) if journal is None else ("WHERE journal = %s", (journal,))
    begins = db.execute(f"SELECT journal, state FROM fedbandit_snapshots {chosen}", which).fetchall()
    blocks: dict[str, list[tuple[int, bytes, bytes]]] = {}
    query = f"SELECT journal, place, digest, data FROM fedbandit_blocks {chosen} ORDER BY journal, place"
    for name, *block in db.execute(query, which).fetchall() if has_blocks(db) else []:
        blocks.setdefault(name, []).append(tuple(block))
    return {name: of_blocks(bytes(begin), blocks.get(name, []), name, where) for name, begin in begins}


def write_snapshot(execute: Callable[..., Any], journal: str, begin: bytes, blocks: Sequence[Block]) -> None:
    """In the place of everything; of a long one those blocks that have changed. In a transaction of the caller's."""
    if blocks:
        _raise_version(execute, VERSION)
    execute(
        "INSERT INTO fedbandit_snapshots VALUES (%s, %s) ON CONFLICT (journal) DO UPDATE SET state = EXCLUDED.state",
        (journal, begin),
    )
    query = "SELECT place, digest FROM fedbandit_blocks WHERE journal = %s"
    known = {place: bytes(digest) for place, digest in execute(query, (journal,)).fetchall()}
    changed = [block for block in blocks if known.get(block.place) != block.digest]
    for start in range(0, len(changed), _AT_ONCE):
        places, digests, data = zip(*changed[start : start + _AT_ONCE], strict=True)
        execute(_WRITE_BLOCKS, (journal, list(places), list(digests), list(map(bytes, data))))
    if len(known) > len(blocks):
        execute("DELETE FROM fedbandit_blocks WHERE journal = %s AND place >= %s", (journal, len(blocks)))
    execute("DELETE FROM fedbandit_entries WHERE journal = %s", (journal,))


def forget_blocks(execute: Callable[..., Any], journal: str) -> None:
    """So that all of the next snapshot is written."""
    execute("DELETE FROM fedbandit_blocks WHERE journal = %s", (journal,))


def parts(entries: Sequence[bytes], at_once: int = 500) -> list[list[bytes]]:
    """Entries, as many as go into one statement at a time."""
    return [list(entries[start : start + at_once]) for start in range(0, len(entries), at_once)]
