"""A fault, or a store that fails, in the middle of something: all are answered, and the log says it, not too often."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import pytest

from fedbandit.network.coordinator.checked import Read
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.health import Health
from fedbandit.network.coordinator.journal import Entry
from fedbandit.network.coordinator.recorded import COPIED, FAILS, FAULT, Event
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import MemoryStore, StoreError
from tests.network.in_process import make_clients, run
from tests.network.relay.passed import terms
from tests.network.servers import AGREEMENT


class Failing(MemoryStore):
    """Which may not be read, or not be written."""

    lost = full = False
    reads = 0

    def read(self, journal: str) -> tuple[bytes | None, list[bytes]]:
        self.reads += 1
        if self.lost:
            raise StoreError("The store cannot be read.")
        return super().read(journal)

    def append(self, journal: str, entries: Sequence[bytes], *, durable: bool = True) -> None:
        if self.full:
            raise StoreError("The store cannot be written.")
        super().append(journal, entries, durable=durable)


def started(store: MemoryStore) -> tuple[Federation, list[tuple[str, bytes]]]:
    """A federation of two, and an upload of each."""
    federation = Federation("f", AGREEMENT, store)
    clients = make_clients(federation, 2)
    run(federation, clients, 0)
    for client in clients:
        client.observe(client.select(np.eye(3)).number, 1.0)
    federation.events.clear()
    return federation, [(f"client-{i}", client.outgoing()[0].data) for i, client in enumerate(clients)]


def break_for(monkeypatch: pytest.MonkeyPatch, client: str, error: Exception) -> None:
    """What this client sends leads to an error."""
    honest = Federation._take

    def faulty(self: Federation, name: str, read: Read, at: float, entries: list[Entry]) -> object:
        if name == client:
            raise error
        return honest(self, name, read, at, entries)

    monkeypatch.setattr(Federation, "_take", faulty)


def test_one_clients_faults_in_a_batch_are_one_recovery(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Failing()
    federation, (good, bad) = started(store)
    break_for(monkeypatch, bad[0], OverflowError())
    before = store.reads
    outcomes = federation.receive([bad, bad, good, *[bad] * 30], 0.0)
    assert [isinstance(outcome, Refusal) for outcome in outcomes] == [True, True, False, *[True] * 30]
    assert store.reads == before + 1
    assert [event.what for event in federation.events] == [FAULT]
    assert federation.refusals == {"unavailable": 32}


@pytest.mark.parametrize("what", [FAULT, COPIED])
def test_what_a_client_can_bring_about_at_will_is_one_warning(what: str, caplog: pytest.LogCaptureFixture) -> None:
    federation = Federation("f", AGREEMENT, MemoryStore())
    health = Health(federation)
    with caplog.at_level(logging.INFO, "fedbandit"):
        for client in ("a", "a", "b", "a", "b"):
            federation.events.append(Event(what, {"client": client}))
            health.say()
    said = [(record.message, record.levelname, record.__dict__["client"]) for record in caplog.records]
    assert said == [(what, "WARNING", "a"), (what, "WARNING", "b")]


def test_that_the_store_cannot_be_read_after_a_fault_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Failing()
    federation, (good, bad) = started(store)
    break_for(monkeypatch, bad[0], OverflowError())
    store.lost = True
    outcomes = federation.receive([good, bad], 0.0)
    assert [outcome.kind for outcome in outcomes if isinstance(outcome, Refusal)] == ["unavailable"] * 2
    assert [event.what for event in federation.events] == [FAILS]
    store.lost = False
    taken, _ = federation.receive([good, bad], 0.0)
    assert not isinstance(taken, Refusal)
    assert federation.machine.applied == {0: 1}


def test_every_frame_has_an_outcome_if_the_store_fails_while_they_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    federation, (good, bad) = started(MemoryStore())
    with monkeypatch.context() as patched:
        break_for(patched, bad[0], StoreError("The store cannot be written."))
        outcomes = federation.receive([good, bad, good], 0.0)
        assert [outcome.kind for outcome in outcomes if isinstance(outcome, Refusal)] == ["unavailable"] * 3
        assert [event.what for event in federation.events] == [FAILS]
    assert not any(isinstance(outcome, Refusal) for outcome in federation.receive([good, bad], 0.0))


def test_a_sum_whose_end_cannot_be_written_is_told_as_everything_else_is() -> None:
    """Not why: that is in the log, for operators."""
    store = Failing()
    federation = Federation("f", terms(4), store)
    make_clients(federation, 4)
    federation.machine.collect(range(4))
    federation.events.clear()
    store.full = True
    with pytest.raises(Refusal, match="cannot write now") as refused:
        federation.give_up_sum("two clients are too few", 0.0)
    assert refused.value.kind == "unavailable"
    assert [event.what for event in federation.events] == [FAILS]
    assert federation.journal.behind
