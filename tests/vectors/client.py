"""The Python client as the corpus drives it: verbs in, arms and frames out."""

from __future__ import annotations

from typing import Any

from fedbandit.errors import FedbanditError
from fedbandit.network.client.conversation import Conversation, Refused
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.resolved import accept
from fedbandit.network.stores import MemoryStore

CANNOT: dict[str, str] = {}
"""Capabilities of the corpus that this client skips, each with the reason."""


class CorpusClient:
    """A client with a store in memory. Whatever it refuses is a FedbanditError."""

    def __init__(self, invitation: dict[str, Any]) -> None:
        self.agreement, self.member = accept(invitation)
        self.store = MemoryStore()
        self.numbers: dict[str, int] = {}  # label of a choice → its number
        self.conversation: Conversation | None = None

    def open(self, incarnation: str, nonce: str) -> None:
        """Open the state: for the first time, or again after a crash."""
        new = self.store.read("client")[0] is None
        drawn = iter([*([int(incarnation, 16)] if new else []), int(nonce, 16), 2 * 1000 * len(self.numbers)])
        self.durable = DurableClient(self.store, self.agreement, self.member, drawn.__next__)
        self.conversation = None

    def connect(self) -> list[str]:
        """A connection: what is sent."""
        self.conversation = Conversation(self.durable)
        return [frame.hex() for frame in (*self.conversation.begin(), *self.conversation.next())]

    def disconnect(self) -> None:
        """The connection is gone."""
        self.conversation = None

    def select(self, label: str, arms: Any, explore: float = 0.0) -> tuple[int, float]:
        """Choose an arm; and how probable that was."""
        choice = self.durable.select(arms, explore)
        self.numbers[label] = choice.number
        return choice.arm, choice.propensity

    def observe(self, label: str, reward: Any) -> list[str]:
        """Learn a reward: what is sent."""
        self.durable.observe(self.numbers[label], reward)
        return self._sends()

    def forget(self, label: str) -> None:
        """The reward will never come."""
        self.durable.forget(self.numbers[label])

    def flush(self) -> None:
        """Write what waits in memory."""
        self.durable.flush()

    def receive(self, message: str) -> list[str]:
        """Take a message: what is sent."""
        assert self.conversation is not None
        self.conversation.take(bytes.fromhex(message))
        return self._sends()

    def refusal(self, text: str) -> tuple[str, bool, str]:
        """Take a text: its kind, whether trying again may help, and where if that is said. The connection is over."""
        assert self.conversation is not None
        try:
            self.conversation.take(text)
        except Refused as refused:
            self.conversation = None
            return refused.kind, refused.transient, refused.owner
        raise FedbanditError("A text was not taken as a refusal.")

    def status(self) -> dict[str, Any]:
        """What can be checked at any time."""
        machine = self.durable.machine
        return {
            "observed": machine.observed,
            "pending": machine.pending,
            "uploads": machine.sequence,
            "unacknowledged": len(machine.outbox),
            "version": machine.version,
            "theta": machine.model.theta.ravel().tolist(),
        }

    def _sends(self) -> list[str]:
        return [] if self.conversation is None else [frame.hex() for frame in self.conversation.next()]
