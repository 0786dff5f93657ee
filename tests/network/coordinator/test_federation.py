"""A federation with its clients: every preset, restarts, faults of the store."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit import messages
from fedbandit.errors import FedbanditError
from fedbandit.messages import Message, Upload
from fedbandit.network.coordinator.checked import Read
from fedbandit.network.coordinator.config import on_a_network
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.journal import Entry
from fedbandit.network.coordinator.limits import Limits
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import MemoryStore, StoreError, open_store
from fedbandit.presets import PRESETS
from fedbandit.state import pack
from tests.network.in_process import make_clients, run, send

WORLD = fb.World(n_clients=3, dim=3, horizon=600)
AGREEMENT = Agreement("async-linucb", {"gamma_upload": 1.3, "gamma_download": 1.3}, WORLD)
REFUSED = {
    "composed": "exchange nothing",
    "uniform": "exchange nothing",
    "linucb": "exchange nothing",
    "dp_linucb": "exchange nothing",
    "linucb_central": "models that several users share",
    "club": "models that several users share",
    "sclub": "models that several users share",
    "dyclu": "models that several users share",
}
ON_A_GRAPH = {"colin", "goblin", "dp_colin", "ldp_colin", "dp_goblin", "ldp_goblin"}
FEDERATED = {
    "graph": [[0.75, 0.25, 0.0], [0.25, 0.5, 0.25], [0.0, 0.25, 0.75]],
    "gamma_upload": 1.5,
    "gamma_download": 1.5,
}


@pytest.mark.parametrize("preset", list(PRESETS))
def test_every_preset_is_served_or_refused_with_a_sentence(preset: str) -> None:
    keywords: dict[str, Any] = dict(FEDERATED) if preset in ON_A_GRAPH else {}
    agreement = Agreement(preset.replace("_", "-"), keywords, WORLD)
    if preset in REFUSED:
        with pytest.raises(fb.FedbanditError, match=REFUSED[preset]) as refusal:
            on_a_network(agreement)
        assert str(refusal.value).endswith(".")
        return
    federation = Federation("f", on_a_network(agreement), MemoryStore())
    if preset in ("fclub", "fclub_dc", "homo", "homo_dc"):
        assert agreement.servers is not None, "local servers: see test_local_servers.py"
        return
    clients = make_clients(federation)
    downloads = run(federation, clients, 60)
    assert federation.machine.gathered().n > 0
    # With little data, noise hides who is alike, and then nobody is sent anything.
    assert (downloads > 0) != (preset == "cdp_fclub_dc")
    assert sum(client.machine.observed for client in clients) == 180
    again = Federation("f", federation.agreement, federation.store)
    assert again.machine.gathered().n == federation.machine.gathered().n
    assert again.rounds <= federation.rounds


def test_a_restart_recovers_exactly(store_url: str) -> None:
    name = uuid.uuid4().hex
    store = open_store(store_url)
    federation = Federation(name, AGREEMENT, store, snapshot_every=7)
    clients = make_clients(federation)
    run(federation, clients, 20)
    before = federation.state()
    store.close()
    store = open_store(store_url)
    again = Federation(name, AGREEMENT, store, snapshot_every=7)
    assert pack("coordinator", again.state()) == pack("coordinator", before)
    run(again, clients, 10)  # and it goes on
    assert again.machine.applied == {i: client.machine.sequence for i, client in enumerate(clients)}
    with pytest.raises(FedbanditError, match="dim is 4, but the federation has 3"):
        Federation(name, replace(AGREEMENT, world=replace(WORLD, dim=4)), store)
    store.close()


@pytest.mark.parametrize("snapshot_every", [1, 2, 3])
def test_snapshots_keep_members_and_quarantines(snapshot_every: int) -> None:
    """A write that becomes a snapshot has what was written in it."""
    store = MemoryStore()
    federation = Federation("f", AGREEMENT, store, snapshot_every=snapshot_every)
    for name in ("a", "b"):
        federation.invite(name, 0.0)
        federation.quarantine("a", "noisy" if name == "a" else "loud", 0.0)
    again = Federation("f", AGREEMENT, store, snapshot_every=snapshot_every)
    assert list(again.register.by_name) == ["a", "b"]
    assert again.register.record("a").quarantined == "loud"
    assert again.invite("c", 0.0).member == 2


@pytest.mark.parametrize("fault", [np.linalg.LinAlgError, OverflowError, SystemExit])
def test_a_fault_in_one_frame_of_a_batch_costs_no_other(
    fault: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not in the store is never acknowledged, whatever goes wrong; and what comes with it is taken."""
    store = MemoryStore()
    federation = Federation("f", AGREEMENT, store)
    clients = make_clients(federation, 2)
    run(federation, clients, 0)
    choice = clients[0].select(np.eye(3))
    clients[0].observe(choice.number, 1.0)
    (frame,) = clients[0].outgoing()
    honest = Federation._take

    def faulty(self: Federation, name: str, read: Read, at: float, entries: list[Entry]) -> object:
        if name == "client-1":
            self.machine.applied[0] = 7  # half of what it would have done
            raise fault
        return honest(self, name, read, at, entries)

    monkeypatch.setattr(Federation, "_take", faulty)
    stranger = clients[1].greeting()
    assert stranger is not None
    batch = [("client-1", stranger), ("client-0", frame.data), ("client-1", stranger)]
    if fault is SystemExit:
        with pytest.raises(SystemExit):
            federation.receive(batch, 0.0)
    else:
        first, taken, last = federation.receive(batch, 0.0)
        assert not isinstance(taken, Refusal)
        for refusal in (first, last):
            assert isinstance(refusal, Refusal)
            assert "fault" in str(refusal)
        told = [event.facts["fault"] for event in federation.events if "could not be taken" in event.what]
        assert told == [fault.__name__], "the rest of its sender's frames are not tried"
        assert federation.refusals == {"unavailable": 2}
        assert Federation("f", AGREEMENT, store).machine.applied == federation.machine.applied == {0: 1}
    monkeypatch.undo()
    federation.invite("client-0", 0.0)
    send(federation, 0, frame.data)
    assert federation.machine.applied == {0: 1}


