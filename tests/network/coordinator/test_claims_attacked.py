"""What a client says that it has seen, and what it asks for, costs the others nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.messages import Collect, Join, Message, Request, Upload, decode, encode
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.coordinator.checked import SEEN
from fedbandit.network.coordinator.config import on_a_network
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.recorded import FAULT
from fedbandit.network.coordinator.register import Register
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import MemoryStore
from fedbandit.protocols.pool import Opening
from fedbandit.sums import Sums
from tests.network.coordinator.hostile import Hostile
from tests.network.in_process import assert_same, make_clients, run, send

WORLD = fb.World(n_clients=5, dim=3, horizon=5000)
PRIVATE = {"epsilon": 5.0, "delta": 1e-4}
SYSTEMS: list[tuple[str, dict[str, Any]]] = [
    ("async-linucb", {"gamma_upload": 1.3, "gamma_download": 1.3}),
    ("sync-linucb", {"threshold": 0.5}),
    ("hetofedbandit", {"exploration": 2}),
    ("hetofedbandit-async", {"gamma_upload": 1.3, "gamma_download": 1.3}),
    ("clustered-linucb", {}),
    ("feducb", PRIVATE),
    ("feducb", {**PRIVATE, "trust": "coordinator"}),
]


def federation_of(system: str, keywords: dict[str, Any], store: MemoryStore | None = None) -> Federation:
    return Federation("f", on_a_network(Agreement(system, keywords, WORLD)), store or MemoryStore())


def publishing(store: MemoryStore | None = None) -> Federation:
    """A coordinator that is trusted with everybody's statistics."""
    return federation_of("feducb", {**PRIVATE, "trust": "coordinator"}, store)


def versions(clients: list[DurableClient]) -> list[int]:
    return [client.machine.version for client in clients]


@pytest.mark.parametrize(("system", "keywords"), SYSTEMS)
def test_numbers_that_one_client_has_seen_are_its_own(system: str, keywords: dict[str, Any]) -> None:
    """It says that it has version and call 2⁶² − 1: the others go on, at once and after a restart."""
    store = MemoryStore()
    federation = federation_of(system, keywords, store)
    clients = make_clients(federation, 3)
    run(federation, clients, 4)
    before, hostile = federation.machine.version, Hostile(federation)
    sealed = federation.machine.pool is not None
    assert isinstance(hostile.join(version=SEEN - 1, epoch=SEEN - 1), Refusal) == sealed
    hostile.join(epoch=SEEN - 1)
    assert federation.machine.version <= before + 2
    assert isinstance(hostile.join(version=SEEN), Refusal)
    federation.quarantine(hostile.name, "so that nobody waits for it", 0.0)
    for _ in range(2):
        seen = versions(clients)
        run(federation, clients, 60)
        assert all(now > then for now, then in zip(versions(clients), seen, strict=True))
        again = Federation("f", federation.agreement, store)
        assert_same(again.machine.state(), federation.machine.state())
        federation = again
    newcomers = [DurableClient(MemoryStore(), federation.agreement, 4, iter(range(700, 999)).__next__)]
    federation.invite("client-4", 0.0)
    for message in send(federation, 4, newcomers[0].greeting()):
        newcomers[0].receive(decode(encode(message)))


def test_whoever_has_seen_more_is_sent_later_numbers() -> None:
    """A coordinator that was restored from a backup does not know what it had sent since."""
    store = MemoryStore()
    federation = federation_of(*SYSTEMS[0], store)
    clients = make_clients(federation, 3)
    run(federation, clients, 10)
    backup = store.copy()
    run(federation, clients, 100)
    seen = versions(clients)
    restored = Federation("f", federation.agreement, backup)
    assert restored.machine.version < min(seen)
    run(restored, clients, 3)
    assert all(now > then for now, then in zip(versions(clients), seen, strict=True))


def test_no_sum_is_called_off_by_one_client() -> None:
    """That the last epoch of the budget is over is believed if a quorum says so: no sum is opened with fewer."""
    store = MemoryStore()
    federation = federation_of("feducb", {**PRIVATE, "trust": "sums"}, store)
    pool = federation.machine.pool
    assert pool is not None
    assert isinstance(pool.total, Opening)
    quorum = pool.total.quorum
    liars = [Hostile(federation, f"liar-{i}") for i in range(quorum)]
    for liar in liars[: quorum - 1]:
        liar.join(epoch=pool.total.epochs)
        assert federation.machine.epoch == 0
    (asked, *_) = (liars[0].send(Request(liars[0].member)),)
    assert not isinstance(asked, Refusal)
    assert any(isinstance(answer, Collect) for answer in asked), "sums go on"
    liars[-1].join(epoch=9)
    assert federation.machine.epoch == 9, "which all of a quorum have seen"
    again = Federation("f", federation.agreement, store)
    assert_same(again.machine.state(), federation.machine.state())


