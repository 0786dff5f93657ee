"""What was learnt under old terms, under new ones: as if new features had been 0, and new actions never offered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.model import RidgeModel
from fedbandit.network.carried import Carried, Numbers
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.client.journal import stored_agreement
from fedbandit.network.client.migrate import migrate_client
from fedbandit.network.coordinator.config import load_config
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.host import Host
from fedbandit.network.coordinator.migrate import migrate
from fedbandit.network.coordinator.rules import Rules
from fedbandit.network.invitation import Agreement, Schema
from fedbandit.network.migrated import Migration, all_of
from fedbandit.network.stores import MemoryStore, Store, open_store
from fedbandit.network.stores.files import as_file
from fedbandit.structures.action_model import ActionModel
from fedbandit.structures.two_part_model import TwoPartModel
from fedbandit.sums import Sums
from fedbandit.types import Array
from tests.cli.command_line import refusal, report
from tests.network.in_process import make_clients, run
from tests.network.servers import served

WORLD = fb.World(n_clients=3, dim=3, horizon=900)
TALKATIVE: dict[str, Any] = {"gamma_upload": 1.2, "gamma_download": 1.2}
SILENT: dict[str, Any] = {"gamma_upload": 1e99, "gamma_download": 1e99}


def entropy() -> Callable[[], int]:
    return iter(range(1, 99_999)).__next__


def two_parts(dim: int, d_global: int, **keywords: Any) -> Agreement:
    return Agreement("async-linucb-am", {"d_global": d_global, **keywords}, replace(WORLD, dim=dim))


def per_action(actions: int, dim: int, names: Sequence[str] = (), **keywords: Any) -> Agreement:
    world = replace(WORLD, dim=dim, actions=actions)
    return Agreement("async-linucb", keywords, world, action_names=tuple(names))


def learn(agreement: Agreement, X: Array, y: Array, member: int = 0) -> DurableClient:
    client = DurableClient(MemoryStore(), agreement, member, entropy())
    client.learn(X, y)
    return client


def migrated_client(
    store: Store, new: Agreement, member: int = 0, features: Numbers | None = None, first: int = 1
) -> DurableClient:
    """A client's file under the terms of a federation that was migrated once, from those of the file."""
    stored = stored_agreement(store)
    assert stored is not None
    told = [Migration.of(Carried(stored[0], new, features)).as_json()]
    return migrate_client(store, new, member, iter(range(first, 99_999)).__next__, all_of(told))


def assert_same_model(one: Any, other: Any) -> None:
    """The same statistics, and so the same estimates."""
    assert type(one) is type(other)
    numbers, arrays = one.dump()
    expected, wanted = other.dump()
    for name in ("n", "n_own", "n_pending", "starting"):
        assert numbers.get(name) == expected.get(name), name
    assert arrays.keys() == wanted.keys()
    for name, array in arrays.items():
        np.testing.assert_allclose(array, wanted[name], atol=1e-10, err_msg=name)
    np.testing.assert_allclose(one.theta, other.theta, atol=1e-9)


DATA = np.random.default_rng(3)
CONTEXTS, REWARDS = DATA.uniform(-0.5, 0.5, (40, 3)), DATA.uniform(-1, 1, 40)


@pytest.mark.parametrize("count", [2, 40])
@pytest.mark.parametrize("overlap", [False, True])
def test_two_parts_are_as_if_new_features_had_been_zero(count: int, overlap: bool) -> None:
    """In the start-up still (after 2 observations), and after it."""
    size: dict[str, Any] = {"overlap": True, "d_local": 3} if overlap else {}
    old, features = two_parts(3, 2, **size, **SILENT), [0, 1, None, 2, None]
    size = {"overlap": True, "d_local": 5} if overlap else {}
    new = two_parts(5, 3, **size, **SILENT)
    before = learn(old, CONTEXTS[:count], REWARDS[:count])
    assert isinstance(before.machine.model, TwoPartModel)
    assert before.machine.model.starting == (count == 2)
    assert before.machine.pending == count
    after = migrated_client(before.store, new, 0, features)
    wider = np.zeros((count, 5))
    wider[:, [0, 1, 3]] = CONTEXTS[:count]
    if count == 2:
        assert_same_model(after.machine.model, learn(new, wider, REWARDS[:count]).machine.model)
    else:  # by itself the wider model would still wait for observations of its new features
        assert_parts_are_carried(before.machine.model, after.machine.model)