@pytest.mark.parametrize("where", ["decode", "faults"])
def test_a_fault_in_reading_one_frame_costs_no_other(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where all statistics of a batch are looked at together."""
    federation = Federation("f", AGREEMENT, MemoryStore())
    clients = make_clients(federation, 2)
    run(federation, clients, 0)
    for client in clients:
        client.observe(client.select(np.eye(3)).number, 1.0)
    batch = [(f"client-{i}", client.outgoing()[0].data) for i, client in enumerate(clients)]
    sound, look = messages.decode, Limits.faults

    def decode(data: bytes) -> Message:
        if where == "decode" and sound(data).member == 1:
            raise RecursionError
        return sound(data)

    def faults(self: Limits, uploads: Sequence[Upload]) -> list[Refusal | None]:
        if where == "faults" and any(upload.member == 1 for upload in uploads):
            raise np.linalg.LinAlgError
        return look(self, uploads)

    monkeypatch.setattr("fedbandit.network.coordinator.federation.decode", decode)
    monkeypatch.setattr(Limits, "faults", faults)
    taken, refusal = federation.receive(batch, 0.0)
    assert not isinstance(taken, Refusal)
    assert isinstance(refusal, Refusal)
    assert refusal.kind == "unavailable"
    assert federation.machine.applied == {0: 1}
    assert "could not be taken" in federation.events[-1].what


def test_a_history_that_cannot_be_read_to_its_end_is_not_gone_on_with() -> None:
    """After a write has failed everything is read again; half of that is nothing to go on from."""

    class Failing(MemoryStore):
        fails = False

        def append(self, journal: str, entries: Sequence[bytes], *, durable: bool = True) -> None:
            if self.fails:
                raise StoreError("The disk is full.")
            super().append(journal, entries, durable=durable)

    store = Failing()
    federation = Federation("f", AGREEMENT, store)
    for name in ("a", "b"):
        federation.invite(name, 0.0)
    snapshot, (first, second) = store.journals["f"]
    store.journals["f"] = snapshot, [first, bytes([*second[:-1], second[-1] ^ 1])]
    store.fails = True
    with pytest.raises(StoreError):
        federation.invite("c", 0.0)
    store.fails = False
    for _ in range(2):
        with pytest.raises(fb.FedbanditError, match="damaged"):
            federation.invite("d", 0.0)
    store.journals["f"] = snapshot, [first, second]
    assert federation.invite("d", 0.0).member == 2
