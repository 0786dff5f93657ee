"""A federation and its clients in one process, on a network without faults."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedbandit.messages import Download, Message, decode, encode
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import MemoryStore
from fedbandit.state import State


def make_clients(federation: Federation, count: int = 3) -> list[DurableClient]:
    """Clients in memory, the first members of the federation."""
    for i in range(count):
        federation.invite(f"client-{i}", 0.0)
    return [
        DurableClient(MemoryStore(), federation.agreement, i, iter(range(9 * i + 1, 999)).__next__)
        for i in range(count)
    ]


def run(federation: Federation, clients: Sequence[DurableClient], rounds: int) -> int:
    """Let clients greet and then act in turn, so many rounds; how many downloads they got."""
    rng, downloads, world = np.random.default_rng(0), 0, federation.agreement.world

    def deliver(messages: list[Message]) -> None:
        nonlocal downloads
        for message in messages:
            downloads += isinstance(message, Download)
            clients[message.member].receive(decode(encode(message)))
            talk(message.member)

    def talk(i: int) -> None:
        while frames := clients[i].outgoing():
            deliver(send(federation, i, frames[0].data))

    for i, client in enumerate(clients):
        deliver(send(federation, i, client.greeting()))
    for _ in range(rounds):
        for i, client in enumerate(clients):
            X = rng.uniform(-0.5, 0.5, (4, world.dim))
            choice = client.select(np.c_[np.arange(4) % world.actions, X] if world.actions else X)
            client.observe(choice.number, float(np.clip(X[choice.arm, 0] + rng.normal(0, 0.1), -1, 1)))
            talk(i)
        if federation.machine.clocked:
            deliver(federation.tick(0.0))
    return downloads


def send(federation: Federation, i: int, frame: bytes | None, at: float = 0.0) -> list[Message]:
    """Hand a frame of client i to the federation, which must not refuse it; the answers."""
    assert frame is not None
    (answers,) = federation.receive([(f"client-{i}", frame)], at)
    assert not isinstance(answers, Refusal), answers
    return answers


def assert_same(one: State, other: State, but: tuple[str, ...] = ()) -> None:
    """Two states are equal to the last bit, but for these fields of their headers."""
    assert {k: v for k, v in one.header.items() if k not in but} == {
        k: v for k, v in other.header.items() if k not in but
    }
    assert one.arrays.keys() == other.arrays.keys()
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, other.arrays[name], err_msg=name)
