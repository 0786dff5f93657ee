"""Backups and restores that must not go wrong in silence, nor stop half-way."""

from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

import fedbandit as fb
from fedbandit.network.coordinator.backup import MENDED, read_backup, write_backup
from fedbandit.network.coordinator.config import FederationConfig, ServerConfig
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.host import Host
from fedbandit.network.coordinator.service import make_app
from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import MemoryStore, Store, StoredJournal, StoreError, open_store
from fedbandit.network.stores.files import as_file, save
from tests.cli.command_line import refusal, report
from tests.network.in_process import make_clients, run
from tests.network.servers import AGREEMENT, CONFIG, Coordinator, make_host, served

LONG_ONE = Agreement(
    "async-linucb", {"gamma_upload": 1.3, "gamma_download": 1.3}, fb.World(600, 32, horizon=100_000, bound=4.0)
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Of a coordinator on SQLite that has never been started."""
    path = tmp_path / "federation.toml"
    path.write_text(CONFIG.format(port=0, store="store.db"))
    return path


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """Of a federation `shops` with some observations."""
    store = MemoryStore()
    federation = Federation("shops", AGREEMENT, store)
    run(federation, make_clients(federation), 5)
    path = tmp_path / "good.bak"
    save(path, write_backup(store), read_backup)
    return path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# What is not there, or is no backup


def test_what_is_to_be_read_is_never_made(tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    to, before = str(tmp_path / "b.db"), names(tmp_path)
    for words in (["backup", to], ["migrate", "shops", "--backup", to]):
        assert "There is no store" in refusal(capsys, *words, "--config", str(config))
    assert names(tmp_path) == before
    (tmp_path / "store.db").touch()
    assert "There is no store" in refusal(capsys, "backup", to, "--config", str(config))
    open_store(tmp_path / "store.db").close()
    assert "has no federation in it: there is nothing to back up" in refusal(
        capsys, "backup", to, "--config", str(config)
    )
    assert names(tmp_path) == before | {"store.db"}


def test_a_file_that_is_no_backup_is_said_by_its_name(
    tmp_path: Path, config: Path, backup: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.bak"
    whole = backup.read_bytes()
    flipped = bytearray(whole)
    flipped[whole.index(b"FBS1") + 400] ^= 1
    open_store(tmp_path / "empty.db").close()
    for data, why in (
        (b"", "is no backup: there is no journal in it."),
        (b"not a database, but long enough to be one " * 30, "is no backup: file is not a database."),
        ((tmp_path / "empty.db").read_bytes(), "is no backup: there is no journal in it."),
        (whole[: len(whole) // 2], "is damaged: .*; take another one."),
        (bytes(flipped), "is damaged: 'shops': its checksum differs; take another one."),
    ):
        path.write_bytes(data)
        said = refusal(capsys, "restore", str(path), "--config", str(config), "--force")
        assert str(path) in said
        assert "keep" not in said
        with pytest.raises(fb.FedbanditError, match=why):
            read_backup(path)
    assert not (tmp_path / "store.db").exists()


def test_a_store_is_no_backup(tmp_path: Path, backup: Path) -> None:
    """What is in its log is not in the file."""
    with closing(open_store(tmp_path / "store.db")) as store:
        store.put(read_backup(backup))
        with pytest.raises(fb.FedbanditError, match="is no backup, but a store that is in use or was not closed"):
            read_backup(tmp_path / "store.db")


def test_reading_a_backup_changes_nothing(tmp_path: Path, backup: Path) -> None:
    """Nor does it need to be allowed to."""
    before = backup.read_bytes()
    backup.chmod(0o400)
    assert [journal.name for journal in read_backup(backup)] == ["shops"]
    assert (names(tmp_path), backup.read_bytes()) == ({backup.name}, before)


# Restores


@pytest.mark.parametrize("damage", ["header", "truncated", "page"])
def test_a_damaged_store_is_put_aside_and_made_anew(
    damage: str, tmp_path: Path, config: Path, backup: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "store.db"
    with closing(open_store(path, many=True)) as store:
        store.put([*read_backup(backup), StoredJournal("large", bytes(200_000), [])])
    whole = bytearray(path.read_bytes())
    if damage == "truncated":
        del whole[100_000:]
    else:
        at = 0 if damage == "header" else 3 * 32_768
        whole[at : at + 16] = b"\xff" * 16
    path.write_bytes(whole)
    restore = ["restore", str(backup), "--config", str(config)]
    assert "--force keeps it under another name, and makes a new one" in refusal(capsys, *restore)
    assert path.read_bytes() == whole
    done = report(capsys, *restore, "--force")
    assert Path(done["damaged"]).name.startswith("store.db.damaged-")
    assert Path(done["damaged"]).read_bytes() == whole
    with closing(open_store(path)) as store:
        assert store.dump() == read_backup(backup)


def test_a_running_coordinators_damaged_file_stays(
    tmp_path: Path, backup: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    coordinator = Coordinator(tmp_path, "store.db")
    coordinator.start()
    try:
        with (tmp_path / "store.db").open("r+b") as file:
            file.write(b"\xff" * 64)
        words = ["restore", str(backup), "--config", str(coordinator.config), "--force"]
        assert "stop it first" in refusal(capsys, *words)
    finally:
        coordinator.kill()
    assert not [name for name in names(tmp_path) if "damaged" in name]


def test_a_restore_is_all_or_nothing(
    tmp_path: Path, config: Path, postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of two federations is another coordinator's, which runs."""
    config.write_text(CONFIG.format(port=0, store=postgres_url))
    backup = tmp_path / "b.bak"
    federation = Federation("alpha", AGREEMENT, MemoryStore())
    old, _ = federation.store.read("alpha")
    save(backup, as_file([StoredJournal(name, old, []) for name in ("alpha", "beta")]), read_backup)
    with closing(open_store(postgres_url)) as running:
        for name in ("alpha", "beta"):
            running.put([StoredJournal(name, old, [b"later"])])
        running.release("alpha")
        said = refusal(capsys, "restore", str(backup), "--config", str(config), "--force")
        assert "Federation 'beta' is another coordinator's" in said
        assert said.endswith("stop it first. Nothing was restored.")
        assert running.read("beta")[1] == [b"later"]
    with closing(open_store(postgres_url)) as store:
        assert store.read("alpha")[1] == [b"later"]
    assert report(capsys, "restore", str(backup), "--config", str(config), "--force")["federations"] == [
        "alpha",
        "beta",
    ]
    with closing(open_store(postgres_url)) as store:
        assert store.read("alpha") == store.read("beta") == (old, [])


# Backups


@pytest.fixture
def rotten(store_url: str) -> Iterator[tuple[Host, str]]:
    """A coordinator in whose store a block is not as it was written."""
    host = Host(ServerConfig({"shops": FederationConfig(LONG_ONE)}, store=store_url, rate=1e6))
    federation = host.federations["shops"].federation
    run(federation, make_clients(federation), 5)
    federation.journal.snapshot(federation.state())
    store: Any = host.store.store
    if store_url.startswith("postgres"):
        store._connection().execute("UPDATE fedbandit_blocks SET data = set_byte(data, 100, 7) WHERE place = 30")
    else:
        store._db.execute("UPDATE blocks SET data = CAST(zeroblob(65535) || x'07' AS BLOB) WHERE place = 30")
    yield host, store_url
    host.store.close()


def test_a_backup_mends_what_is_rotten(
    rotten: tuple[Host, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host, url = rotten
    federation = host.federations["shops"].federation
    federation.journal.snapshot(federation.state())  # of which that block is not written: nothing in it has changed
    with pytest.raises(StoreError, match="block 30 of the snapshot of 'shops' is not as it was written"):
        host.store.read("shops")
    with (
        TestClient(make_app(host), base_url="http://127.0.0.1") as http,
        caplog.at_level(logging.INFO, "fedbandit"),
    ):
        for _ in range(2):
            answer = http.get("/api/backup")
            assert answer.status_code == 200
    assert [record.message for record in caplog.records].count(MENDED) == 1
    (journal,) = save(tmp_path / "b.db", answer.content, read_backup)
    with closing(open_store(url)) as store:
        assert store.read("shops") == journal[1:]
        assert Federation("shops", LONG_ONE, store).machine.gathered().n == federation.machine.gathered().n > 0


def test_a_rotten_block_of_a_stopped_coordinator_is_named(rotten: tuple[Host, str]) -> None:
    host, url = rotten
    host.store.close()
    with closing(open_store(url)) as store:
        with pytest.raises(StoreError, match="is damaged: block 30 of the snapshot of 'shops'"):
            Federation("shops", LONG_ONE, store)
        with pytest.raises(StoreError, match="is damaged: block 30 of the snapshot of 'shops'"):
            write_backup(store)


def test_a_damaged_entry_is_mended_too() -> None:
    host = make_host()
    federation = host.federations["shops"].federation
    run(federation, make_clients(federation), 5)
    memory: Any = host.store.store
    entries = memory.journals["shops"][1]
    entries[0] = entries[0][:-1] + bytes([entries[0][-1] ^ 1])
    with TestClient(make_app(host), base_url="http://127.0.0.1") as http:
        assert http.get("/api/backup").status_code == 200
    assert Federation("shops", AGREEMENT, memory).machine.gathered().n == federation.machine.gathered().n > 0


def test_a_backup_that_cannot_be_made_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The administrator who asked, not "cannot write now", which is not so."""
    host = make_host()
    with TestClient(make_app(host), base_url="http://127.0.0.1") as http, caplog.at_level(logging.INFO, "fedbandit"):

        def dump() -> list[StoredJournal]:
            raise StoreError("The PostgreSQL store cannot be read: no.")

        monkeypatch.setattr(host.store, "dump", dump)
        answer = http.get("/api/backup")
        assert answer.status_code == 503
        assert answer.json()["error"] == "No backup was made: The PostgreSQL store cannot be read: no."
    said = [record.message for record in caplog.records]
    assert "no backup" in said
    assert "the store fails" not in said


def test_backups_are_made_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has all of the store in memory."""
    host, going, most = make_host(), [0], [0]
    dump, two = host.store.dump, threading.Event()

    def slowly() -> list[StoredJournal]:
        going[0] += 1
        most[0] = max(most[0], going[0])
        two.wait(0.2)
        going[0] -= 1
        return dump()

    monkeypatch.setattr(host.store, "dump", slowly)
    with served(host) as url, ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(urllib.request.urlopen, f"{url}/api/backup", timeout=60) for _ in range(3)]
        assert all(one.result().read(6) == b"SQLite" for one in asked)
    assert most == [1]


def test_a_backup_needs_no_room_for_temporary_files(tmp_path: Path, backup: Path) -> None:
    """Nor does one that is killed leave anything there."""
    nowhere = tmp_path / "full"
    nowhere.mkdir()
    nowhere.chmod(0o500)
    code = f"""
import os, resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
from pathlib import Path
from fedbandit.network.coordinator.backup import read_backup, write_backup
from fedbandit.network.stores import MemoryStore
store = MemoryStore()
store.put(read_backup(Path({str(backup)!r})))
os.write(1, str(len(write_backup(store))).encode())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, env=os.environ | {"TMPDIR": str(nowhere)}
    )
    assert int(done.stdout) == backup.stat().st_size
    assert names(nowhere) == set()


def test_a_backup_that_fails_leaves_nothing(tmp_path: Path, backup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = names(tmp_path)
    with pytest.raises(fb.FedbanditError, match="is no backup"):
        save(tmp_path / "b.db", b"not one", read_backup)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(fb.FedbanditError, match=r"'.*b\.db' cannot be written: No space left on device\.$"):
        save(tmp_path / "b.db", backup.read_bytes(), read_backup)
    assert names(tmp_path) == before


def test_a_postgresql_store_is_backed_up_as_it_is(
    tmp_path: Path, config: Path, postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A database without tables is said; tables of version 2 are read, and stay what they are."""
    config.write_text(CONFIG.format(port=0, store=postgres_url))
    words = ["--config", str(config)]
    for command in (["backup", str(tmp_path / "b.db")], ["migrate", "shops", "--backup", str(tmp_path / "b.db")]):
        assert "has no tables of fedbandit" in refusal(capsys, *command, *words)
    old, _ = Federation("shops", AGREEMENT, MemoryStore()).store.read("shops")
    with closing(open_store(postgres_url)) as store:
        store.put([StoredJournal("shops", old, [])])
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("DROP TABLE fedbandit_blocks")
        assert report(capsys, "backup", str(tmp_path / "b.db"), *words)["federations"] == ["shops"]
        assert db.execute("SELECT to_regclass('fedbandit_blocks')").fetchone() == (None,)
        db.execute("DROP TABLE fedbandit_snapshots")
        said = refusal(capsys, "backup", str(tmp_path / "c.db"), *words)
        assert 'cannot be read: relation "fedbandit_snapshots" does not exist' in said
        assert not said.endswith("..")
    assert read_backup(tmp_path / "b.db") == [StoredJournal("shops", old, [])]


def test_a_backup_is_a_store_of_its_own(backup: Path) -> None:
    """It opens as one, and is no larger than it has to be."""
    with closing(sqlite3.connect(backup)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    journals = read_backup(backup)
    store: Store
    with closing(open_store(backup)) as store:
        assert store.dump() == journals
