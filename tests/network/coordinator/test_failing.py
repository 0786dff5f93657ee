"""What operators see and do while something fails: nothing is shown that is not so, and nothing fails unseen."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import fedbandit as fb
from fedbandit.network.coordinator import journal as kinds
from fedbandit.network.coordinator import owners, upkeep
from fedbandit.network.coordinator.config import FederationConfig, ServerConfig
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.host import Host
from fedbandit.network.coordinator.journal import Entry
from fedbandit.network.coordinator.overview import overview, totals
from fedbandit.network.coordinator.recorded import RecordedFederation
from fedbandit.network.coordinator.register import MemberRecord
from fedbandit.network.coordinator.rules import Rules
from fedbandit.network.coordinator.service import make_app
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import MemoryStore, NotOwner, Owner, StoreError, open_store
from fedbandit.sums import Sums
from tests.cli.command_line import refusal, report
from tests.network.in_process import make_clients, run
from tests.network.servers import AGREEMENT, CONFIG, make_host
from tests.waiting import eventually

FULL = "The store 'x' cannot be written: database or disk is full."


class FullStore(MemoryStore):
    """On a disk that may be full, or that may not be read."""

    full = lost = False

    def read(self, journal: str) -> tuple[bytes | None, list[bytes]]:
        if self.lost:
            raise StoreError("The store 'x' cannot be read: disk I/O error.")
        return super().read(journal)

    def append(self, journal: str, entries: Sequence[bytes], *, durable: bool = True) -> None:
        if self.full:
            raise StoreError(FULL)
        super().append(journal, entries, durable=durable)

    def replace(self, journal: str, snapshot: bytes, *, durable: bool = True) -> None:
        if self.full:
            raise StoreError(FULL)
        super().replace(journal, snapshot, durable=durable)


def lived(store: MemoryStore, agreement: Agreement = AGREEMENT, **settings: Any) -> Federation:
    federation = Federation("shops", agreement, store, **settings)
    run(federation, make_clients(federation), 20)
    federation.events.clear()
    return federation


ACTS: dict[str, Callable[[Federation], object]] = {
    "quarantine": lambda f: f.quarantine("client-1", "lies", 1.0, "ops"),
    "end of a quarantine": lambda f: f.quarantine("client-0", "", 1.0, "ops"),
    "freeing of a place": lambda f: f.free("client-2", 1.0, "ops"),
    "erasure": lambda f: f.erase("client-2", 1.0, "ops"),
    "an invitation": lambda f: f.invite("client-9", 1.0),
    "the end of one": lambda f: f.decline("client-3", 1.0),
}


@pytest.mark.parametrize("what", ACTS)
def test_what_the_store_refused_was_never_done_and_is_said_to_be_refused(what: str) -> None:
    store = FullStore()
    agreement = dataclasses.replace(AGREEMENT, world=dataclasses.replace(AGREEMENT.world, n_clients=9))
    federation = lived(store, agreement, rules=Rules(erasure=True))
    federation.invite("client-3", 0.0)
    federation.quarantine("client-0", "loud", 0.0)
    federation.events.clear()
    before = federation.register.state(), federation.machine.gathered().n, totals(federation)
    store.full = True
    with pytest.raises(StoreError, match="disk is full"):
        ACTS[what](federation)
    said = [(event.what, event.facts["reason"]) for event in federation.events]
    assert said == ([(f"{what} refused", FULL)] if " one" not in what and what != "an invitation" else [])
    assert (federation.register.state(), federation.machine.gathered().n, totals(federation)) == before
    assert federation.gone == []
    store.full = False
    ACTS[what](federation)
    assert federation.register.state() != before[0]


def test_a_liar_whose_quarantine_is_not_in_the_store_is_not_said_to_be_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FullStore()
    federation = Federation("shops", AGREEMENT, store)
    (client,) = make_clients(federation, 1)
    run(federation, [client], 5)

    def accuse(self: Federation, record: MemberRecord, sums: Sums, at: float, entries: list[Entry]) -> None:  # noqa: ARG001
        self.unsent += self.suspend(self.register.record("liar"), "it lies", "robust", at)
        entries.append(Entry(kinds.SUSPENSION, at, "liar", b'["it lies", "robust"]'))

    federation.invite("liar", 0.0)
    monkeypatch.setattr(Federation, "compare", accuse)
    while not (frames := client.outgoing()):
        client.observe(client.select(np.eye(3)).number, 0.5)
    store.full = True
    (outcome,) = federation.receive([("client-0", frames[0].data)], 0.0)
    assert isinstance(outcome, Refusal)
    assert [event.what for event in federation.events] == ["the store fails"]
    assert federation.unsent == []
    store.full = False
    federation.receive([("client-0", frames[0].data)], 0.0)
    assert [event.what for event in federation.events] == ["the store fails", "quarantine"]


def test_a_refused_quarantine_is_on_no_page_and_in_the_log_as_refused(caplog: pytest.LogCaptureFixture) -> None:
    store = FullStore()
    lived(store)
    host = Host(ServerConfig({"shops": FederationConfig(AGREEMENT)}), store)
    with TestClient(make_app(host), base_url="http://127.0.0.1") as http, caplog.at_level(logging.INFO, "fedbandit"):
        store.full = True
        wish = {"client": "client-1", "reason": "lies"}
        assert http.post("/v1/shops/quarantine", json=wish).status_code == 503
        assert http.get("/v1/shops/clients?search=client-1").json()["clients"][0]["quarantined"] == ""
        (shown,) = http.get("/api/overview").json()["federations"]
        assert not [problem for problem in shown["problems"] if "in quarantine" in problem]
        assert 'quarantined_clients{federation="shops"} 0.0' in http.get("/metrics").text
    said = [record.message for record in caplog.records]
    assert "quarantine refused" in said
    assert "quarantine" not in said


def test_the_end_of_no_quarantine_is_refused() -> None:
    federation = lived(MemoryStore())
    with pytest.raises(Refusal, match="'client-1' is in no quarantine"):
        federation.quarantine("client-1", "", 1.0, "ops")
    assert federation.events == []
    federation.register.record("client-1").suspected = True
    federation.quarantine("client-1", "", 1.0, "ops")
    assert federation.register.record("client-1").trusted


def test_nobody_sees_half_a_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who looks while everything is read again, for metrics say, sees what there was."""
    federation = lived(MemoryStore())
    before, seen = totals(federation), []
    replay = RecordedFederation._replay

    def look(self: RecordedFederation, entry: Entry) -> None:
        replay(self, entry)
        seen.append(totals(federation))

    monkeypatch.setattr(RecordedFederation, "_replay", look)
    federation.recover()
    assert len(seen) > 20
    assert seen == [before] * len(seen)
    assert totals(federation) == before