def assert_parts_are_carried(before: TwoPartModel, after: Any) -> None:
    """Means of contexts without new features, widths too, and the next observation's split are as they were."""
    X = np.random.default_rng(4).uniform(-0.5, 0.5, (6, 3))
    wide = np.zeros((6, 5))
    wide[:, [0, 1, 3]] = X
    for x, x_wide in zip(X, wide, strict=True):
        np.testing.assert_allclose(after.means(wide), before.means(X), atol=1e-10)
        for (part, Z), (other, Z_wide) in zip(before.parts(X), after.parts(wide), strict=True):
            np.testing.assert_allclose(other.norms(Z_wide), part.norms(Z), atol=1e-10)
        before.observe(x, 0.3)
        after.observe(x_wide, 0.3)
    assert after.n_pending == before.n_pending
    assert after.starting == before.starting


def test_a_start_up_that_the_new_terms_do_not_have_ends() -> None:
    before = learn(two_parts(3, 2, **SILENT), CONTEXTS[:2], REWARDS[:2])
    after = migrated_client(before.store, two_parts(3, 2, startup=False, **SILENT)).machine.model
    assert isinstance(after, TwoPartModel)
    assert not after.starting
    assert after.n_pending == after.own.n == 2
    np.testing.assert_allclose(after.pending().V, CONTEXTS[:2, :2].T @ CONTEXTS[:2, :2])


def test_one_part_becomes_the_shared_one_of_two() -> None:
    old = Agreement("async-linucb", SILENT, WORLD)
    before = learn(old, CONTEXTS, REWARDS)
    after = migrated_client(before.store, two_parts(5, 3, **SILENT)).machine.model
    assert isinstance(after, TwoPartModel)
    assert not after.starting
    assert_same_model(after.shared, before.machine.model)
    assert after.own.n == 0


@pytest.mark.parametrize(
    ("old", "new", "features", "sentence"),
    [
        (two_parts(3, 2), two_parts(3, 1), [0, 1, 2], "Feature 1 would be dropped from the shared part"),
        (two_parts(3, 1), two_parts(3, 2), [0, 1, 2], "Feature 1 would be in the shared part, but as feature 1"),
        (two_parts(3, 2), two_parts(3, 2), [0, 2, None], "Feature 1 would be in the shared part, but as feature 2"),
        (two_parts(3, 2), two_parts(3, 2), [0, 1, None], "Feature 2 would be dropped from the personal part"),
        (two_parts(3, 2), Agreement("async-linucb", {}, WORLD), None, "Feature 2 would be dropped from the personal"),
        (Agreement("async-linucb", {}, WORLD), two_parts(3, 2), None, "Feature 2 would be dropped from the shared"),
        (Agreement("async-linucb", {}, WORLD), per_action(4, 3), None, "one θ for all actions, and its sums do not"),
        (per_action(4, 3), per_action(4, 3), [0, 0, 1], "must be 3 numbers below 3, each once, or - for a new one"),
    ],
)
def test_what_is_not_sound_is_refused(
    old: Agreement, new: Agreement, features: list[int | None] | None, sentence: str
) -> None:
    new = replace(new, reward_bound=0.9)  # other terms in any case
    store = MemoryStore()
    run(federation := Federation("f", old, store), clients := make_clients(federation), 4)
    stores = [store, clients[0].store]
    journals = [dict(one.journals) for one in stores if isinstance(one, MemoryStore)]
    with pytest.raises(fb.FedbanditError, match=sentence):
        migrate(store, "f", Carried(old, new, features), Rules())
    with pytest.raises(fb.FedbanditError, match=sentence):
        migrated_client(clients[0].store, new, 0, features)
    assert journals == [one.journals for one in stores if isinstance(one, MemoryStore)], "nothing has changed"


def test_a_personal_part_that_one_client_lacks_is_refused_for_all() -> None:
    """Before the coordinator's store is migrated, so that no client is left behind."""
    old, new = two_parts(3, 2, d_local=(1, 1, 1)), two_parts(3, 2, d_local=(1, 0, 1))
    store = MemoryStore()
    run(federation := Federation("f", old, store), make_clients(federation), 10)
    with pytest.raises(fb.FedbanditError, match="Feature 2 would be dropped from the personal part"):
        migrate(store, "f", Carried(old, new), Rules())


ROWS = np.c_[np.arange(40) % 4, CONTEXTS]


