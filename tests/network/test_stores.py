"""Both stores keep what they were given, all of it or none, and say what is wrong."""

from __future__ import annotations

import resource
import sqlite3
import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.errors import FedbanditError
from fedbandit.messages import Receipt
from fedbandit.network.client.durable import Member
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.invitation import Terms
from fedbandit.network.stores import MemoryStore, StoreError, open_store
from fedbandit.network.stores.sqlite import SQLiteStore
from fedbandit.state import pack

WORLD = fb.World(n_clients=3, dim=2, horizon=1000)
TERMS = Terms("async-linucb", {"gamma_upload": 1.3, "gamma_download": 1.3}, WORLD)


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
    held = PostgresStore(postgres_url)
    with pytest.raises(StoreError, match="another coordinator has it open"):
        PostgresStore(postgres_url, patience=0.2)
    held.close()


def test_a_newer_store_is_refused(tmp_path: Path, postgres_url: str) -> None:
    import psycopg

    path = tmp_path / "store.db"
    SQLiteStore(path).close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE about SET value = 99")
    db.close()
    with pytest.raises(StoreError, match="of version 99, newer"):
        open_store(path)
    open_store(postgres_url).close()
    with psycopg.connect(postgres_url) as other:
        other.execute("UPDATE fedbandit_about SET value = 99")
        other.commit()
        with pytest.raises(StoreError, match="of version 99, newer"):
            open_store(postgres_url)
        other.execute("UPDATE fedbandit_about SET value = 1")


def test_what_cannot_be_opened_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened"):
        open_store(tmp_path / "nowhere" / "store.db")
    (tmp_path / "text").write_text("not a database, but long enough to be read as one " * 10)
    with pytest.raises(StoreError, match="not a database"):
        open_store(tmp_path / "text")
    with pytest.raises(StoreError, match="PostgreSQL store cannot be opened"):
        open_store("postgresql://nobody@/none?host=/nonexistent")


def make_members(federation: Federation) -> list[Member]:
    rng = np.random.default_rng(0)
    members = []
    for i in range(3):
        federation.invite(f"m{i}", 0.0)
        members.append(Member(MemoryStore(), TERMS, i, lambda: int(rng.integers(1, 2**62))))
    return members


def exchange(federation: Federation, members: list[Member], frames: list[bytes], i: int) -> None:
    """Carry frames of member i and all that follows."""
    for frame in frames:
        (outcome,) = federation.receive([(f"m{i}", frame)], 1.0)
        assert isinstance(outcome, list)
        for message in outcome:
            members[message.member].receive(message)


def live(federation: Federation, members: list[Member], visits: int) -> None:
    rng = np.random.default_rng(1)
    for i, member in enumerate(members):
        greeting = member.greeting()
        assert greeting is not None
        exchange(federation, members, [greeting], i)
    for t in range(visits):
        i = t % 3
        choice = members[i].select(rng.uniform(-0.5, 0.5, (3, 2)))
        members[i].observe(choice.number, float(rng.uniform(-1, 1)))
        exchange(federation, members, members[i].outgoing(), i)


def test_a_restart_recovers_exactly(store_url: str) -> None:
    name = uuid.uuid4().hex
    store = open_store(store_url)
    federation = Federation(name, TERMS, store, snapshot_every=7)
    members = make_members(federation)
    live(federation, members, 60)
    before = federation.state()
    store.close()
    store = open_store(store_url)
    again = Federation(name, TERMS, store, snapshot_every=7)
    assert pack(again.state()) == pack(before)
    live(again, members, 30)  # and it goes on
    assert again.machine.applied == {i: member.machine.sequence for i, member in enumerate(members)}
    with pytest.raises(FedbanditError, match="configured with"):
        Federation(name, Terms("async-linucb", {"gamma_upload": 9.0}, WORLD), store)
    store.close()