def test_secure_sums_take_no_uploads() -> None:
    """They would be counted before they are refused, and the next one of their number compared with none."""
    store = MemoryStore()
    federation = federation_of("feducb", {**PRIVATE, "trust": "sums"}, store)
    hostile = Hostile(federation)
    hostile.join()
    before = federation.state()
    for _ in range(2):
        for outcome in (hostile.upload(), hostile.restate(1, 1)):
            assert isinstance(outcome, Refusal)
            assert outcome.kind == "malformed"
            assert "secure sums take contributions only" in str(outcome)
    assert_same(federation.state(), before, but=("members",))
    assert federation.machine.applied == {}
    assert not [event for event in federation.events if event.what == FAULT]


def deliver(federation: Federation, clients: list[DurableClient], messages: list[Message], at: float) -> None:
    """What clients are told, and what they say to it."""
    for message in messages:
        if message.member < len(clients):
            clients[message.member].receive(decode(encode(message)))
            talk(federation, clients, message.member, at)


def talk(federation: Federation, clients: list[DurableClient], i: int, at: float) -> None:
    """What a client has to say."""
    while frames := clients[i].outgoing():
        deliver(federation, clients, send(federation, i, frames[0].data, at), at)


@pytest.mark.parametrize("trust", ["coordinator", "nobody"])
def test_one_client_cannot_spend_what_all_have(trust: str) -> None:
    """It asks after each observation, or says that it has twice as many each time; in a second, then for an hour."""
    store = MemoryStore()
    federation = federation_of("feducb", {**PRIVATE, "trust": trust}, store)
    clients, hostile, rng = make_clients(federation, 3), Hostile(federation), np.random.default_rng(0)
    for i, client in enumerate(clients):
        deliver(federation, clients, send(federation, i, client.greeting()), 0.0)
    hostile.join()

    def press(n: int, at: float) -> None:
        hostile.send(Upload(hostile.member, hostile.sequence + 1, Sums(1e-3 * np.eye(3), np.zeros(3), n), 0.0), at=at)
        answers = hostile.send(Request(hostile.member), at=at)
        assert not isinstance(answers, Refusal)
        deliver(federation, clients, answers, at)
        hostile.send(Upload(hostile.member, hostile.sequence + 1, Sums(np.zeros((3, 3)), np.zeros(3), 0), 0.0), at=at)

    for k in range(40):
        press(1, 0.01 * k)
    assert federation.machine.epoch <= 1
    for k in range(9):
        press(2**k, 1 + 0.01 * k)
    assert federation.machine.epoch <= 1
    for k in range(600):
        press(1, 2 + 6.0 * k)
    assert federation.machine.epoch <= 7, "after 0, 1, 3, 7, 15, 31 minutes"
    before = federation.machine.epoch
    again = Federation("f", federation.agreement, store)
    assert_same(again.machine.state(), federation.machine.state())
    asked = [(r.asked, r.asked_in, r.asked_at, r.pressed) for r in federation.register.by_number]
    assert [(r.asked, r.asked_in, r.asked_at, r.pressed) for r in again.register.by_number] == asked
    federation.quarantine(hostile.name, "so that nobody waits for it", 4000.0)
    for _ in range(30):
        for i, client in enumerate(clients):
            choice = client.select(rng.uniform(-0.5, 0.5, (4, 3)))
            client.observe(choice.number, 0.1)
            talk(federation, clients, i, 4000.0)
    assert federation.machine.epoch > before, "honest clients are heard"


