"""Terms are one: under others nobody takes part. A federation can change; an older store asks what it misses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.messages import Collect, Message, Recall, Receipt, Upload, decode, encode
from fedbandit.network.client.client import Client
from fedbandit.network.client.conversation import Conversation
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.coordinator.config import FederationConfig, ServerConfig, on_a_network
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.host import Host
from fedbandit.network.envelope import UNSAID, seal, unseal
from fedbandit.network.invitation import Agreement, Schema
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import MemoryStore
from tests.network.in_process import make_clients, run, send
from tests.network.servers import served

WORLD = fb.World(n_clients=3, dim=3, horizon=600)
AGREEMENT = Agreement("async-linucb", {"gamma_upload": 1.3, "gamma_download": 1.3}, WORLD)
PRIVATE = Agreement("count-linucb", {"privacy": {"noises": "statistics", "epsilon": 1.0}}, WORLD)
SYSTEMS: dict[str, dict[str, Any]] = {
    "async-linucb": {"gamma_upload": 1.3, "gamma_download": 1.3},
    "count-linucb": {"privacy": {"noises": "statistics", "epsilon": 3.0}},
    "sync-linucb": {"threshold": 0.5},
    "hetofedbandit-async": {},
}


def refusal(federation: Federation, i: int, frame: bytes | None) -> Refusal:
    assert frame is not None
    (found,) = federation.receive([(f"client-{i}", frame)], 0.0)
    assert isinstance(found, Refusal), found
    return found


def test_a_private_federation_never_takes_what_was_made_under_other_terms() -> None:
    """A store made anew with a privacy part, and a client that goes on with its old state, without noise."""
    plain = Federation("f", replace(AGREEMENT, system="count-linucb", keywords={}), MemoryStore())
    (client,) = make_clients(plain, 1)
    run(plain, [client], 10)
    private = Federation("f", PRIVATE, MemoryStore())
    private.invite("client-0", 0.0)
    greeting = client.greeting()
    refused = refusal(private, 0, greeting)
    assert refused.kind == "terms"
    assert "invited under other terms" in str(refused)
    assert greeting is not None
    envelope, data = unseal(greeting)
    unsaid = refusal(private, 0, seal(envelope._replace(terms=UNSAID), data))
    assert "does not say under which terms" in str(unsaid)
    while not client.machine.outbox:
        client.observe(client.select(np.eye(3)).number, 0.5)
    (frame,) = client.outgoing()
    assert refusal(private, 0, frame.data).kind == "terms"
    assert private.machine.gathered().n == 0


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"system": "count-linucb", "keywords": {}}, "system is 'count-linucb', but the federation has 'async-linucb'"),
        ({"seed": 5}, "seed is 5"),
        ({"world": replace(WORLD, dim=4)}, "dim is 4, but the federation has 3"),
        ({"world": replace(WORLD, bound=2.0)}, "bound is 2.0"),
        ({"schema": Schema(("a", "b", "c"))}, "schema is"),
        ({"keywords": {"ridge": 2.0}}, "changes the ridge"),
        ({"keywords": {"privacy": {"noises": "rewards", "epsilon": 1.0}}}, "keywords"),
        ({"world": replace(WORLD, n_clients=2)}, "clients is 2, but the federation has 3 places"),
    ],
)
def test_a_change_that_is_not_sound_is_refused_with_the_field(change: dict[str, Any], sentence: str) -> None:
    store = MemoryStore()
    run(federation := Federation("f", AGREEMENT, store), make_clients(federation), 10)
    before = store.copy()
    with pytest.raises(fb.FedbanditError, match=sentence):
        Federation("f", replace(AGREEMENT, **change), store)
    assert store.journals == before.journals, "nothing has changed"


def test_a_client_whose_federation_was_migrated_is_told_how_to_migrate_its_file() -> None:
    """Its file is behind, and not the federation."""
    run(federation := Federation("f", AGREEMENT, MemoryStore()), clients := make_clients(federation), 10)
    with pytest.raises(
        fb.FedbanditError, match=r"is for dim 3, but the federation now has 4 .* migrate .*--client FILE"
    ):
        clients[0].renew(replace(AGREEMENT, world=replace(WORLD, dim=4)), 0)


def private(epsilon: float | tuple[float, ...], **keywords: Any) -> Agreement:
    return replace(PRIVATE, keywords={"privacy": {"noises": "statistics", "epsilon": epsilon}, **keywords})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (replace(PRIVATE, world=replace(WORLD, horizon=60_000)), "horizon is 60000"),  # more releases
        (private(0.5), "epsilon is 0.5, but the federation has 1.0"),
        (private(2.0), "epsilon is 2.0, but the federation has 1.0"),
        (private((1.0, 2.0, 2.0)), r"epsilon is \[1.0, 2.0, 2.0\]"),
        (replace(PRIVATE, keywords={}), "privacy is None"),
        (private(1.0, factor_upload=3.0), "factor_upload is 3.0"),
    ],
)
def test_members_of_private_federations_keep_what_their_noise_is_calibrated_for(
    change: Agreement, sentence: str
) -> None:
    store = MemoryStore()
    run(federation := Federation("f", PRIVATE, store), clients := make_clients(federation, 2), 10)
    before = store.copy()
    with pytest.raises(fb.FedbanditError, match=sentence + ".*have released under it") as refused:
        Federation("f", change, store)
    assert "migrate" not in str(refused.value), "which private federations cannot"
    assert store.journals == before.journals
    with pytest.raises(fb.FedbanditError, match="have released under it"):  # a coordinator is not believed
        clients[1].renew(change, 1)


def test_places_that_nobody_has_had_can_get_another_budget() -> None:
    """Members' ledgers go on, each under its own ε."""
    store = MemoryStore()
    run(federation := Federation("f", PRIVATE, store), clients := make_clients(federation, 2), 20)
    spent = [client.machine.stream.spent for client in clients if client.machine.stream is not None]
    changed = Federation("f", private((1.0, 1.0, 3.0), alpha=0.3), store)
    for i, client in enumerate(clients):
        client.renew(changed.agreement, i)
        assert client.machine.guarantee.epsilon == 1.0
    assert changed.machine.gathered().n == federation.machine.gathered().n
    third = DurableClient(
        MemoryStore(), changed.agreement, changed.invite("client-2", 0.0).member, iter(range(9)).__next__
    )
    assert third.machine.guarantee.epsilon == 3.0
    run(changed, [*clients, third], 20)
    assert min(spent) > 0
    for client, before in zip(clients, spent, strict=True):
        assert client.machine.stream is not None
        assert client.machine.stream.spent > before
    with pytest.raises(fb.FedbanditError, match="epsilon is"):
        Federation("f", private((1.0, 1.0, 2.0), alpha=0.3), store)


