"""A client's file under the new terms of a federation that was migrated."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.cli.main import main
from fedbandit.messages import Receipt
from fedbandit.network.carried import Carried
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.client.migrate import migrate_client
from fedbandit.network.coordinator.config import FederationConfig, ServerConfig
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.host import Host
from fedbandit.network.coordinator.migrate import migrate
from fedbandit.network.coordinator.rules import Rules
from fedbandit.network.invitation import Agreement, Schema
from fedbandit.network.stores import MemoryStore, open_store
from tests.network.in_process import make_clients, run
from tests.network.servers import served

WORLD = fb.World(n_clients=3, dim=3, horizon=600)
SLOW = {"gamma_upload": 1.3, "gamma_download": 1.3}
OLD = Agreement("async-linucb", SLOW, WORLD, schema=Schema(("age", "price", "size")))
NEW = replace(OLD, world=replace(WORLD, dim=4), schema=Schema(("size", "age", "colour", "price")))


def observe_until_pending(client: DurableClient) -> None:
    while client.machine.pending == 0 or client.machine.outbox:
        client.observe(client.select(np.eye(3)).number, 0.5)
        client.receive(Receipt(0, client.machine.sequence))


def test_what_is_pending_is_sent_once_under_the_new_terms() -> None:
    store = MemoryStore()
    federation = Federation("f", OLD, store)
    clients = make_clients(federation)
    run(federation, clients, 40)
    while not client_pending(clients):
        run(federation, clients, 1)
    uploaded, pending = federation.machine.gathered().n, [client.machine.pending for client in clients]
    waiting = clients[0].select(np.eye(3))
    clients[0].flush()
    before = clients[0].machine.model.parts(np.eye(3))[0][0]
    migrated = migrate(store, "f", Carried(OLD, NEW), Rules())
    draw = iter(range(9, 9999)).__next__
    again = [migrate_client(client.store, NEW, i, draw) for i, client in enumerate(clients)]
    after = again[0].machine.model.parts(np.eye(4))[0][0]
    order = [1, 3, 0]  # where the old features are now
    np.testing.assert_allclose(after.V[np.ix_(order, order)], before.V)
    np.testing.assert_allclose(after.theta[order], before.theta, atol=1e-12)
    assert [client.machine.pending for client in again] == pending
    reopened = [DurableClient(client.store, NEW, i, draw) for i, client in enumerate(clients)]
    reopened[0].observe(waiting.number, 1.0)
    run(migrated, reopened, 30)
    sent = migrated.machine.gathered().n + sum(client.machine.pending for client in reopened)
    assert sent == uploaded + sum(pending) + 1 + 3 * 30, "each observation counts once"


def client_pending(clients: list[DurableClient]) -> bool:
    return all(client.machine.pending and not client.machine.outbox for client in clients[:1])


def test_what_cannot_be_carried_over_is_said_and_stays() -> None:
    federation = Federation("f", OLD, MemoryStore())
    (client,) = make_clients(federation, 1)
    while not client.machine.outbox:
        client.observe(client.select(np.eye(3)).number, 0.5)
    with pytest.raises(fb.FedbanditError, match="uploads without a receipt"):
        migrate_client(client.store, NEW, 0, iter(range(9)).__next__)
    with pytest.raises(fb.FedbanditError, match="is of member 0, but this client is member 1"):
        migrate_client(client.store, NEW, 1, iter(range(9)).__next__)
    with pytest.raises(fb.FedbanditError, match="has no client's state"):
        migrate_client(MemoryStore(), NEW, 0, iter(range(9)).__next__)
    secret = replace(OLD, system="count-linucb", keywords={"privacy": {"noises": "statistics", "epsilon": 1.0}})
    ledger = DurableClient(MemoryStore(), secret, 0, iter(range(9)).__next__).store
    assert isinstance(ledger, MemoryStore)
    before = ledger.copy()
    with pytest.raises(fb.FedbanditError, match="has its ledger"):
        migrate_client(ledger, replace(NEW, system="count-linucb", keywords=secret.keywords), 0, lambda: 1)
    assert ledger.journals == before.journals


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state, backup = tmp_path / "client.db", tmp_path / "before.db"
    store = open_store(state)
    client = DurableClient(store, OLD, 0, iter(range(1, 99)).__next__)
    observe_until_pending(client)
    store.close()
    words = ["migrate", "shops", "--client", str(state), "--backup", str(backup), "--name", "a", "--json"]
    with served(Host(ServerConfig({"shops": FederationConfig(NEW)}), MemoryStore())) as url:
        assert main([*words[:6], "--url", url]) == 2
        assert "Nobody knows whose file" in capsys.readouterr().err
        assert main([*words, "--url", url]) == 0
        assert json.loads(capsys.readouterr().out)["pending"] == client.machine.pending
        with fb.Client(url, federation="shops", name="a", state=state) as again:
            again.observe(0.5, again.select(np.eye(4)))
            assert again.flush()
            assert again.problem is None
        assert main([*words, "--url", url]) == 2
        assert "There is a file" in capsys.readouterr().err
    store = open_store(backup)
    assert DurableClient(store, OLD, 0, iter(range(1, 99)).__next__).machine.pending == client.machine.pending
    store.close()
