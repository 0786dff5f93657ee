"""What was stored by another machine, or damaged, never becomes a client, a coordinator or a peer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.client.journal import KIND as JOURNAL
from fedbandit.network.coordinator.config import on_a_network
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.invitation import Agreement
from fedbandit.network.peer.rounds import PeerRounds
from fedbandit.network.stores import MemoryStore
from fedbandit.state import State, pack, unpack
from tests.network.in_process import make_clients, run
from tests.network.peer.test_rounds import exchange, peer

WORLD = fb.World(n_clients=3, dim=3, horizon=600)
SYSTEMS: dict[str, dict[str, Any]] = {
    "async-linucb": {"gamma_upload": 1.3, "gamma_download": 1.3},
    "async-linucb-am": {"d_global": 1, "gamma_upload": 1.3, "gamma_download": 1.3},
    "sync-linucb": {"threshold": 0.5},
    "count-linucb": {"privacy": {"noises": "statistics", "epsilon": 3.0}},
    "hetofedbandit-e": {"threshold": 1.0},
    "clustered-linucb": {},
    "cdp-fclub-dc": {},
}


def spoilt(state: State) -> Iterator[tuple[str, State]]:
    """States that differ from this one by one array or one field."""
    header, arrays = state
    for name, array in arrays.items():
        yield f"{name} is gone", State(header, {k: v for k, v in arrays.items() if k != name})
        if array.size:
            yield f"{name} is longer", State(header, {**arrays, name: np.concatenate([np.atleast_1d(array)] * 2)})
            yield f"{name} is of whole numbers", State(header, {**arrays, name: array.astype(np.uint64)})
    yield "a row of an older version", State(header, {**arrays, "row": np.zeros(344)})
    for name in header:
        yield f"{name} is gone", State({k: v for k, v in header.items() if k != name}, arrays)
        yield f"{name} is another", State({**header, name: {"what": "?"} if name != "agreement" else 3}, arrays)
    for name in header["machine"]:
        machine = {k: v for k, v in header["machine"].items() if k != name}
        yield f"the machine's {name} is gone", State({**header, "machine": machine}, arrays)


def assert_refuses_all(kind: str, snapshot: bytes, open_with: Callable[[bytes], object]) -> None:
    """The snapshot opens; a spoilt one is refused with a sentence that says what to do."""
    open_with(snapshot)
    sentences = {what: refusal(open_with, pack(kind, state)) for what, state in spoilt(unpack(kind, snapshot))}
    assert not [what for what, sentence in sentences.items() if "keep the " not in sentence]
    assert not [what for what, sentence in sentences.items() if "install the version that wrote it" not in sentence]


def refusal(open_with: Callable[[bytes], object], data: bytes) -> str:
    try:
        open_with(data)
    except fb.FedbanditError as error:
        return str(error)
    return "accepted"


def with_snapshot(journal: str, snapshot: bytes) -> MemoryStore:
    store = MemoryStore()
    store.replace(journal, snapshot)
    return store


@pytest.mark.parametrize("system", SYSTEMS)
def test_clients_and_coordinators(system: str) -> None:
    agreement = on_a_network(Agreement(system, SYSTEMS[system], WORLD))
    store = MemoryStore()
    federation = Federation("f", agreement, store)
    clients = make_clients(federation)
    run(federation, clients, 20)
    clients[0].select(np.eye(3))
    client = pack("client", clients[0].state())
    assert_refuses_all("client", client, lambda d: DurableClient(with_snapshot(JOURNAL, d), agreement, 0, lambda: 5))
    coordinator = pack("coordinator", federation.state())
    assert_refuses_all("coordinator", coordinator, lambda d: Federation("f", agreement, with_snapshot("f", d)))


def test_peers() -> None:
    stores = [MemoryStore() for _ in range(4)]
    peers = [peer(i, stores[i], epsilon=2.0) for i in range(4)]
    for _ in range(20):
        for one in peers:
            choice = one.machine.select(np.eye(3))
            one.machine.observe(choice.number, 0.5)
            one.finish_acting()
        for i in range(4):
            exchange(peers, i)
        for one in peers:
            one.end_round()
    snapshot, _ = stores[0].read("peer")
    assert snapshot is not None

    def open_with(data: bytes) -> PeerRounds:
        return peer(0, with_snapshot("peer", data), epsilon=2.0)

    assert_refuses_all("peer", snapshot, open_with)
