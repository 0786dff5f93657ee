"""Of several processes on one database one owns a journal; whoever is overtaken writes nothing more."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from fedbandit.network.stores import NotOwner, StoreError
from tests.waiting import eventually

psycopg = pytest.importorskip("psycopg")
from fedbandit.network.stores.postgres import PostgresStore  # noqa: E402


def pids(url: str, which: str) -> list[int]:
    """Processes of the server: of sessions with an advisory lock, or of the others."""
    held = "SELECT pid FROM pg_locks WHERE locktype = 'advisory'"
    others = f"""SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
        AND backend_type = 'client backend' AND pid NOT IN ({held})"""
    with psycopg.connect(url, autocommit=True) as db:
        return [pid for (pid,) in db.execute(held if which == "lock" else others).fetchall()]


def terminate(url: str, which: str) -> None:
    found = pids(url, which)
    with psycopg.connect(url, autocommit=True) as db:
        for pid in found:
            db.execute("SELECT pg_terminate_backend(%s)", (pid,))


def claimed(store: PostgresStore, journal: str) -> bool:
    try:
        store.claim(journal, "http://b", "c")
    except StoreError:
        return False
    return True


def test_one_owner_at_a_time(postgres_url: str) -> None:
    a, b = PostgresStore(postgres_url), PostgresStore(postgres_url)
    a.claim("f", "http://a", "c")
    assert a.holds("f")
    with pytest.raises(NotOwner, match="'f' is another coordinator's at http://a") as refused:
        b.claim("f", "http://b", "c")
    assert refused.value.owner is not None
    assert (refused.value.owner.address, refused.value.owner.term) == ("http://a", 1)
    b.claim("g", "http://b", "c")
    a.append("f", [b"1"])
    a.release("f")
    assert not a.holds("f")
    with pytest.raises(NotOwner):
        a.append("f", [b"2"])  # released: nothing is claimed again by itself
    b.claim("f", "http://b", "c")
    assert b.read("f") == (None, [b"1"])
    with pytest.raises(NotOwner, match="at http://b"):
        a.confirm("f")
    a.close()
    b.close()


def test_a_term_stops_whoever_was_overtaken(postgres_url: str) -> None:
    """Even if the lock is held by both, or by nobody: as behind a pooler, or by force."""
    a, b = PostgresStore(postgres_url, lease=600), PostgresStore(postgres_url)
    a.claim("f")
    a.append("f", [b"1"])
    terminate(postgres_url, "lock")  # the owner does not look for two minutes
    eventually(lambda: claimed(b, "f"))
    b.append("f", [b"2"])
    for write in (partial(a.append, "f", [b"3"]), partial(a.replace, "f", b"s"), partial(a.confirm, "f")):
        with pytest.raises(NotOwner, match="at http://b"):
            write()
    with pytest.raises(NotOwner):
        a.read("f")
    assert b.read("f") == (None, [b"1", b"2"])
    a.close()
    assert b.holds("f")
    b.append("f", [b"4"])  # the end of the old owner took nothing from the new one
    b.close()


def test_an_owner_notices_that_its_lock_is_taken(postgres_url: str) -> None:
    a, b = PostgresStore(postgres_url, lease=1.0), PostgresStore(postgres_url)
    a.claim("f")
    with psycopg.connect(postgres_url, autocommit=True) as db:  # a second owner by force
        db.execute("UPDATE fedbandit_owners SET holder = 1, term = term + 1")
    eventually(lambda: "f" in a.claims.lost)
    assert not a.holds("f")
    eventually(lambda: claimed(b, "f"))
    a.close()
    b.close()


def test_a_lost_session_is_made_again_by_the_same_owner(postgres_url: str) -> None:
    a = PostgresStore(postgres_url, lease=1.0)
    a.claim("f")
    before = a.claims.terms["f"]
    terminate(postgres_url, "lock")
    eventually(lambda: pids(postgres_url, "lock") != [])
    eventually(lambda: a.holds("f"))
    a.append("f", [b"1"])
    assert a.claims.terms["f"] == before
    terminate(postgres_url, "others")
    with pytest.raises(StoreError):
        a.append("f", [b"2"])
    a.append("f", [b"3"])
    assert a.claims.terms["f"] == before + 1, "what the old session may still write must not be of this term"
    assert a.read("f") == (None, [b"1", b"3"])
    a.close()


def test_a_new_session_waits_for_the_last_write_of_the_old_one(postgres_url: str) -> None:
    a = PostgresStore(postgres_url)
    a.claim("f")
    a.append("f", [b"1"])
    with psycopg.connect(postgres_url) as zombie:  # the old session, whose process does not know that it is
        assert zombie.execute("SELECT 1 FROM fedbandit_owners WHERE journal = 'f' FOR SHARE").fetchone() is not None
        a._db.close()
        a.claims._db.execute("SET lock_timeout = '100ms'")
        other = PostgresStore(postgres_url)
        other.claims._session().execute("SET lock_timeout = '100ms'")
        a.release("f")
        with pytest.raises(StoreError, match="cannot be claimed: canceling statement due to lock timeout"):
            other.claim("f")
        zombie.execute("INSERT INTO fedbandit_entries (journal, entry) VALUES ('f', 'late')")
        zombie.commit()
    other.claim("f")
    assert other.read("f") == (None, [b"1", b"late"])
    a.close()
    other.close()


def test_a_silent_owner_loses_its_lock(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = PostgresStore(postgres_url, lease=1.0), PostgresStore(postgres_url)
    monkeypatch.setattr(a.claims, "_look", lambda: None)  # as if the process were stopped
    a.claim("f")
    eventually(lambda: claimed(b, "f"))
    assert not a.holds("f")
    with pytest.raises(NotOwner):
        a.append("f", [b"1"])
    a.close()
    b.close()


def test_a_write_waits_for_a_claim_that_is_under_way(postgres_url: str) -> None:
    a = PostgresStore(postgres_url)
    a.append("f", [b"1"])
    with psycopg.connect(postgres_url) as other, ThreadPoolExecutor(1) as pool:
        other.execute("UPDATE fedbandit_owners SET term = term + 1, address = 'http://b'")
        writing = pool.submit(a.append, "f", [b"2"])
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        eventually(lambda: other.execute(waiting).fetchone()[0] > 0)
        other.commit()
        with pytest.raises(NotOwner, match="at http://b"):
            writing.result()
        assert other.execute("SELECT count(*) FROM fedbandit_entries").fetchone() == (1,)
    a.close()


def test_whoever_is_stopped_in_a_write_is_followed_after_a_lease(postgres_url: str) -> None:
    a, b = PostgresStore(postgres_url, lease=1.0), PostgresStore(postgres_url, lease=600)
    a.claim("f")
    a.append("f", [b"1"])
    a.claims._stopping.set()  # as if the process were stopped, in a transaction that has locked the owner's row
    a._db.execute("BEGIN")
    a.claims.require(a._db, "f")
    a._db.execute("INSERT INTO fedbandit_entries (journal, entry) VALUES ('f', '2')")
    eventually(lambda: claimed(b, "f"))
    with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
        a._db.execute("COMMIT")
    assert b.read("f") == (None, [b"1"])
    a.close()
    b.close()


def test_tables_of_the_first_version(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("CREATE TABLE fedbandit_about (key TEXT PRIMARY KEY, value BIGINT NOT NULL)")
        db.execute("CREATE TABLE fedbandit_snapshots (journal TEXT PRIMARY KEY, state BYTEA NOT NULL)")
        columns = "position BIGSERIAL PRIMARY KEY, journal TEXT NOT NULL, entry BYTEA NOT NULL"
        db.execute(f"CREATE TABLE fedbandit_entries ({columns})")
        db.execute("INSERT INTO fedbandit_about VALUES ('version', 1)")
        db.execute("INSERT INTO fedbandit_snapshots VALUES ('f', 's')")
        db.execute("SELECT pg_advisory_lock(%s)", (0xFEDBA,))
        with pytest.raises(StoreError, match="an older version has it open"):
            PostgresStore(postgres_url, patience=0.2)
    store = PostgresStore(postgres_url)
    assert store.read("f") == (b"s", [])
    store.close()


def test_what_was_deleted_is_not_in_the_files(postgres_url: str, postgres: Any) -> None:
    store = PostgresStore(postgres_url)
    secret = b"not-to-be-found-" * 40
    store.replace("f", b"old" + secret)
    store.append("f", [secret, b"x"])
    files = [path for path in (postgres.folder / "data" / "base").rglob("*") if path.is_file()]

    def found() -> bool:
        with psycopg.connect(postgres_url, autocommit=True) as db:
            db.execute("CHECKPOINT")
        return any(secret[:300] in path.read_bytes() for path in files if path.exists())

    assert found()
    store.replace("f", b"new")
    store.compact()
    assert store.read("f") == (b"new", [])
    files[:] = [path for path in (postgres.folder / "data" / "base").rglob("*") if path.is_file()]
    assert not found()
    store.close()
