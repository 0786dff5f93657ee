"""An erasure after which the store was not compacted: its receipt is owed, and everybody is told until it is done."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from fedbandit.network.coordinator.config import FederationConfig, ServerConfig
from fedbandit.network.coordinator.erasure import compact, digest
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.host import Host
from fedbandit.network.coordinator.rules import Rules
from fedbandit.network.coordinator.service import make_app
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import MemoryStore, StoreError, open_store
from fedbandit.network.stores.postgres import PostgresStore
from fedbandit.network.stores.tables import TABLES
from tests.network.in_process import make_clients, run
from tests.network.servers import AGREEMENT
from tests.waiting import eventually

RULES = Rules(erasure=True)
WHY = "The store 'x' cannot be written: database or disk is full."


class Narrow(MemoryStore):
    """A store on a disk that has no room for a second copy of it."""

    narrow = True

    def compact(self) -> None:
        if self.narrow:
            raise StoreError(WHY)


def lived(store: Any) -> Federation:
    federation = Federation("shops", AGREEMENT, store, rules=RULES)
    run(federation, make_clients(federation), 20)
    return federation


def host_of(store: MemoryStore) -> Host:
    return Host(ServerConfig({"shops": FederationConfig(AGREEMENT, rules=RULES)}), store)


def erase(http: TestClient) -> Any:
    return http.delete("/v1/shops/clients/client-2", headers={"x-fedbandit-name": "ops"})


def gauge(http: TestClient) -> float:
    (line,) = (x for x in http.get("/metrics").text.splitlines() if x.startswith("fedbandit_unfinished_erasures{"))
    return float(line.split()[-1])


def problems(http: TestClient) -> list[str]:
    said = http.get("/api/overview").json()["federations"][0]["problems"]
    return [problem for problem in said if "erased" in problem]


def test_the_receipt_is_given_to_whoever_asks_again(caplog: pytest.LogCaptureFixture) -> None:
    store = Narrow()
    n = lived(store).register.record("client-2").observations
    assert n > 0
    with TestClient(make_app(host_of(store)), base_url="http://127.0.0.1") as http, caplog.at_level(logging.INFO):
        for _ in range(2):
            answer = erase(http)
            assert answer.status_code == 503
            assert "The client is erased, but" in answer.json()["error"]
        assert WHY in answer.json()["error"]
        assert "client-2" in problems(http)[0]
        assert WHY in problems(http)[0]
        assert gauge(http) == 1
        store.narrow = False
        receipt = erase(http).json()
        assert (receipt["client"], receipt["observations"], receipt["digest"]) == ("client-2", n, digest(receipt))
        assert problems(http) == []
        assert gauge(http) == 0
        assert erase(http).json()["observations"] == 0, "it was handed out"
    (said_of, *_) = (record for record in caplog.records if record.message == "an erasure is unfinished")
    assert (said_of.client, said_of.count, said_of.reason) == ("client-2", 1, WHY)  # type: ignore[attr-defined]
    said = [record.message for record in caplog.records]
    assert said.count("an erasure is unfinished") == 2
    assert said.count("a client was erased") == 2


def test_a_restart_compacts_and_still_has_the_receipt() -> None:
    store = Narrow()
    n = lived(store).register.record("client-2").observations
    with TestClient(make_app(host_of(store)), base_url="http://127.0.0.1") as http:
        assert erase(http).status_code == 503
    with TestClient(make_app(host_of(store)), base_url="http://127.0.0.1") as http:
        assert gauge(http) == 1
        eventually(lambda: WHY in problems(http)[0])
    store.narrow = False
    with TestClient(make_app(host_of(store)), base_url="http://127.0.0.1") as http:
        eventually(lambda: gauge(http) == 0)
        assert problems(http) == []
        assert erase(http).json()["observations"] == n


def test_what_was_uploaded_since_is_erased_too_and_both_receipts_are_handed_out() -> None:
    store = Narrow()
    federation = lived(store)
    _, first = federation.erase("client-2", 0.0)
    with pytest.raises(Refusal, match="ask again"):
        compact(federation, "client-2")
    federation.free("client-2", 0.0)
    assert federation.erase("client-2", 0.0) == ([], first), "the receipt is owed, also to one that is no member"
    federation.invite("client-2", 0.0)
    record = federation.register.record("client-2")
    record.observations, record.uploads = 0, 1
    _, second = federation.erase("client-2", 0.0)
    assert second["earlier"] == [first]
    for _ in range(20):
        record.uploads = 1
        _, last = federation.erase("client-2", 0.0)
        record = federation.register.record("client-2")
    assert len(last["earlier"]) == 16
    assert all("earlier" not in one for one in last["earlier"])
    store.narrow = False
    again = Federation("shops", AGREEMENT, store, rules=RULES)
    compact(again, "client-2")
    assert again.receipts == {}
    assert Federation("shops", AGREEMENT, store, rules=RULES).receipts == {}


def test_one_compaction_is_for_all_and_each_is_handed_its_own_receipt() -> None:
    store = Narrow()
    federation = lived(store)
    receipts = {}
    for name in ("client-1", "client-2"):
        receipts[name] = federation.erase(name, 0.0)[1]
        with pytest.raises(Refusal, match="ask again"):
            compact(federation, name)
    store.narrow = False
    compact(federation, "client-1")
    store.narrow = True
    assert federation.erase("client-2", 0.0) == ([], receipts["client-2"])
    compact(federation, "client-2")
    assert federation.receipts == {}


def fail(_: object) -> None:
    raise StoreError(WHY)


def test_a_role_that_may_not_compact_says_who_must_and_believes_it_when_it_was_done(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    psycopg = pytest.importorskip("psycopg")
    open_store(postgres_url).close()
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("CREATE ROLE janitor LOGIN")  # the server is this session's alone
        db.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO janitor")
        db.execute("GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO janitor")
        store = open_store(postgres_url.replace("fedbandit@", "janitor@"))
        federation = lived(store)
        _, receipt = federation.erase("client-2", 0.0)
        with pytest.raises(Refusal, match="VACUUM FULL fedbandit_snapshots, fedbandit_blocks, fedbandit_entries"):
            compact(federation, "client-2")
        with monkeypatch.context() as patch:
            patch.setattr(type(store), "compact", fail)  # for another reason: nothing was rewritten
            with pytest.raises(Refusal, match="disk is full"):
                compact(federation, "client-2")
        db.execute("VACUUM FULL fedbandit_snapshots, fedbandit_blocks")
        with pytest.raises(Refusal, match="may still have it"):
            compact(federation, "client-2")
        store.close()
        store = open_store(postgres_url.replace("fedbandit@", "janitor@"))
        federation = Federation("shops", AGREEMENT, store, rules=RULES)
        db.execute("VACUUM FULL fedbandit_snapshots, fedbandit_blocks, fedbandit_entries")
        assert federation.erase("client-2", 0.0) == ([], receipt)
        compact(federation, "client-2")
        assert federation.receipts == {}
        federation.erase("client-1", 0.0)
        with pytest.raises(Refusal, match="may still have it"):
            compact(federation, "client-1")
        store.close()


def test_what_somebody_else_rewrites_while_it_may_be_looked_at_is_no_erasure(postgres_url: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    open_store(postgres_url).close()
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("CREATE ROLE sweeper LOGIN")
        db.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO sweeper")
        db.execute("GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO sweeper")
        url, rewrite = postgres_url.replace("fedbandit@", "sweeper@"), f"VACUUM FULL {', '.join(TABLES)}"
        store = PostgresStore(url, patience=0.2)
        federation = lived(store)
        with psycopg.connect(url) as other:
            other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            other.execute("SELECT 1")
            federation.erase("client-2", 0.0)
            with pytest.raises(Refusal, match=r"session .* may look at what was deleted"):
                compact(federation, "client-2")
            db.execute(rewrite)  # copies what was deleted
        for _ in range(2):
            with pytest.raises(Refusal, match="has to run VACUUM FULL"):
                compact(federation, "client-2")
        db.execute(rewrite)
        compact(federation, "client-2")
        assert federation.receipts == {}
        store.close()


def test_a_store_that_can_be_written_but_not_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a disk without room for the copy that VACUUM makes: the receipt is in the file."""
    path = tmp_path / "s.db"
    store = open_store(path, many=True)
    federation = lived(store)
    monkeypatch.setattr(type(store), "compact", fail)
    _, receipt = federation.erase("client-2", 0.0)
    with pytest.raises(Refusal, match="ask again"):
        compact(federation, "client-2")
    store.close()
    monkeypatch.undo()
    store = open_store(path, many=True)
    again = Federation("shops", AGREEMENT, store, rules=RULES)
    assert again.erase("client-2", 0.0) == ([], receipt)
    compact(again, "client-2")
    store.close()