def test_counters_do_not_fall_while_a_write_fails_or_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not in the store yet may be gone again: it is not counted."""
    monkeypatch.setattr("fedbandit.network.coordinator.overview.LOOK_SECONDS", 0.01)
    store = FullStore()
    lived(store)
    host = Host(ServerConfig({"shops": FederationConfig(AGREEMENT)}), store)
    hosted = host.federations["shops"]
    federation = hosted.federation
    with TestClient(make_app(host), base_url="http://127.0.0.1") as http:

        def shown() -> tuple[str, int]:
            (line,) = (
                x for x in http.get("/metrics").text.splitlines() if x.startswith("fedbandit_observations_total")
            )
            return line, http.get("/api/overview").json()["federations"][0]["totals"]["observations"]

        def count_too_much() -> None:
            federation.register.record("client-0").observations += 100
            federation.journal.behind = True

        before = shown()
        store.lost = True
        http.portal.call(hosted.do, count_too_much)  # type: ignore[union-attr]
        assert shown() == before
        assert http.get("/v1/shops/clients").status_code == 503
        store.lost = False
        eventually(lambda: http.get("/v1/shops/clients").status_code == 200)
        assert shown() == before


def test_a_coordinator_that_starts_on_a_full_disk_says_so_before_anybody_writes() -> None:
    store = FullStore()
    lived(store)
    store.full = True
    host = Host(ServerConfig({"shops": FederationConfig(AGREEMENT)}), store)
    with TestClient(make_app(host), base_url="http://127.0.0.1") as http:
        eventually(lambda: http.get("/healthz").status_code == 503)
        assert "disk is full" in http.get("/api/overview").json()["trouble"]
        store.full = False


def test_a_full_disk_is_not_forgotten_because_nobody_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr("fedbandit.network.coordinator.health.FAILING_SECONDS", 0.0)
    store = FullStore()
    host = Host(ServerConfig({"shops": FederationConfig(AGREEMENT)}), store)
    tried = []
    append = store.append

    def count(*arguments: Any, **keywords: Any) -> None:
        tried.append(arguments)
        append(*arguments, **keywords)

    store.append = count  # type: ignore[method-assign]
    with TestClient(make_app(host), base_url="http://127.0.0.1") as http:
        eventually(lambda: len(tried) == 1)
        store.full = True
        http.get("/v1/shops/invitation", headers={"x-fedbandit-name": "a"})
        eventually(lambda: len(tried) > 4)
        store.full = False
        eventually(lambda: http.get("/healthz").status_code == 200)


def test_what_is_shown_is_not_old_for_ever_where_rounds_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a fault whatever comes next reads the store; if nothing comes, the coordinator does it by itself."""
    monkeypatch.setattr(upkeep, "AGAIN_SECONDS", 0.01)
    store = FullStore()
    lived(store)
    host = Host(ServerConfig({"shops": FederationConfig(AGREEMENT, round_seconds=86_400.0)}), store)
    hosted = host.federations["shops"]

    def fault() -> None:
        hosted.federation.journal.behind = True

    with TestClient(make_app(host), base_url="http://127.0.0.1") as http:
        http.portal.call(hosted.do, fault)  # type: ignore[union-attr]
        eventually(lambda: not hosted.federation.journal.behind)
        assert http.get("/v1/shops/clients").status_code == 200


