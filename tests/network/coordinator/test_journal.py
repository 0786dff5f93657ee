"""Snapshots that are due and cannot be written."""

from __future__ import annotations

import logging

import pytest

import fedbandit as fb
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.health import Health
from fedbandit.network.coordinator.journal import RETRY_SECONDS, Entry, Journal
from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import MemoryStore, StoredJournal, StoreError
from fedbandit.state import State
from tests.network.in_process import make_clients, run

AGREEMENT = Agreement("async-linucb", {"gamma_upload": 1.3, "gamma_download": 1.3}, fb.World(3, 3, horizon=9999))


class NoRoom(MemoryStore):
    """Entries fit, and snapshots do not."""

    full = False
    tries = 0

    def replace(self, journal: str, snapshot: bytes, *, durable: bool = True) -> None:
        self.tries += 1
        if self.full:
            raise StoreError("The store 'x' cannot be written: database or disk is full.")
        super().replace(journal, snapshot, durable=durable)


def test_a_snapshot_that_does_not_fit_is_tried_seldom() -> None:
    """At twice as many entries, or a while later."""
    store = NoRoom()
    journal = Journal(store, "f", snapshot_every=10)
    store.full = True

    def write(times: int, at: float = 0.0) -> int:
        before = store.tries
        for _ in range(times):
            journal.write([Entry(1, at, "shop")], lambda: State({}, {}))
        return store.tries - before

    assert write(9) == 0
    assert [write(1), write(9), write(1), write(19), write(1)] == [1, 0, 1, 0, 1], "at 10, 20 and 40"
    assert journal.late == "A snapshot is due, and cannot be written: The store 'x' cannot be written: database or disk is full."  # noqa: E501  # fmt: skip
    assert journal.late_snapshots == 3
    assert not journal.behind, "the entries are safe"
    assert [write(1, RETRY_SECONDS - 1), write(1, RETRY_SECONDS), write(1, RETRY_SECONDS)] == [0, 1, 0]
    store.full = False
    assert write(1, 2 * RETRY_SECONDS) == 1
    assert not journal.late
    assert store.read("f")[1] == []
    assert [write(9), write(1)] == [0, 1], "and all is as before"


def test_health_shows_it_until_one_fits(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    store = NoRoom()
    federation = Federation("f", AGREEMENT, store, snapshot_every=5)
    clients, health = make_clients(federation), Health(federation)

    def failing() -> str:
        health.say()
        return health.failing or ""

    run(federation, clients, 3)
    federation.journal.snapshot_bytes, store.full = 0, True
    with caplog.at_level(logging.INFO, "fedbandit"):
        run(federation, clients, 20)
        assert failing().startswith("A snapshot is due, and cannot be written: ")
        monkeypatch.setattr("fedbandit.network.coordinator.health.FAILING_SECONDS", 0.0)
        assert failing(), "however long ago it was tried"
        assert [record.message for record in caplog.records] == ["the store fails"]
        store.full = False
        run(federation, clients, 200)
        assert not failing()
    assert [record.message for record in caplog.records if "store" in record.message][-1] == "the store is back"
    assert Federation("f", AGREEMENT, store).machine.gathered().n == federation.machine.gathered().n


def test_a_whole_snapshot_believes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store, put = MemoryStore(), list[StoredJournal]()
    federation = Federation("f", AGREEMENT, store)
    monkeypatch.setattr(store, "put", put.extend)
    federation.journal.snapshot(federation.state(), whole=True)
    assert [(journal.name, journal.entries) for journal in put] == [("f", [])]
