"""A coordinator has lost uploads that it had acknowledged: they are stated anew, or a person is told."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import fedbandit as fb
from fedbandit.messages import Message, Recall, Receipt, Restate, Upload, decode, encode
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.coordinator.config import on_a_network
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.rules import Rules
from fedbandit.network.envelope import unseal
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import MemoryStore

WORLD = fb.World(n_clients=3, dim=3, horizon=600)
EAGER = "async-linucb", {"gamma_upload": 1.01, "gamma_download": 1.01}
BACKUP = "restore a newer backup of its store"


class Life:
    """A client, and a coordinator that can be restored from a backup."""

    def __init__(self, system: str, keywords: dict[str, Any], **rules: Any) -> None:
        self.agreement = on_a_network(Agreement(system, keywords, WORLD))
        self.rules = Rules(**rules)
        self.store = MemoryStore()
        self.open(self.store)
        self.federation.invite("a", 0.0)
        self.client = DurableClient(MemoryStore(), self.agreement, 0, itertools.count(1).__next__)
        self.sent: list[Message] = []
        self.ticks = 0

    def open(self, store: MemoryStore) -> None:
        self.store = store
        self.federation = Federation("f", self.agreement, store, rules=self.rules)

    def visit(self, times: int = 20) -> None:
        for k in range(times):
            x = [0.0] * 3
            x[k % 3] = 1.0
            self.client.observe(self.client.select([x]).number, 0.5)

    def connect(self) -> list[str]:
        """A connection until nothing is left to say; refusals end it."""
        self.sent.clear()
        self.ticks = 5
        frames = [self.client.greeting()]
        while frames and frames[0] is not None:
            said = decode(unseal(frames[0])[1])
            self.sent.append(said)
            (outcome,) = self.federation.receive([("a", frames[0])], 0.0)
            if isinstance(outcome, Refusal):
                if outcome.kind != "unavailable":
                    self.client.note_refusal(str(outcome))
                return [str(outcome)]
            applied = self.federation.machine.applied.get(0, 0)
            if len(self.sent) == 1 and self.client.machine.sequence > applied:
                outcome = [Recall(0, applied), *(m for m in outcome if not isinstance(m, Recall))]
            for message in outcome:
                self.client.receive(decode(encode(message)))
            frames = [frame.data for frame in self.client.outgoing()]
            if not frames and self.federation.machine.clocked and self.ticks > 0:
                self.ticks -= 1
                for message in self.federation.tick(0.0):
                    self.client.receive(decode(encode(message)))
                frames = [frame.data for frame in self.client.outgoing()]
        return []

    def lose(self) -> MemoryStore:
        """The coordinator's store is an older one, from before the last uploads; the newer one."""
        self.visit()
        assert not self.connect()
        old = self.store.copy()
        self.visit()
        assert not self.connect()
        newer = self.store
        assert newer.dump() != old.dump()
        self.open(old)
        return newer


def assert_waits_for_a_backup(life: Life, newer: MemoryStore, why: str) -> None:
    """The client says so as long as it is so, and sends nothing that the coordinator cannot take."""
    for _ in range(3):
        assert not life.connect()
        assert why in (life.client.trouble or "")
        assert not any(isinstance(message, Upload | Restate) for message in life.sent)
        life.client.receive(Receipt(0, 0))
        life.visit()
        assert life.client.machine.outbox or life.federation.machine.clocked
        assert not life.client.outgoing()
    life.open(newer)
    assert not life.connect()
    assert (life.client.trouble, life.client.machine.outbox) == (None, {})
    assert life.federation.machine.gathered().n == life.client.machine.observed - life.client.machine.pending


def test_what_is_lost_is_stated_anew() -> None:
    life = Life(*EAGER)
    life.lose()
    assert not life.connect()
    assert any(isinstance(message, Restate) for message in life.sent)
    assert life.client.trouble is None
    assert life.federation.machine.gathered().n == life.client.machine.observed - life.client.machine.pending


def test_a_client_that_does_not_know_all_its_uploads_says_so() -> None:
    life = Life(*EAGER)
    newer = life.lose()
    life.client.all_uploads = False
    assert_waits_for_a_backup(life, newer, f"which does not know all of them; {BACKUP}")


def test_what_went_into_a_noised_total_cannot_be_stated() -> None:
    privacy = {"noises": "statistics", "epsilon": 4.0, "trust": "coordinator"}
    life = Life("count-linucb", {"factor_upload": 1.01, "factor_download": 1.01, "privacy": privacy})
    newer = life.lose()
    assert life.federation.machine.pool is not None
    life.federation.machine.pool.key = b""  # as if uploads alone had been lost, and no publication
    assert_waits_for_a_backup(life, newer, f"where only a noised total is published; {BACKUP}")


def test_a_lost_publication_ends_a_federation_until_there_is_a_newer_backup() -> None:
    privacy = {"noises": "statistics", "epsilon": 4.0, "trust": "coordinator"}
    life = Life("count-linucb", {"factor_upload": 1.01, "factor_download": 1.01, "privacy": privacy})
    newer = life.lose()
    for _ in range(3):
        (refused,) = life.connect()
        assert "Publication 2 of this coordinator is not in its store, which has 1: to go on from here would" in refused
        life.visit()
    life.open(newer)
    assert not life.connect()
    assert life.federation.machine.gathered().n == life.client.machine.observed - life.client.machine.pending


@pytest.mark.parametrize("kind", ["statistics", "unavailable"])
def test_a_statement_that_is_refused_is_not_said_again_and_again(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(*EAGER, retract=False)
    newer = life.lose()
    take = Federation.receive

    def refuse(self: Federation, frames: list[tuple[str, bytes]], at: float) -> Any:
        if isinstance(decode(unseal(frames[0][1])[1]), Restate):
            return [Refusal(kind, f"A federation that keeps no contributions takes none; {BACKUP}.")]
        return take(self, frames, at)

    monkeypatch.setattr(Federation, "receive", refuse)
    life.visit()
    stated = []
    for _ in range(6):
        refused = life.connect()
        stated.append(bool(refused))
        assert any(isinstance(message, Restate) for message in life.sent) == bool(refused)
        assert (life.client.trouble is None) == (kind == "unavailable")
        assert kind == "unavailable" or BACKUP in (life.client.trouble or "")
    assert stated == ([True, False] * 3 if kind == "statistics" else [True] * 6)
    life.open(newer)
    assert not life.connect()
    assert (life.client.trouble, life.client.machine.outbox) == (None, {})


def test_uploads_that_wait_are_no_loss() -> None:
    life = Life(*EAGER)
    life.visit()
    assert not life.connect()
    life.visit()
    assert life.client.machine.outbox
    assert not life.connect()
    assert life.client.trouble is None
    assert not any(isinstance(message, Restate) for message in life.sent)
    assert not life.client.machine.outbox
