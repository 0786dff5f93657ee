"""Rounds of a federation: who is awaited, and what clocks change."""

from __future__ import annotations

import numpy as np

import fedbandit as fb
from fedbandit.messages import Collect
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.coordinator.config import on_a_network
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import MemoryStore
from tests.network.in_process import make_clients, run, send

WORLD = fb.World(n_clients=4, dim=2, horizon=10_000)


def exploring(federation: Federation) -> bool:
    return federation.machine.exploring


def test_nobody_waits_for_ever() -> None:
    """Two of four never join, a third goes away: the fourth goes on; a client that comes back is accepted."""
    federation = Federation("f", on_a_network(Agreement("hetofedbandit", {"exploration": 2}, WORLD)), MemoryStore(), 3)
    clients = make_clients(federation)
    for i in range(2):
        send(federation, i, clients[i].greeting())
    calls = [message for _ in range(2) for message in federation.tick(0.0)]
    assert [message.member for message in calls if isinstance(message, Collect)] == [0, 1], "the two who have joined"
    clients[0].receive(calls[0])
    for frame in clients[0].outgoing():
        send(federation, 0, frame.data)
    assert federation.machine.awaits() == [1]
    assert exploring(federation)
    for _ in range(3):
        assert federation.rounds == 2, "a round does not end while somebody is awaited"
        federation.tick(0.0)
    assert not federation.machine.awaits()
    assert not exploring(federation), "after so many rounds it goes on without the one who is silent"
    federation.tick(0.0)
    assert federation.rounds == 3
    # The one who was silent comes back, with the answer to the old call under way; the third comes for the first time.
    clients[1].receive(calls[1])
    for i in (1, 2):
        for message in send(federation, i, clients[i].greeting()):
            clients[i].receive(message)
        for frame in clients[i].outgoing():
            send(federation, i, frame.data)
        assert not clients[i].machine.exploring
        assert federation.machine.applied[i] == 1
    assert all(record.is_present for record in federation.register.by_number)


def test_a_client_in_quarantine_is_not_awaited() -> None:
    federation = Federation("f", on_a_network(Agreement("sync-linucb", {"threshold": 0.1}, WORLD)), MemoryStore(), 1000)
    clients = make_clients(federation, 2)
    run(federation, clients, 0)
    choice = clients[0].select(np.eye(2))
    clients[0].observe(choice.number, 1.0)
    for frame in clients[0].outgoing():
        send(federation, 0, frame.data)
    assert federation.machine.awaits() == [0, 1]
    federation.quarantine("client-1", "it lies", 0.0)
    federation.tick(0.0)
    assert federation.machine.awaits() == [0]


def test_clocks_may_jump() -> None:
    """Times are shown, never decided by: with a clock that jumps everything is as with one that does not."""

    def run_at(times: list[float]) -> tuple[int, int]:
        federation = Federation("f", on_a_network(Agreement("clustered-linucb", {}, WORLD)), MemoryStore())
        (client,) = make_clients(federation, 1)
        send(federation, 0, client.greeting(), times[0])
        for at in times:
            choice = client.select(np.eye(2))
            client.observe(choice.number, 1.0)
            for message in federation.tick(at):
                client.receive(message)
            for frame in client.outgoing():
                for message in send(federation, 0, frame.data, at):
                    client.receive(message)
        again = Federation("f", federation.agreement, federation.store)
        assert again.machine.gathered().n == federation.machine.gathered().n
        return federation.rounds, federation.machine.gathered().n

    steady = run_at([1e9 + i for i in range(40)])
    assert steady == run_at([1e9 + (-1) ** i * 10.0 ** (i % 12) for i in range(40)])
    assert steady[1] > 20


def test_whoever_has_lost_its_state_is_told_that_calls_have_begun() -> None:
    """A new incarnation of a member begins by exploring; it is called, and what the former one sent stays."""
    federation = Federation("f", on_a_network(Agreement("hetofedbandit", {"exploration": 1}, WORLD)), MemoryStore())
    federation.invite("client-0", 0.0)

    def begin(entropy: int) -> None:
        client = DurableClient(MemoryStore(), federation.agreement, 0, lambda: entropy)
        choice = client.select(np.eye(2))
        client.observe(choice.number, 1.0)
        for message in [*send(federation, 0, client.greeting()), *federation.tick(0.0)]:
            client.receive(message)
        assert not client.machine.exploring
        for frame in client.outgoing():
            send(federation, 0, frame.data)

    begin(11)
    assert federation.machine.gathered().n == 1
    begin(22)
    assert federation.machine.gathered().n == 2
