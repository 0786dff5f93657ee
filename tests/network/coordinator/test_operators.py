"""What operators do: see that something fails, take backups and restore them, free places, quarantine, migrate."""

from __future__ import annotations

import logging
import urllib.request
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

import fedbandit as fb
from fedbandit.network.carried import Carried
from fedbandit.network.client.client import Client
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.coordinator.backup import read_backup, write_backup
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.migrate import migrate
from fedbandit.network.coordinator.rules import Rules
from fedbandit.network.coordinator.service import make_app
from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import MemoryStore, StoreError, open_store
from fedbandit.network.stores.files import save
from tests.cli.command_line import refusal, report
from tests.network.in_process import make_clients, run
from tests.network.servers import CONFIG, Coordinator, get_json, make_host, served
from tests.waiting import eventually

WORLD = fb.World(n_clients=3, dim=3, horizon=600)
AGREEMENT = Agreement("async-linucb", {"gamma_upload": 1.3, "gamma_download": 1.3}, WORLD)


def visit(client: Client, rng: np.random.Generator, times: int) -> None:
    for _ in range(times):
        client.observe(float(rng.uniform(-1, 1)), client.select(rng.uniform(-0.5, 0.5, (4, 3))))


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_drill(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """A backup while it runs; the store is lost; the backup is restored; clients bring what it misses."""
    store = "store.db" if kind == "sqlite" else str(request.getfixturevalue("postgres_url"))
    coordinator = Coordinator(tmp_path, store)
    url, rng = coordinator.start(), np.random.default_rng(0)
    backup = tmp_path / "backup.db"
    try:
        with Client(url, federation="shops", name="a") as a, Client(url, federation="shops", name="b") as b:
            visit(a, rng, 20)
            assert a.flush(60.0)
            done = report(capsys, "backup", str(backup), "--url", url)
            assert done["federations"] == ["shops"]
            assert backup.stat().st_mode & 0o077 == 0
            assert "already" in refusal(capsys, "backup", str(backup), "--url", url)
            config = ["--config", str(coordinator.config)]
            if kind == "sqlite":
                assert "ask it with --url" in refusal(capsys, "backup", str(tmp_path / "another.db"), *config)
                assert "stop it first" in refusal(capsys, "restore", str(backup), *config)
            visit(a, rng, 20)
            visit(b, rng, 20)
            assert a.flush(60.0)
            assert b.flush(60.0)
            sent = a.status()["observed"] - a.status()["pending"] + b.status()["observed"] - b.status()["pending"]
            coordinator.kill()
            if kind == "sqlite":
                for path in tmp_path.glob("store.db*"):
                    path.unlink()
            else:
                assert "--force" in refusal(capsys, "restore", str(backup), *config)
            assert report(capsys, "restore", str(backup), *config, "--force")["federations"] == ["shops"]
            assert coordinator.start() == url
            visit(a, rng, 1)
            visit(b, rng, 1)
            assert a.flush(120.0)
            assert b.flush(120.0)
            eventually(lambda: get_json(f"{url}/api/overview")["federations"][0]["totals"]["observations"] >= sent)
            assert get_json(f"{url}/healthz")["status"] == "ok"
            coordinator.kill()
            with closing(open_store(str(tmp_path / store) if kind == "sqlite" else store)) as opened:
                federation = Federation("shops", Agreement(AGREEMENT.system, AGREEMENT.keywords,
                                        replace(WORLD, n_clients=4, horizon=10_000)), opened)  # fmt: skip
                assert sent <= federation.machine.gathered().n <= sent + 2
    finally:
        coordinator.kill()


def test_a_backup_is_read_before_it_is_believed(tmp_path: Path) -> None:
    store = MemoryStore()
    federation = Federation("f", AGREEMENT, store)
    run(federation, make_clients(federation), 5)
    data = write_backup(store)
    fresh = MemoryStore()
    fresh.put(save(tmp_path / "good.db", data, read_backup))
    assert fresh.journals == store.journals
    spoilt = bytearray(data)
    at = data.index(b"FBS1") + 400
    spoilt[at] ^= 1
    (tmp_path / "bad.db").write_bytes(bytes(spoilt))
    with pytest.raises(fb.FedbanditError):
        read_backup(tmp_path / "bad.db")


def test_health_fails_with_the_store_and_says_so_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    host = make_host()

    def broken() -> None:
        raise StoreError("The store is somewhere else.")

    with TestClient(make_app(host), base_url="http://127.0.0.1") as http, caplog.at_level(logging.INFO, "fedbandit"):
        assert http.get("/healthz").status_code == 200
        host.store.check = broken  # type: ignore[method-assign]
        host._checked = (-9.0, "")
        answer = http.get("/healthz")
        assert (answer.status_code, answer.json()["status"]) == (503, "failing")
        assert http.get("/api/overview").json()["trouble"] == "The store is somewhere else."
    assert "the store fails" in [record.message for record in caplog.records]


def test_a_full_disk_that_takes_short_writes_is_still_full(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor is it emptied by what writes nothing; it is when a write as long succeeds, or nobody tries for a minute."""
    host = make_host()
    hosted = host.federations["shops"]
    append = host.store.append
    room = 100

    def full(journal: str, entries: Sequence[bytes], *, durable: bool = True) -> None:
        if sum(map(len, entries)) > room:
            raise StoreError("The disk is full.")
        append(journal, entries, durable=durable)

    def said() -> list[str]:
        return [record.message for record in caplog.records if record.message.startswith("the store")]

    with TestClient(make_app(host), base_url="http://127.0.0.1") as http, caplog.at_level(logging.INFO, "fedbandit"):

        def invite(name: str) -> int:
            return http.get("/v1/shops/invitation", headers={"x-fedbandit-name": name}).status_code

        host.store.append = full  # type: ignore[method-assign]
        assert invite("a" * 99) == 503
        assert "disk is full" in http.get("/api/overview").json()["trouble"]
        assert invite("b") == 200
        http.portal.call(hosted.do, hosted.federation.tick, 0.0)  # type: ignore[union-attr]
        assert http.get("/healthz").status_code == 503
        assert "the store is back" not in said()
        room = 1000
        assert invite("c" * 99) == 200
        assert http.get("/healthz").status_code == 200
        assert said()[-1] == "the store is back"
        room = 100
        assert invite("d" * 99) == 503
        monkeypatch.setattr("fedbandit.network.coordinator.health.FAILING_SECONDS", -1.0)
        http.portal.call(hosted.do, hosted.federation.tick, 0.0)  # type: ignore[union-attr]
        assert http.get("/healthz").status_code == 200


def test_clients_are_not_told_why_the_store_fails(caplog: pytest.LogCaptureFixture) -> None:
    host = make_host()
    hosted = host.federations["shops"]

    def broken(*_: object, **__: object) -> None:
        raise StoreError("connection to server at 10.1.2.3 failed")

    with TestClient(make_app(host), base_url="http://127.0.0.1") as http, caplog.at_level(logging.INFO, "fedbandit"):
        client = make_clients(hosted.federation, 1)[0]
        host.store.append = broken  # type: ignore[method-assign]
        headers = {"x-fedbandit-name": "client-0", "content-type": "application/octet-stream"}
        answer = http.post("/v1/shops/messages", content=client.greeting(), headers=headers)
        assert answer.status_code == 503
        assert "10.1.2.3" not in answer.text
        assert http.get("/healthz").status_code == 503
    assert any("10.1.2.3" in str(getattr(record, "reason", "")) for record in caplog.records)


def test_quarantine_and_members_are_commands(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    host = make_host()
    caplog.set_level(logging.INFO, "fedbandit")
    with served(host) as url, Client(url, federation="shops", name="shop-1") as client:
        visit(client, np.random.default_rng(0), 10)
        assert client.flush(60.0)
        words = ["quarantine", "shops", "shop-1", "--url", url]
        assert report(capsys, *words, "--reason", "it lies")["quarantined"]
        listed = report(capsys, "members", "list", "shops", "--url", url)["clients"]
        assert [(one["name"], one["quarantined"], one["quarantined_by"]) for one in listed] == [
            ("shop-1", "it lies", "fedbandit")
        ]
        assert host.federations["shops"].federation.machine.gathered().n == 0
        assert "needs --reason" in refusal(capsys, *words)
        assert "not a member" in refusal(capsys, "quarantine", "shops", "x", "--url", url, "--end")
        assert not report(capsys, *words, "--end")["quarantined"]
        assert host.federations["shops"].federation.machine.gathered().n > 0
        assert report(capsys, "seats", "list", "shops", "--url", url)["clients"][0]["name"] == "shop-1"
        assert report(capsys, "seats", "free", "shops", "shop-1", "--url", url)["free"] == 4, "as it was called"
        assert "members free needs a CLIENT" in refusal(capsys, "members", "free", "shops", "--url", url)
    events = [(record.message, getattr(record, "by", None)) for record in caplog.records]
    assert ("quarantine", "fedbandit") in events
    assert ("join", None) in events
    assert "no answer from" in refusal(capsys, "members", "list", "shops", "--url", url)


def test_metrics_are_what_prometheus_reads() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    host = make_host()
    with served(host) as url, Client(url, federation="shops", name="a") as client:
        visit(client, np.random.default_rng(0), 10)
        assert client.flush(60.0)
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
            families = {family.name: family for family in parser.text_string_to_metric_families(answer.read().decode())}
    for name in ("build_info", "store_write_seconds", "frame_seconds", "work_seconds", "snapshot_bytes", "queue_length",
                 "uploads", "connected_clients", "refusals", "unauthenticated_requests"):  # fmt: skip
        assert f"fedbandit_{name}" in families, name
    counted = [s for s in families["fedbandit_frame_seconds"].samples if s.name.endswith("_count")]
    assert counted[0].value >= families["fedbandit_uploads"].samples[0].value > 0
    assert "process_open_fds" in families


def test_ten_thousand_clients_are_shown_a_page_at_a_time() -> None:
    host = make_host()
    register = host.federations["shops"].federation.register
    register.n_members = 20_000
    for i in range(10_000):
        register.enrol(f"shop-{i:05}", 0.0)
    register.record("shop-07777").quarantined = "it lies"
    with TestClient(make_app(host), base_url="http://127.0.0.1") as http:
        assert len(http.get("/api/overview").content) < 20_000
        page = http.get("/v1/shops/clients").json()
        assert (page["found"], page["pages"], len(page["clients"])) == (10_000, 200, 50)
        assert page["clients"][0]["name"] == "shop-07777", "what is wrong comes first"
        assert "it lies" in http.get("/api/overview").json()["federations"][0]["problems"][0]
        assert http.get("/v1/shops/clients?search=0999&page=9").json()["found"] == 11
        assert http.get("/v1/shops/clients?page=x").status_code == 400


def test_a_federation_gets_features_and_another_system_with_what_it_has_learnt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = MemoryStore()
    federation = Federation("f", AGREEMENT, store)
    run(federation, make_clients(federation), 20)
    before = federation.machine.gathered()
    wider = replace(AGREEMENT, world=replace(WORLD, dim=4))
    assert Carried(AGREEMENT, wider).features == [0, 1, 2, None]
    migrated = migrate(store, "f", Carried(AGREEMENT, wider, [2, 0, None, 1]), Rules())
    after = migrated.machine.gathered()
    order = [1, 3, 0]  # where the old features are now
    np.testing.assert_allclose(after.V[np.ix_(order, order)], before.V)
    np.testing.assert_allclose(after.b[order], before.b)
    assert not after.V[2].any()
    assert after.n == before.n
    again = Federation("f", wider, store)
    clients = [DurableClient(MemoryStore(), wider, i, iter(range(50 * i + 500, 9999)).__next__) for i in range(3)]
    run(again, clients, 10)
    assert again.machine.gathered().n > before.n
    clustered = replace(wider, system="hetofedbandit-async", keywords={})
    other = migrate(store, "f", Carried(wider, clustered), Rules())
    assert other.machine.gathered().n == again.machine.gathered().n
    private = replace(wider, system="count-linucb", keywords={"privacy": {"noises": "statistics", "epsilon": 1.0}})
    with pytest.raises(fb.FedbanditError, match="private federation is not migrated"):
        migrate(store, "f", Carried(clustered, private), Rules())
    with pytest.raises(fb.FedbanditError, match="must be 4 numbers below 4"):
        Carried(wider, clustered, [0, 9])
    config = tmp_path / "f.toml"
    config.write_text(CONFIG.format(port=0, store="s.db"))
    words = ["migrate", "shops", "--config", str(config), "--backup", str(tmp_path / "b.db")]
    assert "There is no store" in refusal(capsys, *words)
    open_store(tmp_path / "s.db").close()
    assert "has no federation 'shops'" in refusal(capsys, *words)


def test_a_role_without_create_is_enough(postgres_url: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    open_store(postgres_url).close()
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("DROP ROLE IF EXISTS clerk")
        db.execute("CREATE ROLE clerk LOGIN")
        db.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        db.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO clerk")
        db.execute("GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO clerk")
    store = open_store(postgres_url.replace("fedbandit@", "clerk@"))
    store.replace("j-clerk", b"x")
    store.append("j-clerk", [b"y"])
    store.check()
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'clerk'")
    with pytest.raises(StoreError):
        store.append("j-clerk", [b"z"])
    assert store.read("j-clerk") == (b"x", [b"y"])
    store.close()


def test_passwords_are_not_for_everybody_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedbandit.network.coordinator.config import load_config

    path = tmp_path / "f.toml"
    path.write_text(CONFIG.format(port=0, store="postgresql://u:secret@h/d"))
    path.chmod(0o644)
    with pytest.raises(fb.FedbanditError, match="chmod 600"):
        load_config(path)
    path.chmod(0o600)
    load_config(path)
    path.write_text(CONFIG.format(port=0, store="env:FB_STORE"))
    with pytest.raises(fb.FedbanditError, match="no variable FB_STORE"):
        load_config(path)
    monkeypatch.setenv("FB_STORE", "postgresql://u@h/d")
    assert load_config(path).store == "postgresql://u@h/d"