def test_a_client_restarts_exactly(tmp_path: Path) -> None:
    federation = Federation("f", TERMS, MemoryStore())
    members = make_members(federation)
    store = SQLiteStore(tmp_path / "client.db")
    members[0] = Member(store, TERMS, 0, lambda: 77)
    live(federation, members, 40)
    waiting = members[0].select([[0.5, 0.0], [0.0, 0.5]])
    members[0].flush()
    row, sequence = members[0].machine.row.copy(), members[0].machine.sequence
    store.close()
    store = SQLiteStore(tmp_path / "client.db")
    again = Member(store, TERMS, 0, lambda: 78)
    np.testing.assert_array_equal(again.machine.row, row)
    assert (again.machine.sequence, again.incarnation, again.epoch) == (sequence, 77, 2)
    again.observe(waiting.number, 0.5)
    assert again.select([[0.5, 0.0]]).number > waiting.number
    store.close()


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """A file that cannot grow: uploads are made but not sent, and everything is written when there is room."""
    store = SQLiteStore(tmp_path / "client.db")
    member = Member(store, TERMS, 0, lambda: 5)
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    rng, refused = np.random.default_rng(0), set()
    for _ in range(400):
        choice = member.select(rng.uniform(-0.5, 0.5, (3, 2)))
        try:
            member.observe(choice.number, 0.5)
        except StoreError as error:
            refused.add(str(error))
    assert refused == {f"The store {store.path!r} cannot be written: database or disk is full."}
    kept = member._kept
    assert len(member.outgoing(1000)) == kept < member.machine.sequence
    store._db.execute("PRAGMA max_page_count = 1000000")
    member.flush()
    assert len(member.outgoing(1000)) == member.machine.sequence
    row = member.machine.row.copy()
    store.close()
    again = Member(SQLiteStore(tmp_path / "client.db"), TERMS, 0, lambda: 6)
    np.testing.assert_array_equal(again.machine.row, row)
    again.receive(Receipt(0, again.machine.sequence))
    assert again.outgoing() == []
    again.store.close()


def test_a_really_full_disk_is_one_sentence(tmp_path: Path) -> None:
    """The operating system refuses to write more: the sentence comes, and the file is whole afterwards."""
    code = f"""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from fedbandit.network.stores import StoreError, open_store
store = open_store({str(tmp_path / "s.db")!r})
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


@pytest.mark.parametrize("snapshot_every", [1, 2, 3])
def test_snapshots_keep_seats_and_quarantines(snapshot_every: int) -> None:
    """A write that becomes a snapshot has what was written in it."""
    store = MemoryStore()
    federation = Federation("f", TERMS, store, snapshot_every=snapshot_every)
    for name in ("a", "b"):
        federation.invite(name, 0.0)
        federation.quarantine("a", "noisy" if name == "a" else "loud", 0.0)
    again = Federation("f", TERMS, store, snapshot_every=snapshot_every)
    assert list(again.register.by_name) == ["a", "b"]
    assert again.register.seat("a").quarantined == "loud"
    assert again.invite("c", 0.0).member == 2


def test_a_fault_in_the_middle_of_a_batch_takes_back_what_was_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not in the store is never acknowledged, whatever goes wrong."""
    federation = Federation("f", TERMS, MemoryStore())
    members = [Member(MemoryStore(), TERMS, i, lambda: 5) for i in range(2)]
    for i in range(2):
        federation.invite(f"client-{i}", 0.0)
        federation.receive([(f"client-{i}", members[i].greeting() or b"")], 0.0)
    choice = members[0].select(np.eye(2))
    members[0].observe(choice.number, 1.0)
    (frame,) = members[0].outgoing()
    honest = Federation._take

    def faulty(self: Federation, name: str, data: bytes, at: float) -> object:
        if name == "client-1":
            raise np.linalg.LinAlgError
        return honest(self, name, data, at)

    monkeypatch.setattr(Federation, "_take", faulty)
    with pytest.raises(np.linalg.LinAlgError):
        federation.receive([("client-0", frame), ("client-1", b"")], 0.0)
    monkeypatch.undo()
    federation.invite("client-0", 0.0)
    assert federation.machine.applied == {}
    (answers,) = federation.receive([("client-0", frame)], 0.0)
    assert isinstance(answers, list)
    assert federation.machine.applied == {0: 1}