class Standby(MemoryStore):
    """Of one of two coordinators: the other has the federation until it is gone, and leaves what cannot be read."""

    gone, damaged, claims = False, True, 0

    def claim(self, journal: str, address: str = "", configuration: str = "") -> None:  # noqa: ARG002
        self.claims += 1
        if not self.gone:
            raise NotOwner(journal, Owner("http://other", "", 1))

    def read(self, journal: str) -> tuple[bytes | None, list[bytes]]:
        if self.damaged:
            raise StoreError("The coordinator's state in PostgreSQL is damaged: its checksum differs.")
        return super().read(journal)


def test_a_federation_that_nobody_can_own_is_trouble() -> None:
    store = Standby()
    host = Host(ServerConfig({"shops": FederationConfig(AGREEMENT)}), store)
    with TestClient(make_app(host), base_url="http://127.0.0.1") as http:
        assert http.get("/healthz").json()["status"] == "standby"
        assert 'take_over_failing{federation="shops"} 0.0' in http.get("/metrics").text
        store.gone = True
        eventually(lambda: http.get("/healthz").status_code == 503)
        assert 'take_over_failing{federation="shops"} 1.0' in http.get("/metrics").text
        trouble = http.get("/api/overview").json()["trouble"]
        assert trouble.startswith("Nobody owns 'shops': The coordinator's state in PostgreSQL is damaged")
        assert http.get("/api/overview").json()["problems"] == [trouble]
        store.damaged = False
        eventually(lambda: http.get("/healthz").json()["status"] == "ok")
        assert http.get("/api/overview").json()["trouble"] == ""
        assert 'take_over_failing{federation="shops"} 0.0' in http.get("/metrics").text