def test_a_lost_publication_is_not_made_twice() -> None:
    """A member that has a later one proves it by its seal; then nobody joins, and nothing is published."""
    store = MemoryStore()
    federation = publishing(store)
    clients = make_clients(federation, 3)
    run(federation, clients, 10)
    assert federation.machine.pool is not None
    made = federation.machine.pool.total.epoch
    backup = store.copy()
    while federation.machine.pool.total.epoch < made + 2:
        run(federation, clients, 5)
    restored = Federation("f", federation.agreement, backup)
    assert restored.machine.pool is not None
    hostile = Hostile(restored)
    for forged in ((made + 5) << 48, versions(clients)[0] + (1 << 48), versions(clients)[0] ^ 1):
        refused = hostile.join(version=forged)
        assert isinstance(refused, Refusal)
        assert "which never was" in str(refused)
        assert restored.machine.pool.lost == 0
    greeting = clients[1].greeting()
    assert greeting is not None
    (refused,) = restored.receive([("client-1", greeting)], 0.0)
    assert isinstance(refused, Refusal)
    assert f"Publication {made + 2} of this coordinator is not in its store, which has {made}" in str(refused)
    assert restored.machine.collect(range(3)) == []
    again = Federation("f", federation.agreement, backup)
    assert_same(again.machine.state(), restored.machine.state())
    assert isinstance(hostile.join(), Refusal)


def test_a_publication_that_was_made_once_more_is_known_by_its_mark() -> None:
    """Whoever had been away joins first, and has as many made as were lost: the others prove what has happened."""
    store = MemoryStore()
    federation = publishing(store)
    clients = make_clients(federation, 3)
    run(federation, clients[:1], 4)
    backup = store.copy()
    assert federation.machine.pool is not None
    made = federation.machine.pool.total.epoch
    run(federation, clients, 20)
    lost = federation.machine.pool.total.epoch
    assert lost > made
    restored = Federation("f", federation.agreement, backup)
    assert restored.machine.pool is not None
    newcomer, rng = Hostile(restored, "newcomer"), np.random.default_rng(0)
    newcomer.join()
    while restored.machine.pool.total.epoch < lost:
        n = int(rng.integers(40, 60))
        some = Upload(newcomer.member, newcomer.sequence + 1, Sums(0.1 * np.eye(3), np.zeros(3), n), 0.0)
        assert not isinstance(newcomer.send(some), Refusal)
        assert restored.machine.collect([newcomer.member])
        rest = Upload(newcomer.member, newcomer.sequence + 1, Sums(np.zeros((3, 3)), np.zeros(3), 0), 0.0)
        assert not isinstance(newcomer.send(rest), Refusal)
    greeting = clients[1].greeting()
    assert greeting is not None
    (refused,) = restored.receive([("client-1", greeting)], 0.0)
    assert isinstance(refused, Refusal)
    assert f"Publication {lost} of this coordinator is not in its store" in str(refused)


@pytest.mark.parametrize("trust", ["coordinator", "sums"])
def test_what_belonged_to_a_lost_state_is_forgotten(trust: str) -> None:
    """In which sum or publication it was last: its next state, and whoever gets its number, is not held to that."""
    federation = federation_of("feducb", {**PRIVATE, "trust": trust})
    pool = federation.machine.pool
    assert pool is not None
    first = Hostile(federation)
    first.join()
    for begin in (lambda: None, lambda: federation.free(first.name, 0.0)):
        pool.included[first.member] = federation.masked[first.member] = 4
        begin()
        again = Hostile(federation)
        again.incarnation += 100 + len(federation.events)
        for _ in range(3):  # it joins, and its connection breaks
            assert not isinstance(again.join(), Refusal)
        assert first.member not in pool.included
        assert first.member not in federation.masked


def test_nobody_has_sums_called_for_while_too_few_are_there() -> None:
    """One client at night: a sum that cannot be opened costs an epoch of everybody's, once."""
    federation = federation_of("feducb", {**PRIVATE, "trust": "sums"})
    members = [Hostile(federation, f"client-{i}") for i in range(5)]
    for member in members:
        member.join()
    assert federation.machine.pool is not None
    alone, began = members[0], 1e6
    for k in range(2000):
        at = began + 10.0 * k
        alone.send(Request(alone.member), at=at)
        if federation.machine.calls:
            federation.give_up_sum("1 client answered", at)
    assert federation.machine.epoch <= 8
    spent = federation.machine.epoch
    for member in members[1:]:
        member.send(Join(member.member), at=began + 20_001)
    for k in range(200):
        for member in members:
            member.send(Request(member.member), at=began + 20_010.0 + 2 * k)
        if federation.machine.calls:
            break
    assert federation.machine.epoch == spent + 1, "they are back"


