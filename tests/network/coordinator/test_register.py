"""Which sessions are accepted: every line of the register's table."""

from __future__ import annotations

import pytest

from fedbandit.messages import Download, Join, Message, Recall, Receipt, encode
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.register import MOST_INCARNATIONS
from fedbandit.network.envelope import Envelope, seal
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import MemoryStore
from tests.network.servers import AGREEMENT, act


@pytest.fixture
def federation() -> Federation:
    federation = Federation("shops", AGREEMENT, MemoryStore())
    for name in "abcd":
        federation.invite(name, 0.0)
    return federation


def tell(federation: Federation, frame: bytes | None, name: str = "a") -> list[Message] | str:
    assert frame is not None
    (outcome,) = federation.receive([(name, frame)], 1.0)
    return outcome.kind + ": " + str(outcome) if isinstance(outcome, Refusal) else outcome


def open_member(store: MemoryStore, nonce: int) -> DurableClient:
    return DurableClient(store, AGREEMENT, 0, lambda: nonce)


def send_all(federation: Federation, member: DurableClient) -> None:
    while frames := member.outgoing():
        outcome = tell(federation, frames[0].data)
        assert isinstance(outcome, list), outcome
        for message in outcome:
            member.receive(message)


def test_the_lines_of_the_table(federation: Federation) -> None:
    store = MemoryStore()
    first = open_member(store, 11)
    assert tell(federation, first.greeting()) == [Receipt(0, 0)]
    assert tell(federation, first.greeting()) == [Receipt(0, 0)], "a reconnection"
    act(first, 15)
    send_all(federation, first)
    copy = store.copy()
    second = open_member(store, 12)  # a restart
    restarted = tell(federation, second.greeting())
    assert isinstance(restarted, list)
    assert restarted[0] == Receipt(0, first.machine.sequence)
    assert "in use elsewhere: go on with that one" in str(tell(federation, first.greeting())), "an earlier epoch"
    assert "in use elsewhere" in str(tell(federation, open_member(copy, 13).greeting())), "another nonce"
    act(first, 400, seed=9)
    assert "has not joined, or another session" in str(tell(federation, first.outgoing()[0].data))
    before = federation.machine.gathered().n
    fresh = open_member(MemoryStore(), 99)
    outcome = tell(federation, fresh.greeting())
    assert isinstance(outcome, list)
    assert outcome[0] == Receipt(0, 0), "a new life counts from one"
    assert isinstance(outcome[1], Download), "and is sent all there is"
    for message in outcome:
        fresh.receive(message)
    act(fresh, 40, seed=4)
    send_all(federation, fresh)
    assert federation.machine.applied[0] == fresh.machine.sequence > 0
    assert federation.machine.gathered().n > before
    assert "given up for a new one: go on with the newer file" in str(tell(federation, second.greeting()))


def test_a_copy_that_fell_behind_is_refused(federation: Federation) -> None:
    store = MemoryStore()
    member = open_member(store, 11)
    tell(federation, member.greeting())
    copy = store.copy()
    act(member, 15)
    send_all(federation, member)
    open_member(copy, 12)
    behind = open_member(copy, 13)
    assert "old copy" in str(tell(federation, behind.greeting()))


def test_nothing_is_acknowledged_to_a_copy_with_another_history(federation: Federation) -> None:
    store = MemoryStore()
    member = open_member(store, 11)
    tell(federation, member.greeting())
    act(member, 1)
    copy = store.copy()
    act(member, 5)
    send_all(federation, member)
    open_member(copy, 12)
    other = open_member(copy, 13)
    act(other, 60, seed=5)
    assert other.machine.sequence > federation.machine.applied[0]
    assert tell(federation, other.greeting()) == [Recall(0, 6), Receipt(0, 0)], "it is heard, but told nothing"
    refused = ""
    while not refused:
        outcome = tell(federation, other.outgoing()[0].data)
        if isinstance(outcome, str):
            refused = outcome
        else:
            for message in outcome:
                other.receive(message)
    assert "differs from what was applied" in refused
    assert min(other.machine.outbox) <= federation.machine.applied[0]


def test_one_cannot_start_over_for_ever(federation: Federation) -> None:
    for life in range(1, MOST_INCARNATIONS + 2):
        assert isinstance(tell(federation, seal(Envelope(life, 1, 1, 0, 0), encode(Join(0)))), list)
    again = tell(federation, seal(Envelope(10**6, 1, 1, 0, 0), encode(Join(0))))
    assert f"lost its state {MOST_INCARNATIONS} times" in str(again)