def test_places_horizon_bounds_and_thresholds_can_change_and_clients_follow() -> None:
    store = MemoryStore()
    federation = Federation("f", AGREEMENT, store)
    clients = make_clients(federation)
    run(federation, clients, 20)
    world = replace(WORLD, n_clients=5, horizon=2000)
    wider = replace(AGREEMENT, world=world, reward_bound=2.0, keywords={"gamma_upload": 1.1, "gamma_download": 1.1})
    changed = Federation("f", wider, store)
    assert changed.machine.gathered().n == federation.machine.gathered().n
    assert changed.terms == [AGREEMENT.digest.hex(), wider.digest.hex()]
    assert [changed.invite(f"client-{i}", 0.0).member for i in (3, 4)] == [3, 4]
    assert refusal(changed, 0, clients[0].greeting()).kind == "terms"
    for i, client in enumerate(clients):
        client.renew(changed.agreement, i)
        assert client.machine.threshold == pytest.approx(np.log(1.1))
    more = [DurableClient(MemoryStore(), wider, i, iter(range(50 * i, 50 * i + 9)).__next__) for i in (3, 4)]
    before = sum(client.machine.observed for client in clients)
    run(changed, [*clients, *more], 20)
    assert sum(client.machine.observed for client in [*clients, *more]) == before + 100
    assert changed.machine.applied == {i: c.machine.sequence for i, c in enumerate([*clients, *more])}
    again = Federation("f", wider, store)
    assert again.terms == changed.terms