def test_an_action_is_as_if_new_features_had_been_zero() -> None:
    """By name: one action is new, one is gone, others have moved."""
    old, new = per_action(4, 3, "abcd", **SILENT), per_action(4, 4, "dxba", **SILENT)
    before = learn(old, ROWS, REWARDS)
    kept = ROWS[:, 0] != 2
    wider = np.c_[np.array([3, 2, -1, 0])[ROWS[kept, 0].astype(int)], CONTEXTS[kept], np.zeros(kept.sum())]
    expected = learn(new, wider, REWARDS[kept]).machine.model
    waiting = [before.select(np.c_[[a], CONTEXTS[:1]]).number for a in (1, 2)]
    before.flush()
    after = migrated_client(before.store, new)
    assert isinstance(after.machine.model, ActionModel)
    assert isinstance(expected, ActionModel)
    np.testing.assert_allclose(after.machine.model.theta, expected.theta, atol=1e-10)
    np.testing.assert_allclose(after.machine.model.inverse, expected.inverse, atol=1e-10)
    np.testing.assert_allclose(after.machine.model.logdets, expected.logdets, atol=1e-10)
    assert after.machine.model.pending().actions.tolist() == [0, 2, 3]
    assert after.machine.pending == 40, "what was observed of the action that is gone is still counted"
    np.testing.assert_array_equal(after.machine.waits_for(waiting[0]), [2, *CONTEXTS[0], 0])
    assert after.machine.waits_for(waiting[1]) is None


def test_one_theta_for_all_is_that_of_all_actions() -> None:
    new = Agreement("async-linucb", SILENT, replace(WORLD, dim=4))
    after = migrated_client(learn(per_action(4, 3, **SILENT), ROWS, REWARDS).store, new)
    expected = learn(new, np.c_[CONTEXTS, np.zeros(40)], REWARDS)
    assert isinstance(after.machine.model, RidgeModel)
    assert_same_model(after.machine.model, expected.machine.model)


FEDERATIONS = {
    "two parts": (two_parts(3, 2, **TALKATIVE), two_parts(5, 3, **TALKATIVE)),
    "two parts by name": (
        replace(two_parts(3, 2, **TALKATIVE), schema=Schema(("age", "price", "size"))),
        replace(two_parts(4, 2, ridge=2.0, **TALKATIVE), schema=Schema(("price", "age", "colour", "size"))),
    ),
    "each its own size": (
        two_parts(3, 1, d_local=(1, 2, 0), **TALKATIVE),
        two_parts(4, 1, d_local=(2, 2, 3), **TALKATIVE),
    ),
    "more actions": (per_action(4, 3, **TALKATIVE), per_action(6, 4, gamma_upload=1.5, gamma_download=1.2)),
    "fewer actions by name": (per_action(4, 3, "abcd", **TALKATIVE), per_action(3, 3, "cax", **TALKATIVE)),
    "one for all": (per_action(4, 3, **TALKATIVE), Agreement("sync-linucb", {"threshold": 0.5}, WORLD)),
    "a personal part": (Agreement("sync-linucb", {"threshold": 0.5}, WORLD), two_parts(4, 3, **TALKATIVE)),
}


@pytest.mark.parametrize("name", FEDERATIONS)
def test_each_observation_counts_once_under_the_new_terms(name: str) -> None:
    """The coordinator's sums are those of its members, and what clients have pending is sent once."""
    old, new = FEDERATIONS[name]
    store = MemoryStore()
    federation = Federation("f", old, store)
    clients = make_clients(federation)
    run(federation, clients, 40)
    assert not any(client.machine.outbox for client in clients)
    before = federation.machine.gathered()
    observed = before.n + sum(client.machine.pending for client in clients)
    assert observed == 120
    carried = Carried(old, new)
    migrate(store, "f", carried, Rules())
    after = Federation("f", new, store)
    expected = carried.sums(Sums(before.V, before.b, before.n))
    np.testing.assert_allclose(after.machine.gathered().V, expected.V, atol=1e-10)
    np.testing.assert_allclose(after.machine.gathered().b, expected.b, atol=1e-10)
    assert after.machine.gathered().n == before.n
    for i, client in enumerate(clients):
        migrated_client(client.store, new, i, first=1000 * i + 1001)
    again = [DurableClient(client.store, new, i, entropy()) for i, client in enumerate(clients)]
    run(after, again, 20)
    sent = after.machine.gathered().n + sum(client.machine.pending for client in again)
    assert sent == observed + 3 * 20
    assert after.machine.gathered().n > before.n
    restarted = Federation("f", new, store)
    np.testing.assert_array_equal(restarted.machine.gathered().V, after.machine.gathered().V)


def test_what_a_freed_place_left_behind_stays_and_quarantine_too() -> None:
    old, new = per_action(4, 3, **TALKATIVE), per_action(5, 4, **TALKATIVE)
    store = MemoryStore()
    federation = Federation("f", old, store)
    run(federation, make_clients(federation), 30)
    federation.free("client-2", 0.0)
    federation.quarantine("client-1", "it lies", 0.0)
    federation.receipts = {"client-9": {"receipt": {}, "files": "", "compacted": False}}
    federation.journal.snapshot(federation.state())
    before = federation.machine.gathered()
    migrate(store, "f", Carried(old, new), Rules())
    after = Federation("f", new, store)
    assert after.receipts == federation.receipts, "an erasure is still to be finished"
    first = after.register.by_number[0]
    assert first.released_before == first.releases > 0, "each begins a new state"
    assert after.machine.gathered().n == before.n
    np.testing.assert_allclose(after.machine.gathered().V[:4, :3, :3], before.V)
    assert not after.machine.gathered().V[4].any()
    after.quarantine("client-1", "", 0.0)
    assert after.machine.gathered().n > before.n, "its sums come back"


