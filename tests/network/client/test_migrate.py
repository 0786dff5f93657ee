"""A client's file under the new terms of a federation that was migrated."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.messages import Receipt
from fedbandit.network.carried import Carried
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.client.migrate import migrate_client
from fedbandit.network.coordinator.config import FederationConfig, ServerConfig
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.host import Host
from fedbandit.network.coordinator.migrate import migrate, stored_agreement
from fedbandit.network.coordinator.rules import Rules
from fedbandit.network.invitation import Agreement, Schema
from fedbandit.network.migrated import Migration, all_of
from fedbandit.network.stores import MemoryStore, open_store
from fedbandit.network.stores.files import as_file
from fedbandit.types import Array
from tests.cli.command_line import refusal, report
from tests.network.in_process import make_clients, run
from tests.network.servers import served

WORLD = fb.World(n_clients=3, dim=3, horizon=600)
SLOW = {"gamma_upload": 1.3, "gamma_download": 1.3}
OLD = Agreement("async-linucb", SLOW, WORLD, schema=Schema(("age", "price", "size")))
NEW = replace(OLD, world=replace(WORLD, dim=4), schema=Schema(("size", "age", "colour", "price")))


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
    told = all_of(migrated.migrated["steps"])
    again = [migrate_client(client.store, NEW, i, draw, told) for i, client in enumerate(clients)]
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
    told = [Migration.of(Carried(OLD, NEW))]
    with pytest.raises(fb.FedbanditError, match="uploads without a receipt"):
        migrate_client(client.store, NEW, 0, iter(range(9)).__next__, told)
    with pytest.raises(fb.FedbanditError, match="is of member 0, but this client is member 1"):
        migrate_client(client.store, NEW, 1, iter(range(9)).__next__, told)
    with pytest.raises(fb.FedbanditError, match="has no client's state"):
        migrate_client(MemoryStore(), NEW, 0, iter(range(9)).__next__, told)
    secret = replace(OLD, system="count-linucb", keywords={"privacy": {"noises": "statistics", "epsilon": 1.0}})
    ledger = DurableClient(MemoryStore(), secret, 0, iter(range(9)).__next__).store
    assert isinstance(ledger, MemoryStore)
    before = ledger.copy()
    with pytest.raises(fb.FedbanditError, match="has its ledger"):
        migrate_client(ledger, replace(NEW, system="count-linucb", keywords=secret.keywords), 0, lambda: 1, [])
    assert ledger.journals == before.journals


@pytest.mark.parametrize("told", [3, [3], [{}], [{"features": 1}], "ab"])
def test_migrations_that_cannot_be_understood_are_one_sentence(told: Any) -> None:
    good = Migration.of(Carried(OLD, NEW)).as_json()
    assert all_of([good])[0] == Migration.of(Carried(OLD, NEW))
    for value in (told, [good | {"features": ["x"]}], [good | {"actions": [{}]}], [good | {"agreement": {}}]):
        with pytest.raises(fb.FedbanditError, match="cannot be understood"):
            all_of(value)


UNNAMED = Agreement("async-linucb", SLOW, WORLD)
NAMED = replace(UNNAMED, schema=Schema(("a", "b", "c")))
WIDER = replace(UNNAMED, world=replace(WORLD, dim=4), schema=Schema(("c", "new", "b", "a")))
TRUTH = np.array([0.9, 0.0, -0.4])


def learnt(client: DurableClient) -> Array:
    """What it expects of each feature alone."""
    model = client.machine.model
    return model.means(np.eye(client.agreement.world.dim))


def draw_from(first: int) -> Callable[[], int]:
    return iter(range(first, 99_999)).__next__


def taught(federation: Federation) -> DurableClient:
    """A client that has learnt which reward each feature brings; the federation has all of it but what is pending."""
    (client,) = make_clients(federation, 1)
    run(federation, [client], 1)
    X = np.random.default_rng(0).uniform(-0.5, 0.5, (200, 3))
    client.learn(X, X @ TRUTH)
    run(federation, [client], 1)
    assert not client.machine.outbox
    return client


def moved(store: MemoryStore, new: Agreement, features: list[int | None] | None = None) -> Federation:
    """The federation after a migration, started again."""
    old = stored_agreement(store, "f")
    migrate(store, "f", Carried(old, new, features), Rules())
    return Federation("f", new, store)


def test_a_client_is_carried_over_as_its_federation_was() -> None:
    """It need not say how, and whoever says something else is refused."""
    store = MemoryStore()
    client = taught(Federation("f", UNNAMED, store))
    before = learnt(client)
    after = moved(store, NAMED, [2, 1, 0])
    told = all_of(json.loads(json.dumps(after.migrated))["steps"])
    kept = copy_of(client)
    sentence = "--features is 0,1,2, but the federation was migrated by 2,1,0: leave it out"
    with pytest.raises(fb.FedbanditError, match=sentence):
        migrate_client(client.store, NAMED, 0, draw_from(500), told, features=[0, 1, 2])
    with pytest.raises(fb.FedbanditError, match="the federation was not migrated from, as its coordinator knows"):
        migrate_client(client.store, NAMED, 0, draw_from(500), [])
    assert copy_of(client) == kept
    again = migrate_client(client.store, NAMED, 0, draw_from(500), told)
    np.testing.assert_allclose(learnt(again), before[::-1], atol=1e-9)
    run(after, [again], 5)
    np.testing.assert_allclose(after.machine.gathered().V, again.machine.model.parts(np.eye(3))[0][0].V, atol=2.0)


def copy_of(client: DurableClient) -> object:
    assert isinstance(client.store, MemoryStore)
    return client.store.copy().journals


def test_a_client_that_skipped_migrations_takes_them_one_after_the_other() -> None:
    store = MemoryStore()
    client = taught(Federation("f", UNNAMED, store))
    before = learnt(client)
    moved(store, NAMED, [2, 1, 0])
    Federation("f", replace(NAMED, world=replace(WORLD, horizon=700)), store)  # a sound change in between
    last = moved(store, WIDER)
    told = all_of(last.migrated["steps"])
    assert [len(one.terms) for one in told] == [1, 2]
    with pytest.raises(fb.FedbanditError, match="--features is 2,-,1,0, but the federation was migrated by 0,-,1,2"):
        migrate_client(client.store, WIDER, 0, draw_from(500), told, features=[2, None, 1, 0])
    again = migrate_client(client.store, WIDER, 0, draw_from(500), told, features=[0, None, 1, 2])
    np.testing.assert_allclose(learnt(again)[[0, 2, 3]], before, atol=1e-9)
    between = DurableClient(MemoryStore(), replace(NAMED, world=replace(WORLD, horizon=700)), 1, draw_from(900))
    X = np.random.default_rng(1).uniform(-0.5, 0.5, (50, 3))
    between.learn(X, X @ TRUTH)
    while between.machine.outbox:
        between.receive(Receipt(1, between.machine.sequence))
    seen = learnt(between)
    skipped_none = migrate_client(between.store, WIDER, 1, draw_from(999), told)
    np.testing.assert_allclose(learnt(skipped_none)[[3, 2, 0]], seen, atol=1e-9)


def test_terms_that_came_back_do_not_say_from_which_time_a_file_is() -> None:
    store = MemoryStore()
    client = taught(Federation("f", UNNAMED, store))
    moved(store, NAMED, [2, 1, 0])
    moved(store, UNNAMED, [0, 1, 2])
    told = all_of(moved(store, WIDER, [0, None, 1, 2]).migrated["steps"])
    with pytest.raises(fb.FedbanditError, match="has had 2 times, with migrations in between"):
        migrate_client(client.store, WIDER, 0, draw_from(500), told)
    with pytest.raises(fb.FedbanditError, match="under these terms already"):
        migrate_client(client.store, UNNAMED, 0, draw_from(500), told)
    sound = replace(UNNAMED, world=replace(WORLD, horizon=700))
    with pytest.raises(fb.FedbanditError, match="needs no migration"):
        migrate_client(client.store, sound, 0, draw_from(500), [])


@pytest.mark.parametrize(
    ("old", "new", "features", "sentence"),
    [
        (NAMED, NAMED, [2, 1, 0], "is under these terms already, and stays as it is"),
        (UNNAMED, UNNAMED, [2, 1, 0], "is under these terms already, and stays as it is"),
        (UNNAMED, UNNAMED, None, "is under these terms already, and stays as it is"),
        (
            UNNAMED,
            replace(UNNAMED, world=replace(WORLD, horizon=700)),
            [2, 1, 0],
            "--features is 2,1,0, but by their terms features are what",
        ),
        (NAMED, replace(NAMED, seed=1), [2, 1, 0], "number 0, 'a', is the old number 2, 'c', but 'a' was number 0"),
    ],
)
def test_a_federation_is_not_migrated_twice_by_one_command(
    old: Agreement, new: Agreement, features: list[int | None] | None, sentence: str
) -> None:
    store, backups = MemoryStore(), []
    taught(Federation("f", old, store))
    before = store.copy().journals
    with pytest.raises(fb.FedbanditError, match=sentence):
        migrate(store, "f", Carried(old, new, features), Rules(), lambda: backups.append(1))
    with pytest.raises(fb.FedbanditError, match="retract = false"):  # rules by which sums would be put together
        migrate(store, "f", Carried(old, WIDER, [0, None, 1, 2] if old == UNNAMED else None), Rules(retract=False))
    assert store.journals == before
    assert not backups


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the federation's store to its clients' files, with what goes wrong on the way."""
    path, state = tmp_path / "store.db", tmp_path / "client.db"
    client = taught(Federation("shops", UNNAMED, kept := MemoryStore()))
    for where, store in ((path, kept), (state, client.store)):
        assert isinstance(store, MemoryStore)
        where.write_bytes(as_file(store.dump()))
    config, backup, mine = tmp_path / "new.toml", tmp_path / "before.db", tmp_path / "client.before.db"
    config.write_text(CONFIG.format(store=path))
    words = ["migrate", "shops", "--config", str(config), "--backup", str(backup)]
    done = report(capsys, *words, "--features", "2,1,0")
    assert done["features"] == [2, 1, 0]
    before = path.read_bytes()
    again = [*words[:-1], str(tmp_path / "b2.db"), "--features", "2,1,0"]
    assert "is under these terms already" in refusal(capsys, *again)
    assert "There is a file" in refusal(capsys, *words)
    assert path.read_bytes() == before
    with closing(open_store(path)) as opened:
        server = Host(ServerConfig({"shops": FederationConfig(NAMED)}), opened)
        with served(server) as url:
            words = ["migrate", "shops", "--client", str(state), "--backup", str(mine), "--url", url]
            assert "Nobody knows whose file" in refusal(capsys, *words)
            assert "is of member 0, but this client is member 1" in refusal(capsys, *words, "--name", "client-O")
            assert list(server.federations["shops"].federation.register.by_name) == ["client-0"], "no place was taken"
            words += ["--name", "client-0"]
            assert "was migrated by 2,1,0: leave it out" in refusal(capsys, *words, "--features", "0,1,2")
            assert not mine.exists()
            assert report(capsys, *words)["pending"] == client.machine.pending
            with fb.Client(url, federation="shops", name="client-0", state=state) as opened_again:
                np.testing.assert_allclose(learnt(opened_again._durable), learnt(client)[::-1], atol=0.05)
                opened_again.observe(0.5, opened_again.select(np.eye(3)))
                assert opened_again.flush()
                assert opened_again.problem is None
            assert "under these terms already" in refusal(
                capsys, *words[:4], "--backup", str(tmp_path / "c"), *words[6:]
            )
    assert sorted(one.name for one in tmp_path.iterdir() if not one.name.endswith(("-shm", "-wal"))) == [
        "before.db", "client.before.db", "client.db", "new.toml", "store.db",
    ]  # fmt: skip
    with closing(open_store(mine)) as opened:
        assert DurableClient(opened, UNNAMED, 0, draw_from(1)).machine.pending == client.machine.pending


CONFIG = """
[server]
store = "{store}"

[federations.shops]
system = "async-linucb"
clients = 3
dim = 3
horizon = 600
schema = {{features = ["a", "b", "c"]}}
keywords = {{gamma_upload = 1.3, gamma_download = 1.3}}
"""