def test_a_client_in_a_service_follows_a_change_by_itself() -> None:
    store = MemoryStore()

    def host(horizon: int) -> Host:
        agreement = replace(AGREEMENT, world=replace(WORLD, horizon=horizon))
        return Host(ServerConfig({"shops": FederationConfig(agreement)}), store)

    with served(host(600)) as url:
        port = int(url.rpartition(":")[2])
        client = Client(url, federation="shops", name="a")
        client.observe(0.5, client.select(np.eye(3)))
        assert client.flush()
    with client, served(host(700), port=port):
        client.observe(0.5, client.select(np.eye(3)[:, ::-1] * 0.9))
        client.observe(0.5, client.select(np.eye(3)[:, ::-1] * 0.9))
        assert client.flush(60.0)
        assert client.agreement.world.horizon == 700
        assert client.problem is None


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("backup_after", [0, 12])
def test_a_store_restored_from_a_backup_asks_for_what_it_misses(system: str, backup_after: int) -> None:
    agreement = on_a_network(Agreement(system, SYSTEMS[system], WORLD))
    store = MemoryStore()
    federation = Federation("f", agreement, store)
    if backup_after == 0:
        backup = store.copy()  # before anybody was a member
    clients = make_clients(federation)
    run(federation, clients, 12)
    if backup_after:
        backup = store.copy()
    run(federation, clients, 25)
    lost = federation.machine.gathered()
    restored = Federation("f", agreement, backup)
    assert restored.machine.gathered().n < lost.n
    run(restored, clients, 0)  # everybody greets, and is heard
    found = restored.machine.gathered()
    assert found.n == lost.n
    np.testing.assert_allclose(found.V, lost.V, atol=1e-9)
    np.testing.assert_allclose(found.b, lost.b, atol=1e-9)
    run(restored, clients, 20)  # and it goes on
    assert_complete(restored, clients)
    again = Federation("f", agreement, backup)
    assert again.machine.gathered().n == restored.machine.gathered().n


@pytest.mark.parametrize("system", ["sync-linucb", "hetofedbandit", "clustered-linucb"])
def test_the_answer_to_a_call_that_a_restored_store_lacks_is_taken(system: str) -> None:
    """The backup was made before the call, and the answer had not come when the store was lost."""
    keywords: dict[str, dict[str, Any]] = {
        "sync-linucb": {"threshold": 0.1},
        "hetofedbandit": {"exploration": 2},
        "clustered-linucb": {},
    }
    agreement = on_a_network(Agreement(system, keywords[system], WORLD))
    store = MemoryStore()
    federation = Federation("f", agreement, store)
    clients = make_clients(federation)
    run(federation, clients, 0)
    backup = store.copy()
    rng = np.random.default_rng(1)
    calls: list[Message] = []
    while not calls:
        for i, client in enumerate(clients):
            client.observe(client.select(rng.uniform(-0.5, 0.5, (4, WORLD.dim))).number, 0.5)
            calls += [answer for frame in client.outgoing() for answer in send(federation, i, frame.data)]
        calls += federation.tick(0.0)
        calls = [message for message in calls if isinstance(message, Collect)]
    for call in calls:
        clients[call.member].receive(call)
    made = sum(upload.sums.n for client in clients for upload in client.machine.outbox.values())
    assert made > 0
    restored = Federation("f", agreement, backup)
    run(restored, clients, 0)
    assert restored.machine.gathered().n == made
    run(restored, clients, 20)
    assert_complete(restored, clients)


def assert_complete(federation: Federation, clients: Sequence[DurableClient]) -> None:
    """What the coordinator has is what clients have uploaded."""
    open_ends = [upload for client in clients for upload in client.machine.outbox.values()]
    sent = sum(client.uploaded.n for client in clients) - sum(upload.sums.n for upload in open_ends)
    assert federation.machine.gathered().n == sent
    assert not federation.refusals


def test_a_client_that_lost_its_state_before_states_only_what_came_since() -> None:
    store = MemoryStore()
    federation = Federation("f", AGREEMENT, store)
    clients = make_clients(federation)
    run(federation, clients, 15)
    clients[0] = DurableClient(MemoryStore(), AGREEMENT, 0, iter(range(500, 599)).__next__)  # its file was lost
    run(federation, clients, 15)
    backup = store.copy()
    run(federation, clients, 30)
    restored = Federation("f", AGREEMENT, backup)
    run(restored, clients, 0)
    assert restored.machine.gathered().n == federation.machine.gathered().n


def test_after_a_restore_earlier_lives_of_a_client_still_count() -> None:
    """The third state joins a store that has never heard of it, only of the first two."""
    store = MemoryStore()
    federation = Federation("f", AGREEMENT, store)
    federation.invite("client-0", 0.0)
    backups = []
    for life in (1, 2, 3):
        backups.append(store.copy())
        client = DurableClient(MemoryStore(), AGREEMENT, 0, iter(range(100 * life, 100 * life + 99)).__next__)
        run(federation, [client], 20 * life)
    backup = backups[-1]
    restored = Federation("f", AGREEMENT, backup)
    before = restored.register.record("client-0").releases
    run(restored, [client], 0)
    for one in (restored, Federation("f", AGREEMENT, backup)):
        was, now = federation.machine.gathered(), one.machine.gathered()
        np.testing.assert_allclose(now.V, was.V, atol=1e-9)
        np.testing.assert_allclose(now.b, was.b, atol=1e-9)
        old, record = federation.register.record("client-0"), one.register.record("client-0")
        assert (now.n, record.observations, record.releases) == (was.n, was.n, old.releases)
        assert record.releases == before + client.releases
        assert one.machine.members.releases[0] == federation.machine.members.releases[0]