CONFIG = """
[server]
store = "store.db"

[federations.shops]
system = "async-linucb"
clients = 3
dim = {dim}
horizon = 900
actions = {actions}
keywords = {{gamma_upload = 1.2, gamma_download = 1.2}}
"""


def test_the_command_for_a_theta_an_action(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = per_action(4, 3, **TALKATIVE)
    with closing(open_store(tmp_path / "store.db")) as store:
        run(federation := Federation("shops", old, store), make_clients(federation), 30)
        before = federation.machine.gathered()
    config = tmp_path / "new.toml"
    config.write_text(CONFIG.format(dim=4, actions=4))
    words = ["migrate", "shops", "--config", str(config), "--backup", str(tmp_path / "before.db")]
    assert "--actions is '1,x', but must be like 0,1,-" in refusal(capsys, *words, "--actions", "1,x")
    assert "--actions is 1,0, but must be 4 numbers below 4" in refusal(capsys, *words, "--actions", "1,0")
    assert not (tmp_path / "before.db").exists()
    assert "must be 4 numbers below 3" in refusal(capsys, *words, "--features", "-1,0,1,2")
    done = report(capsys, *words, "--actions", "1,0,3,-", "--features", "-,2,0,1")
    assert (done["observations"], done["actions"], done["features"]) == (before.n, [1, 0, 3, None], [None, 2, 0, 1])
    with closing(open_store(tmp_path / "store.db")) as store:
        after = Federation("shops", per_action(4, 4, **TALKATIVE), store).machine.gathered()
    order = np.array([2, 0, 1])
    np.testing.assert_allclose(after.b[:, 1:], np.r_[before.b[[1, 0, 3]], np.zeros((1, 3))][:, order])
    assert after.n == before.n


GUIDE: dict[str, tuple[Agreement, str]] = {
    "two parts": (
        two_parts(3, 2, **TALKATIVE),
        'system = "async-linucb-am"\ndim = 5\nkeywords = {d_global = 3, gamma_upload = 1.2, gamma_download = 1.2}',
    ),
    "one becomes two": (
        Agreement("async-linucb", TALKATIVE, WORLD),
        'system = "async-linucb-am"\ndim = 5\nkeywords = {d_global = 3, gamma_upload = 1.2, gamma_download = 1.2}',
    ),
    "names of actions": (
        per_action(4, 3, "abcd", **TALKATIVE),
        'system = "async-linucb"\ndim = 4\nactions = ["d", "x", "b", "a"]\nkeywords = {gamma_upload = 1.2}',
    ),
    "one θ for all": (per_action(4, 3, "abcd", **TALKATIVE), 'system = "async-linucb"\ndim = 3'),
}


@pytest.mark.parametrize("name", GUIDE)
def test_the_commands_of_the_guide(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """docs/howto/migrate.md, from a coordinator that was stopped to clients of the next one."""
    old, table = GUIDE[name]
    with closing(open_store(tmp_path / "store.db")) as store:
        run(federation := Federation("shops", old, store), clients := make_clients(federation), 30)
        uploaded = federation.machine.gathered().n
    pending = [client.machine.pending for client in clients]
    files = [tmp_path / f"client-{i}.db" for i in range(3)]
    for file, client in zip(files, clients, strict=True):
        client.flush()
        file.write_bytes(as_file(client.store.dump()))
    config = tmp_path / "new.toml"
    config.write_text(f'[server]\nstore = "store.db"\n[federations.shops]\nclients = 3\nhorizon = 900\n{table}\n')
    words = ["migrate", "shops", "--config", str(config), "--backup", str(tmp_path / "before.db")]
    assert report(capsys, *words)["observations"] == uploaded
    loaded = load_config(config)
    with closing(open_store(tmp_path / "store.db")) as store, served(host := Host(loaded, store)) as url:
        for i, file in enumerate(files):
            backup = ["--backup", str(file.with_suffix(".before")), "--url", url, "--name", f"client-{i}"]
            done = report(capsys, "migrate", "shops", "--client", str(file), *backup)
            assert done["pending"] == pending[i]
            with fb.Client(url, federation="shops", name=f"client-{i}", state=file) as again:
                world = again.agreement.world
                again.observe(0.5, again.select(np.zeros((max(world.actions, 1), world.dim))))
                assert again.flush()
                assert again.problem is None
        hosted = host.federations["shops"].federation
        assert hosted.machine.gathered().n >= uploaded