def test_what_cannot_be_taken_over_is_tried_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt is a new term, and reads everything."""
    store, clock = Standby(), [0.0]
    host = Host(ServerConfig({"shops": FederationConfig(AGREEMENT)}), store)
    store.gone, before = True, store.claims

    class Time:
        monotonic = staticmethod(lambda: clock[0])

    monkeypatch.setattr(owners, "time", Time)

    async def looked() -> None:
        for _ in range(4 * 60):
            clock[0] += 0.25
            with contextlib.suppress(StoreError):
                await host.owners._try("shops")

    asyncio.run(looked())
    assert 3 < store.claims - before < 12


def test_a_spent_budget_is_told_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    agreement = Agreement("feducb", {"trust": "sums"}, fb.World(n_clients=3, dim=2, horizon=300))
    host = Host(ServerConfig({"shops": FederationConfig(agreement)}), MemoryStore())
    hosted = host.federations["shops"]
    pool = hosted.federation.machine.pool
    assert pool is not None

    def told() -> list[str]:
        return [problem for problem in overview(host)["federations"][0]["problems"] if "budget is spent" in problem]

    with TestClient(make_app(host), base_url="http://127.0.0.1") as http, caplog.at_level(logging.INFO, "fedbandit"):
        assert told() == []
        assert f'fedbandit_releases_left{{federation="shops"}} {pool.total.epochs:.1f}' in http.get("/metrics").text
        pool.total.epoch = pool.total.epochs  # type: ignore[misc]
        for _ in range(3):
            http.portal.call(hosted.do, lambda: None)  # type: ignore[union-attr]
        assert 'fedbandit_releases_left{federation="shops"} 0.0' in http.get("/metrics").text
        assert len(told()) == 1
    assert [record.message for record in caplog.records].count("the budget is spent") == 1


def test_a_federation_that_is_in_the_store_alone_is_named_and_can_be_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.db"
    store = open_store(path, many=True)
    Federation("shops", AGREEMENT, store).invite("a", 0.0)
    federation = Federation("old", AGREEMENT, store)
    run(federation, make_clients(federation), 5)
    uploads = [entry[-72:] for entry in store.read("old")[1] if len(entry) > 150]
    config = ServerConfig({"shops": FederationConfig(AGREEMENT)}, store=str(path))
    with caplog.at_level(logging.WARNING, "fedbandit"):
        host = Host(config, store)
    assert ["old"] in [getattr(record, "federations", None) for record in caplog.records]
    (said,) = overview(host)["problems"]
    assert "not configured: old" in said
    assert "fedbandit remove" in said
    both = dataclasses.replace(config, federations={n: FederationConfig(AGREEMENT) for n in ("shops", "old")})

    async def reloaded() -> None:
        await host.open()
        await host.owners.reload(both)
        assert overview(host)["problems"] == []
        await host.owners.reload(config)
        assert overview(host)["problems"] == [said]
        await host.close()

    asyncio.run(reloaded())
    file = tmp_path / "f.toml"
    file.write_text(CONFIG.format(port=0, store=path))
    words = ["--config", str(file)]
    assert "is configured" in refusal(capsys, "remove", "shops", *words)
    assert any(upload in path.read_bytes() for upload in uploads)
    assert report(capsys, "remove", "old", *words) == {"federation": "old", "removed": True}
    assert not any(upload in path.read_bytes() for upload in uploads)
    assert not report(capsys, "remove", "old", *words)["removed"]
    store = open_store(path, many=True)
    assert store.names() == ["shops"]
    assert list(Federation("shops", AGREEMENT, store).register.by_name) == ["a"]
    assert "stop it first" in refusal(capsys, "remove", "old", *words)
    store.close()
    file.write_text(CONFIG.format(port=0, store=tmp_path / "none.db"))
    assert "There is no store" in refusal(capsys, "remove", "old", *words)
    assert not (tmp_path / "none.db").exists()


def test_another_coordinators_federations_are_not_named_in_a_store_that_is_shared() -> None:
    store = MemoryStore()
    lived(store)
    store.journals["theirs"] = store.journals["nobody's"] = store.journals["shops"]
    store.owner = lambda name: Owner("http://b" if name == "theirs" else "", "", 1)  # type: ignore[assignment, method-assign]
    host = make_host()
    assert host.owners.unconfigured == []
    host = Host(ServerConfig({"shops": FederationConfig(AGREEMENT)}), store, address="http://a")
    assert host.owners.unconfigured == ["nobody's"]
