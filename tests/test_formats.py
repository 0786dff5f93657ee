"""Files of every format that was ever written are read by today's code, and go on from where they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.engine.checkpoint import read_checkpoint
from fedbandit.engine.simulation import Simulation
from fedbandit.errors import FedbanditError
from fedbandit.gateway.events import FORMAT as GATEWAY_FORMAT
from fedbandit.gateway.events import Events
from fedbandit.messages import Receipt
from fedbandit.network.client.journal import KIND as JOURNAL
from fedbandit.network.stores import MemoryStore
from fedbandit.state import READERS
from tests.fixtures.make_formats import (
    ENVIRONMENT,
    FOLDER,
    HORIZON,
    SYSTEM,
    facts_of_client,
    facts_of_coordinator,
    facts_of_gateway,
    facts_of_local_server,
    facts_of_peer,
    facts_of_relay,
    open_client,
    open_coordinator,
    open_gateway,
    open_local_server,
    open_peer,
    open_relay,
    open_simulation,
    read_journal,
)

ROUNDED = ("theta", "b", "trace", "told")  # equal to rounding: inverses are computed anew


def files(kind: str) -> list[Path]:
    """The fixtures of a kind, of all numbers."""
    return sorted(path for path in FOLDER.glob(f"{kind}-*") if path.suffix != ".json")


def store_of(path: Path, journal: str) -> MemoryStore:
    snapshot, entries = read_journal(path)
    store = MemoryStore()
    store.replace(journal, snapshot)
    store.append(journal, entries)
    return store


def assert_facts(found: dict[str, Any], path: Path) -> None:
    expected = json.loads(path.with_suffix(".json").read_text())
    assert found.keys() >= expected.keys(), "those of earlier formats had fewer"
    for name, value in expected.items():
        if name in ROUNDED:
            np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12, err_msg=name)
        else:
            assert found[name] == value, name


def test_there_is_a_file_of_every_format() -> None:
    found = {path.stem for kind, _ in READERS for path in files(kind)}
    assert found == {f"{kind}-{number}" for kind, number in READERS}


@pytest.mark.parametrize("path", files("client"), ids=lambda path: path.stem)
def test_clients(path: Path) -> None:
    store = store_of(path, JOURNAL)
    client = open_client(store)
    found = facts_of_client(client)
    found["epoch"] -= 1  # it was opened once more
    assert_facts(found, path)
    waiting = list(client.machine.state().arrays["waiting"])
    assert waiting, "choices whose reward has not come"
    before = client.machine.observed
    client.observe(int(waiting[0]), 0.5)
    client.select(np.eye(3))
    client.flush()
    again = open_client(store)
    assert again.machine.observed == before + 1
    assert again.machine.stream is not None
    assert again.machine.stream.spent >= found["spent"], "the ledger goes on"


@pytest.mark.parametrize("path", files("coordinator"), ids=lambda path: path.stem)
def test_coordinators(path: Path) -> None:
    store = store_of(path, "f")
    federation = open_coordinator(store)
    assert_facts(facts_of_coordinator(federation), path)
    federation.tick(0.0)
    assert open_coordinator(store).machine.gathered().n == federation.machine.gathered().n


@pytest.mark.parametrize("path", files("local-server"), ids=lambda path: path.stem)
def test_local_servers(path: Path) -> None:
    store = store_of(path, "local-server")
    server = open_local_server(store)
    assert_facts(facts_of_local_server(server), path)
    before = server.machine.server.observed
    server.observe(server.select(1, np.eye(3)).number, 0.5)
    assert open_local_server(store).machine.server.observed == before + 1


@pytest.mark.parametrize("path", files("relay"), ids=lambda path: path.stem)
def test_relays(path: Path) -> None:
    store, below = store_of(path, "relay"), store_of(path.with_name(f"below-{path.name}"), "f")
    store.journals |= below.journals
    relay = open_relay(store)
    assert_facts(facts_of_relay(relay), path)
    assert relay.relaying.below.n > relay.node.machine.sent.n > 0 < relay.relaying.others.n
    relay.node.receive(Receipt(0, relay.node.machine.sequence))
    relay.look(now=True)
    again = open_relay(store)
    assert again.relaying.pending.n == 0
    assert again.node.machine.sent.n == relay.relaying.below.n


@pytest.mark.parametrize("path", files("peer"), ids=lambda path: path.stem)
def test_peers(path: Path) -> None:
    store = store_of(path, "peer")
    peer = open_peer(store)
    assert_facts(facts_of_peer(peer), path)
    peer.machine.observe(peer.machine.select(np.eye(3)).number, 0.5)
    peer.finish_acting()
    assert open_peer(store).machine.observed == peer.machine.observed
    with pytest.raises(FedbanditError, match="is of peer 0, not of peer 1"):  # which an old file did not say
        open_peer(store, 1)


@pytest.mark.parametrize("path", files("gateway"), ids=lambda path: path.stem)
def test_gateways(path: Path, tmp_path: Path) -> None:
    """Events go on: what was being learnt is, what waits may be rewarded; of format 1 ids are numbers, as they were."""
    state = tmp_path / "gateway.db"
    state.write_bytes(path.read_bytes())
    events = Events(state)
    assert_facts(facts_of_gateway(events), path)
    events.close()
    gateway = open_gateway(state, 1010.0)
    assert gateway.client.status()["observed"] == 1, "the one that was interrupted"
    gateway.reward({"event_id": "waiting", "reward": 1})
    names = ["2", "0"] if path.stem == "gateway-1" else ["book", "7"]
    chosen = gateway.rank({"event_id": "new", "actions": [{"id": id} for id in names], "context": {"age": 3}})["chosen"]
    assert chosen in names
    with pytest.raises(FedbanditError, match="There is no "):
        gateway.rank({"actions": [{"id": "disc"}], "context": {"age": 3}})
    assert gateway.client.status()["observed"] == 2
    gateway.close()


def test_there_is_a_gateway_of_every_format() -> None:
    assert [path.stem for path in files("gateway")] == [f"gateway-{k}" for k in range(1, GATEWAY_FORMAT + 1)]


@pytest.mark.parametrize("path", files("checkpoint"), ids=lambda path: path.stem)
def test_checkpoints(path: Path) -> None:
    simulation = open_simulation()
    read_checkpoint(path, simulation, "fixture")
    assert 0 < simulation.done < HORIZON
    while not simulation.finished:
        simulation.advance()
    whole = fb.simulate(SYSTEM, ENVIRONMENT, HORIZON, 0, engine="plain")
    assert np.array_equal(simulation.result().arms, whole.arms)
    assert simulation.result().communication.uploads == whole.communication.uploads


def test_a_compiled_checkpoint_from_when_machines_synchronised() -> None:
    """The fast engine has a synchronisation compiled now; what it kept before goes on as it was."""
    system = fb.sync_linucb(threshold=0.5)
    simulation = Simulation(system, ENVIRONMENT, HORIZON, 0, engine="fast")
    read_checkpoint(FOLDER / "fast-checkpoint-2.npz", simulation, "fixture")
    assert 0 < simulation.done < HORIZON
    while not simulation.finished:
        simulation.advance()
    found, whole = simulation.result(), fb.simulate(system, ENVIRONMENT, HORIZON, 0, engine="fast")
    assert np.array_equal(found.arms, whole.arms)
    assert found.communication.uploads == whole.communication.uploads > 0
    assert found.communication.control_messages == whole.communication.control_messages > 0
