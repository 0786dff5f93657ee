"""Stores keep what they were given, all of it or none, and say what is wrong."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import sqlite3
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from fedbandit.errors import FedbanditError
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.stores import StoreError, open_store
from fedbandit.network.stores.postgres import PostgresStore
from fedbandit.network.stores.sqlite import SQLiteStore
from fedbandit.network.stores.tables import FIRST_VERSION
from fedbandit.state import unpack, unpack_entry
from tests.network.servers import AGREEMENT, act


def test_journals_come_back(store_url: str) -> None:
    a, b = uuid.uuid4().hex, uuid.uuid4().hex
    store = open_store(store_url)
    assert store.read(a) == (None, [])
    store.append(a, [b"1", b"\x00\xff"])
    store.append(b, [b"other"], durable=False)
    store.append(a, [b"3"])
    assert store.read(a) == (None, [b"1", b"\x00\xff", b"3"])
    store.replace(a, b"snapshot")
    store.append(a, [b"4"])
    store.replace(b, b"old", durable=False)
    store.replace(b, b"new")
    store.close()
    again = open_store(store_url)
    assert again.read(a) == (b"snapshot", [b"4"])
    assert again.read(b) == (b"new", [])
    again.close()


def test_a_transaction_is_all_or_nothing(store_url: str) -> None:
    store, journal = open_store(store_url), uuid.uuid4().hex
    with pytest.raises((StoreError, TypeError, AttributeError)):
        store.append(journal, [b"first", object()])  # type: ignore[list-item]
    assert store.read(journal) == (None, [])
    store.append(journal, [b"second"])
    assert store.read(journal) == (None, [b"second"])
    store.close()


def test_one_process_at_a_time(tmp_path: Path, postgres_url: str) -> None:
    from fedbandit.network.stores.postgres import PostgresStore

    path = tmp_path / "store.db"
    first = SQLiteStore(path)
    with pytest.raises(StoreError, match="another process has it open"):
        SQLiteStore(path)
    first.close()
    SQLiteStore(path).close()
    held, other = PostgresStore(postgres_url), PostgresStore(postgres_url, patience=0.2)
    held.append("j", [b"1"])
    with pytest.raises(StoreError, match="'j' is another coordinator's"):
        other.read("j")
    other.append("k", [b"2"])
    held.close()
    assert other.read("j") == (None, [b"1"])
    other.close()


def test_a_file_with_small_pages_is_gone_on_with(tmp_path: Path) -> None:
    """A coordinator's file of an earlier version, or a client's."""
    for many in (False, True):
        store = open_store(tmp_path / "old.db", many=many)
        if not many:
            store.replace("f", b"snapshot")
        store.append("f", [b"x" * 50_000])
        store.close()
    large = open_store(tmp_path / "new.db", many=True)
    large.append("f", [b"x"])
    large.close()
    for name, size in (("old.db", 4096), ("new.db", 32_768)):
        with contextlib.closing(sqlite3.connect(tmp_path / name)) as db:
            assert db.execute("PRAGMA page_size").fetchone() == (size,)
    store = open_store(tmp_path / "old.db", many=True)
    assert [len(entry) for entry in store.read("f")[1]] == [50_000] * 2
    store.close()


def test_no_flipped_bit_is_silently_another_state(tmp_path: Path) -> None:
    """The name of a journal, and the place of an entry in it, have no checksum: one bit there lost an entry, or all."""
    path = tmp_path / "client.db"
    store = open_store(path)
    client = DurableClient(store, AGREEMENT, 0, lambda: 7)
    act(client, 120)
    client.flush()
    store.close()
    whole = path.read_bytes()

    def read() -> tuple[bytes, list[bytes]]:
        with contextlib.closing(open_store(path)) as opened:
            snapshot, entries = opened.read("client")
            assert snapshot is not None, "it would begin anew"
            unpack("client", snapshot)
            return snapshot, [unpack_entry("client", entry) for entry in entries]

    kept, refused = read(), 0
    names = [found.start() for found in re.finditer(b"client", whole)]
    assert len(names) > 200
    for at in [*names[::10], *range(64, len(whole), 331)]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        try:
            assert read() == kept, at
        except FedbanditError:
            refused += 1
    assert refused >= len(names[::10])


@pytest.mark.parametrize("damage", ["truncated", "junk"])
def test_a_damaged_file_is_refused_with_what_to_do(damage: str, tmp_path: Path) -> None:
    """Whoever deletes it loses a privacy ledger."""
    path = tmp_path / "client.db"
    store = SQLiteStore(path)
    store.replace("client", bytes(100_000))
    store.close()
    path.write_bytes(path.read_bytes()[:20_000] if damage == "truncated" else b"junk" * 1000)
    with pytest.raises(StoreError, match=r"cannot be opened: .*; keep the file and restore its newest backup: with a"):
        SQLiteStore(path)


def test_a_newer_store_is_refused(tmp_path: Path, postgres_url: str) -> None:
    import psycopg

    path = tmp_path / "store.db"
    SQLiteStore(path).close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE about SET value = 99")
    db.close()
    with pytest.raises(StoreError, match=r"of version 99, newer .*; keep the file and install a version"):
        open_store(path)
    open_store(postgres_url).close()
    with psycopg.connect(postgres_url) as other:
        other.execute("UPDATE fedbandit_about SET value = 99")
        other.commit()
        with pytest.raises(StoreError, match="of version 99, newer"):
            open_store(postgres_url)
        other.execute(f"UPDATE fedbandit_about SET value = {FIRST_VERSION}")


def test_a_connection_that_cannot_be_used_is_closed(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedbandit.network.stores import postgres, tables

    made: list[Any] = []
    connect = tables.connect

    def noted(psycopg: Any, url: str) -> Any:
        made.append(connect(psycopg, url))
        return made[-1]

    monkeypatch.setattr(postgres, "connect", noted)
    store = postgres.PostgresStore(postgres_url)
    made[0].execute("DROP TABLE fedbandit_about")
    made[0].close()
    for _ in range(2):  # at the second use, too, the version is asked for first
        with pytest.raises(StoreError, match="cannot be read"):
            store.check()
    assert len(made) == 3
    assert all(db.closed for db in made)


def test_what_cannot_be_opened_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened"):
        open_store(tmp_path / "nowhere" / "store.db")
    (tmp_path / "text").write_text("not a database, but long enough to be read as one " * 10)
    with pytest.raises(StoreError, match="not a database"):
        open_store(tmp_path / "text")
    with pytest.raises(StoreError, match=r"PostgreSQL store cannot be opened: .* accepting connections .*\?$"):
        open_store("postgresql://nobody@/none?host=/nonexistent")


def test_a_really_full_disk_is_one_sentence(tmp_path: Path) -> None:
    """The operating system refuses to write more: the sentence comes, and the file is whole afterwards."""
    code = f"""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from fedbandit.errors import FedbanditError
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.stores import StoreError, open_store
store = open_store({str(tmp_path / "s.db")!r})
store.replace("j", b"snapshot")
store.append("j", [b"kept"])
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
try:
    for _ in range(100):
        store.append("j", [b"x" * 5000])