def test_a_backup_without_a_later_publication_goes_on() -> None:
    store = MemoryStore()
    federation = publishing(store)
    clients = make_clients(federation, 3)
    run(federation, clients, 10)
    restored = Federation("f", federation.agreement, store.copy())
    seen = versions(clients)
    run(restored, clients, 30)
    assert all(now > then for now, then in zip(versions(clients), seen, strict=True))


# Who is heard


def asks(hostile: Hostile, at: float, n: int = 0) -> bool:
    """Whether its Request leads to a call at this time, which it answers with n observations."""
    machine = hostile.federation.machine
    before = machine.epoch
    hostile.send(Request(hostile.member), at=at)
    sums = Sums(1e-3 * n * np.eye(3), np.zeros(3), n)
    assert not isinstance(hostile.send(Upload(hostile.member, hostile.sequence + 1, sums, 0.0), at=at), Refusal)
    return machine.epoch > before


def test_one_client_that_observes_nothing_does_not_make_all_upload() -> None:
    """Without privacy, too: it is heard after a second, then two, four, …; at once when it has observed something."""
    store = MemoryStore()
    federation = federation_of("sync-linucb", {"threshold": 0.5}, store)
    hostile = Hostile(federation)
    hostile.join()
    assert sum(asks(hostile, 100.0 + 0.01 * k) for k in range(800)) == 4, "after 0, 1, 3 and 7 seconds"
    again = Federation("f", federation.agreement, store)
    assert again.register.state() == federation.register.state()
    assert not isinstance(hostile.upload(1, Sums(1e-3 * np.eye(3), np.zeros(3), 1)), Refusal)
    assert all(asks(hostile, 110.0, n=1) for _ in range(5)), "it has something to say each time"


@pytest.mark.parametrize("trust", ["coordinator", "nobody"])
def test_a_clock_that_is_set_back_makes_nobody_wait(trust: str) -> None:
    federation = federation_of("feducb", {**PRIVATE, "trust": trust})
    hostile = Hostile(federation)
    hostile.join()
    assert asks(hostile, 1e9, n=1)
    assert not asks(hostile, 1e9 + 59.0)
    assert asks(hostile, 1e9 - 86_400.0), "one that was a day ahead until then"
    assert not asks(hostile, 1e9 - 86_400.0 + 119.0)
    assert asks(hostile, 1e9 - 86_400.0 + 120.0)


def test_counts_of_one_life_are_compared() -> None:
    """Whoever has lost its state waits once, and not until it has twice as much as before; nor is it heard each time
    that it loses its state.
    """
    store = MemoryStore()
    federation = federation_of("feducb", {**PRIVATE, "trust": "nobody"}, store)
    one, other = Hostile(federation), Hostile(federation, "other")
    one.join(), other.join()
    federation.quarantine(other.name, "so that nobody waits for it", 0.0)

    def begin_anew(at: float) -> None:
        one.incarnation, one.sequence, one.chain = one.incarnation + 100, 0, 0
        one.send(Join(one.member), at=at)
        if federation.machine.is_asked(one.member):
            one.send(Upload(one.member, 1, Sums(np.zeros((3, 3)), np.zeros(3), 0), 0.0), at=at)

    def somebody_asks(at: float) -> None:
        federation.quarantine(other.name, "", at)
        other.opening += 1
        other.send(Join(other.member), at=at)
        federation.register.record(other.name).asked = -1
        assert asks(other, at)
        one.send(Upload(one.member, one.sequence + 1, Sums(np.zeros((3, 3)), np.zeros(3), 0), 0.0), at=at)
        federation.quarantine(other.name, "so that nobody waits for it", at)

    assert asks(one, 0.0, n=1000)
    somebody_asks(1.0)
    begin_anew(2.0)
    assert federation.register.record(one.name).observed == 0
    kept = Register(WORLD.n_clients)
    kept.restore(federation.register.state())
    assert kept.by_number == federation.register.by_number
    assert not asks(one, 2.0, n=100)
    assert asks(one, 60.0, n=0)
    somebody_asks(61.0)
    begin_anew(62.0)
    assert not asks(one, 62.0), "nor each time"
    begin_anew(63.0)
    assert not asks(one, 64.0, n=10)
    assert asks(one, 180.0), "it had pressed before"
    somebody_asks(181.0)
    assert not asks(one, 182.0, n=40)
    assert asks(one, 182.0), "50 are more than twice ten"
    assert federation.register.record(one.name).pressed == 0
