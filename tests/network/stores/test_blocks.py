"""A long snapshot comes back whole, and only what has changed in it is written."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import psycopg
import pytest

import fedbandit as fb
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import Damaged, Store, StoredJournal, StoreError, open_store
from fedbandit.network.stores.postgres import PostgresStore
from fedbandit.network.stores.tables import FIRST_VERSION, VERSION
from fedbandit.state import BLOCK, LONG, State, StateError, pack, unpack
from tests.network.in_process import make_clients, run

MEMBERS, D = 300, 40


def a_state(rng: np.random.Generator) -> State:
    return State({"applied": {}}, {"V": rng.standard_normal((MEMBERS, D, D)), "b": rng.standard_normal((MEMBERS, D))})


def written(store_url: str) -> Callable[[], list[tuple[Any, ...]]]:
    """Which blocks there are, each with what changes whenever it is written."""

    def look() -> list[tuple[Any, ...]]:
        if store_url.startswith("postgres"):
            with psycopg.connect(store_url) as db:
                return db.execute("SELECT journal, place, xmin::text FROM fedbandit_blocks ORDER BY 1, 2").fetchall()
        with contextlib.closing(sqlite3.connect(store_url)) as db:
            return db.execute("SELECT journal, place, rowid FROM blocks ORDER BY 1, 2").fetchall()

    return look


def test_snapshots_of_any_length_follow_each_other(store_url: str) -> None:
    store, rng = open_store(store_url), np.random.default_rng(0)
    data = rng.bytes(LONG + 5 * BLOCK)
    lengths = (
        LONG,
        LONG + 1,
        LONG + 5 * BLOCK,
        LONG + BLOCK,
        LONG + BLOCK - 1,
        3,
        LONG + 2,
        BLOCK,
        0,
        LONG + 7,
        BLOCK - 1,
    )
    for i, length in enumerate(lengths):
        snapshot = bytearray(data[:length])
        for at in rng.integers(0, max(length, 1), 3):
            snapshot[at : at + 1] = bytes([i]) if length else b""
        store.append("f", [b"before"])
        store.replace("f", bytes(snapshot), durable=bool(i % 2))
        store.replace("g", data[: LONG + i])
        store.append("f", [b"after"])
        assert store.read("f") == (bytes(snapshot), [b"after"])
        assert {journal.name: journal[1:] for journal in store.dump()} == {
            "f": (bytes(snapshot), [b"after"]),
            "g": (data[: LONG + i], []),
        }
        store.close()
        store = open_store(store_url)
        assert store.read("f") == (bytes(snapshot), [b"after"])
    store.remove()


def test_only_the_members_who_have_uploaded_are_written(store_url: str) -> None:
    """The head grows as members upload; their statistics stay where they were."""
    store, rng = open_store(store_url), np.random.default_rng(1)
    state, look = a_state(rng), written(store_url)
    store.replace("f", pack("coordinator", state))

    def changed_by(change: Callable[[], None]) -> int:
        nonlocal store
        store.close()
        before = set(look())
        change()
        store = open_store(store_url)
        store.replace("f", pack("coordinator", state))
        store.close()
        after = set(look())
        store = open_store(store_url)
        kept, _ = store.read("f")
        assert kept is not None
        back = unpack("coordinator", kept)
        assert back.header == state.header
        assert all((back.arrays[name] == array).all() for name, array in state.arrays.items())
        return len(after - before)

    def upload(*members: int) -> None:
        for member in members:
            state.arrays["V"][member] += 1.0
            state.arrays["b"][member] += 1.0
            state.header["applied"][str(member)] = len(state.header["applied"])

    store.close()
    total = len(look())
    store = open_store(store_url)
    assert total == -(-(MEMBERS * D * (D + 1) * 8 + 16) // BLOCK), "the arrays and the checksum behind them"
    assert changed_by(upload) == 0
    assert 1 < changed_by(lambda: upload(7)) <= 5, "its V, its b and the checksum"
    assert changed_by(lambda: upload(*range(MEMBERS))) == total
    store.remove()


def test_a_failed_snapshot_leaves_the_one_before(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedbandit.network.stores import blocks

    store, rng = open_store(store_url), np.random.default_rng(2)
    first, second = rng.bytes(LONG + 3 * BLOCK), rng.bytes(LONG + 4 * BLOCK)
    store.replace("f", first)
    store.append("f", [b"since"])
    taken_apart = blocks.in_blocks

    def broken(snapshot: bytes) -> Any:
        begin, parts = taken_apart(snapshot)
        parts[2:3] = [parts[2]._replace(digest=cast(bytes, None))]  # which no table takes
        return begin, parts

    for module in ("sqlite", "postgres"):
        monkeypatch.setattr(f"fedbandit.network.stores.{module}.in_blocks", broken)
    with pytest.raises(StoreError, match="cannot be written"):
        store.replace("f", second)
    assert store.read("f") == (first, [b"since"])
    store.remove()


def test_a_flipped_bit_in_a_block_is_refused(tmp_path: Path) -> None:
    path, rng = tmp_path / "store.db", np.random.default_rng(3)
    with contextlib.closing(open_store(path)) as store:
        store.replace("f", pack("coordinator", a_state(rng)))
    whole = path.read_bytes()
    for at in [*range(len(whole) // 4, len(whole), len(whole) // 37)]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        try:
            with contextlib.closing(open_store(path)) as store:
                kept = store.read("f")[0]
                assert kept is not None, "it would begin anew"
                unpack("coordinator", kept)
        except (StoreError, StateError):
            continue
        assert kept == pack("coordinator", a_state(np.random.default_rng(3))), at
    path.write_bytes(whole)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE blocks SET journal = 'g' WHERE place = 9")
    with pytest.raises(StoreError, match="is damaged: a part is of 'g', which is not there"):
        open_store(path)


def test_a_file_is_of_the_first_version_until_it_has_blocks(tmp_path: Path) -> None:
    """A version of fedbandit that knows no blocks reads everything before, and refuses the file then."""
    path = tmp_path / "store.db"

    def version() -> int:
        with contextlib.closing(sqlite3.connect(path)) as db:
            return int(db.execute("SELECT value FROM about").fetchone()[0])

    for snapshot, expected in ((b"short", 1), (bytes(LONG + 1), 3), (b"short again", 3)):
        with contextlib.closing(open_store(path)) as store:
            store.replace("f", snapshot)
        assert version() == expected
        with contextlib.closing(open_store(path)) as store:
            assert store.read("f") == (snapshot, [])


def kept_as_state(store_url: str) -> bytes:
    """What an older version reads: it knows no blocks."""
    if store_url.startswith("postgres"):
        with psycopg.connect(store_url) as db:
            found = db.execute("SELECT state FROM fedbandit_snapshots WHERE journal = 'f'").fetchone()
    else:
        with contextlib.closing(sqlite3.connect(store_url)) as lite:
            found = lite.execute("SELECT state FROM snapshots WHERE journal = 'f'").fetchone()
    assert found is not None
    return bytes(found[0])


def test_an_older_version_does_not_take_a_beginning_for_damage(store_url: str) -> None:
    """A standby that was connected before the tables became newer looks at this alone."""
    with contextlib.closing(open_store(store_url)) as store:
        store.replace("f", pack("coordinator", a_state(np.random.default_rng(0))))
    with pytest.raises(StateError, match=r"expected b'FBS1'; .*install the version that wrote it") as refused:
        unpack("coordinator", kept_as_state(store_url))
    assert "damaged" not in str(refused.value)


def test_tables_stay_as_older_versions_know_them_until_there_are_blocks(postgres_url: str) -> None:
    def version() -> int:
        with psycopg.connect(postgres_url) as db:
            return int(db.execute("SELECT value FROM fedbandit_about").fetchone()[0])  # type: ignore[index]

    for snapshot, expected in ((b"short", FIRST_VERSION), (bytes(LONG + 1), VERSION), (b"short again", VERSION)):
        with contextlib.closing(PostgresStore(postgres_url)) as store:
            store.replace("f", snapshot)
        assert version() == expected
        with contextlib.closing(PostgresStore(postgres_url)) as store:
            assert store.read("f") == (snapshot, [])


def test_beginnings_without_a_mark_are_read(store_url: str) -> None:
    """As the first version wrote them that knew blocks: 64 KiB, and the rest in blocks."""
    snapshot = np.random.default_rng(0).bytes(LONG + BLOCK + 7)
    store: Any = open_store(store_url)
    store.replace("f", snapshot)
    if store_url.startswith("postgres"):
        update = "UPDATE fedbandit_snapshots SET state = %s WHERE journal = 'f'"
        store._connection().execute(update, (snapshot[:BLOCK],))
    else:
        store._db.execute("UPDATE snapshots SET state = ? WHERE journal = 'f'", (snapshot[:BLOCK],))
    assert store.read("f") == (snapshot, [])
    assert store.dump()[0].snapshot == snapshot
    store.remove()


def test_a_rotten_block_is_named_and_mended(store_url: str) -> None:
    """A snapshot writes only what has changed in memory; `put` writes all of it."""
    snapshot = pack("coordinator", a_state(np.random.default_rng(0)))
    store: Any = open_store(store_url)
    store.replace("f", snapshot)
    if store_url.startswith("postgres"):
        store._connection().execute("UPDATE fedbandit_blocks SET data = set_byte(data, 100, 7) WHERE place = 30")
    else:
        store._db.execute("UPDATE blocks SET data = CAST(zeroblob(65535) || x'07' AS BLOB) WHERE place = 30")
    for look in (lambda: store.read("f"), store.dump):
        with pytest.raises(Damaged, match="is damaged: block 30 of the snapshot of 'f' is not as it was") as refused:
            look()
        assert refused.value.journal == "f"
    store.put([StoredJournal("f", snapshot, [b"since"])])
    assert store.read("f") == (snapshot, [b"since"])
    store.remove()


def test_journals_are_put_all_or_none(store_url: str) -> None:
    snapshot = pack("coordinator", a_state(np.random.default_rng(0)))
    store = open_store(store_url)
    store.replace("f", b"before")
    store.append("f", [b"1"])
    with pytest.raises(StoreError, match="'g' has no snapshot"):
        store.put([StoredJournal("f", snapshot, [b"2"] * 1001), StoredJournal("g", None, [])])
    assert store.read("f") == (b"before", [b"1"])
    assert store.names() == ["f"]
    store.put([StoredJournal("f", snapshot, [b"2"] * 1001), StoredJournal("h", b"h", [])])
    assert (store.read("f"), store.read("h")) == ((snapshot, [b"2"] * 1001), (b"h", []))
    assert store.names() == ["f", "h"]
    store.remove()


def test_an_older_coordinator_may_still_write(postgres_url: str) -> None:
    """One that was connected when the tables became newer writes whole snapshots beside the blocks."""
    store = PostgresStore(postgres_url)
    store.replace("f", bytes(LONG + 1))
    whole = bytes(LONG) + b"other"
    store._connection().execute("UPDATE fedbandit_snapshots SET state = %s WHERE journal = 'f'", (whole,))
    assert store.read("f") == (whole, [])
    store.replace("f", bytes(LONG + 2))
    assert store.read("f") == (bytes(LONG + 2), [])
    store.remove()


def test_tables_that_a_role_may_not_make_are_said(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as db:
        PostgresStore(postgres_url).close()
        db.execute("DROP TABLE fedbandit_blocks")
        db.execute("UPDATE fedbandit_about SET value = 2")
        db.execute("DROP ROLE IF EXISTS reader")
        db.execute("CREATE ROLE reader LOGIN")
        db.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        db.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO reader")
        with pytest.raises(
            StoreError, match=rf"of version 2, and this role may not make those of version {VERSION}; let"
        ):
            PostgresStore(postgres_url.replace("fedbandit@", "reader@"), patience=1.0)
    store: Store = PostgresStore(postgres_url)
    store.replace("f", bytes(LONG + 1))
    assert store.read("f") == (bytes(LONG + 1), [])
    store.remove()


def test_a_coordinator_writes_its_active_members(tmp_path: Path) -> None:
    """Three of 600 places act: a snapshot is written in a few blocks of its 5 MB."""
    path, world = tmp_path / "store.db", fb.World(n_clients=600, dim=32, horizon=100_000, bound=4.0)
    agreement = Agreement("async-linucb", {"gamma_upload": 1.3, "gamma_download": 1.3}, world)
    store = open_store(path)
    federation = Federation("f", agreement, store)
    clients = make_clients(federation)
    run(federation, clients, 5)
    federation.journal.snapshot(federation.state())
    store.close()
    before = set(written(str(path))())
    store = open_store(path)
    federation = Federation("f", agreement, store)
    run(federation, clients, 20)
    assert store.read("f")[1], "entries that a snapshot takes the place of"
    federation.journal.snapshot(federation.state())
    store.close()
    after = set(written(str(path))())
    assert len(before) == len(after) >= 4e6 / BLOCK
    assert 1 <= len(after - before) <= 8
    with contextlib.closing(open_store(path)) as store:
        assert store.read("f")[1] == []
        again = Federation("f", agreement, store)
        assert again.machine.gathered().n == federation.machine.gathered().n > 0