except StoreError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "cannot be written" in done.stdout
    assert done.stdout.count("\n") == 1
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 60_000
    store = open_store(tmp_path / "s.db")
    assert store.read("j")[1][0] == b"kept"
    store.close()


def test_a_backend_that_hangs_is_given_up(postgres_url: str) -> None:
    """It is stopped, not killed: its socket stays open and nobody answers."""
    store = PostgresStore(postgres_url, patience=0.2, hanging=1.0)
    store.replace("hangs", b"0")
    (backend,) = store._connection().execute("SELECT pg_backend_pid()").fetchone()
    os.kill(backend, signal.SIGSTOP)
    try:
        with pytest.raises(StoreError, match="cannot be written"):
            store.append("hangs", [b"1"])
        store.append("hangs", [b"2"])  # in a new session, of a new term: what the old one may still do is refused
    finally:
        os.kill(backend, signal.SIGCONT)
    store.append("hangs", [b"3"])
    assert store.read("hangs") == (b"0", [b"2", b"3"])
    store.close()


def test_each_statement_has_its_own_time(postgres_url: str) -> None:
    """A long snapshot is many short statements: the server answers each of them."""
    hanging = 3.0
    store = PostgresStore(postgres_url, hanging=hanging)
    execute = store._connection().execute

    def slowly(query: str, values: object = ()) -> Any:
        if "INSERT INTO fedbandit_blocks" in query:
            execute("SELECT pg_sleep(%s)", (hanging / 6,))
        return execute(query, values)

    store._db.execute = slowly
    snapshot = os.urandom(64 * 65_536 * 8)
    store.replace("f", snapshot)  # 8 statements, together longer than one may take
    assert store.read("f") == (snapshot, [])
    store.close()


def test_another_file_of_its_name_is_noticed(tmp_path: Path) -> None:
    """What is written goes into the file that was opened, which has no name any more."""
    path, other = tmp_path / "store.db", tmp_path / "other.db"
    store = SQLiteStore(path)
    store.check()
    SQLiteStore(other).close()
    other.rename(path)
    with pytest.raises(StoreError, match="is not the file that was opened: another has its name now"):
        store.check()
    path.unlink()
    with pytest.raises(StoreError, match="is gone"):
        store.check()
    store.close()