def test_a_client_goes_on_after_a_restatement_whose_receipt_was_lost() -> None:
    """After a crash it has uploads to send that the coordinator has as part of a sum only."""
    store = MemoryStore()
    federation = Federation("f", AGREEMENT, MemoryStore())
    federation.invite("client-0", 0.0)
    client = DurableClient(store, AGREEMENT, 0, iter(range(500, 599)).__next__)
    run(federation, [client], 10)
    acknowledged = client.machine.sequence
    restored = Federation("f", AGREEMENT, MemoryStore())
    while client.machine.sequence < acknowledged + 3:
        client.observe(client.select(np.eye(3)).number, 0.5)
    restored.invite("client-0", 0.0)
    for message in send(restored, 0, client.greeting()):
        client.receive(message)
    assert send(restored, 0, client.outgoing()[0].data)[0] == Receipt(0, acknowledged + 3), "which is lost"
    again = DurableClient(store, AGREEMENT, 0, iter(range(600, 699)).__next__)
    assert sorted(again.machine.outbox) == [acknowledged + k for k in (1, 2, 3)]
    while again.machine.sequence < acknowledged + 5:
        again.observe(again.select(np.eye(3)).number, 0.5)
    said = Conversation(again)
    frames = said.begin()
    while frames:  # a refusal would end this
        answers = [message for frame in frames for message in send(restored, 0, frame)]
        frames = []
        for message in answers:
            said.take(encode(message))
            frames += said.next()
    assert not again.machine.outbox
    assert restored.machine.gathered().n == again.machine.observed - again.machine.pending


def test_what_is_stated_anew_is_checked_too() -> None:
    federation = Federation("f", AGREEMENT, MemoryStore())
    (client,) = make_clients(federation, 1)
    run(federation, [client], 10)
    restored = Federation("f", AGREEMENT, MemoryStore())
    client.uploaded = client.uploaded._replace(n=601)
    answers = send(restored, 0, client.greeting())
    assert Recall(0, 0) in answers
    for message in answers:
        client.receive(message)
    (frame,) = client.outgoing()
    assert "horizon = 600" in str(refusal(restored, 0, frame.data))
    assert not isinstance(decode(unseal(frame.data)[1]), Upload)


def test_places_are_freed_and_given_to_others() -> None:
    store = MemoryStore()
    federation = Federation("f", AGREEMENT, store)
    clients = make_clients(federation)
    run(federation, clients, 20)
    before = federation.machine.gathered()
    with pytest.raises(Refusal, match="all 3 are taken"):
        federation.invite("newcomer", 0.0)
    federation.free("client-1", 0.0, "boss")
    assert "was given up" in str(refusal(federation, 1, clients[1].greeting())), "it would count twice"
    assert federation.machine.gathered().n == before.n, "what it had contributed stays in the sum"
    assert federation.invite("newcomer", 0.0).member == 1
    assert "all 3 are taken" in str(refusal(federation, 1, clients[1].greeting()))
    newcomer = DurableClient(MemoryStore(), AGREEMENT, 1, iter(range(700, 799)).__next__)
    greeting = newcomer.greeting()
    assert greeting is not None
    (answers,) = federation.receive([("newcomer", greeting)], 0.0)
    assert not isinstance(answers, Refusal)
    federation.quarantine("newcomer", "bad", 0.0)
    assert federation.machine.gathered().n == before.n, "nothing of the newcomer's was in it"
    again = Federation("f", AGREEMENT, store)
    assert list(again.register.by_name) == list(federation.register.by_name)
    assert again.machine.gathered().n == before.n


def test_a_client_that_loses_its_file_often_is_not_locked_out_for_ever() -> None:
    federation = Federation("f", AGREEMENT, MemoryStore())
    federation.invite("client-0", 0.0)
    day = 86_400.0
    for life in range(250):
        client = DurableClient(MemoryStore(), AGREEMENT, 0, iter(range(1000 * life + 1, 1000 * life + 99)).__next__)
        send(federation, 0, client.greeting(), at=life * day / 50)
    assert len(federation.register.record("client-0").past) == 100
