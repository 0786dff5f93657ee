"""A client with a valid token that says whatever it likes: frames made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedbandit.messages import Join, Message, Upload, encode
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.envelope import Envelope, extend, seal
from fedbandit.network.refusal import Refusal
from fedbandit.sums import Sums


class Hostile:
    """Keeps to the protocol's numbers only where it would be refused otherwise."""

    def __init__(self, federation: Federation, name: str = "hostile") -> None:
        self.federation, self.name = federation, name
        self.member = federation.invite(name, 0.0).member
        self.incarnation, self.epoch, self.sequence, self.chain = 4242, 1, 0, 0

    def say(self, message: Message, at: float = 0.0) -> list[Message] | Refusal:
        """Send a message; the answers, or why it was refused."""
        data = encode(message)
        terms = self.federation.digest
        envelope = Envelope(self.incarnation, self.epoch, 77, self.sequence, self.chain, terms)
        (outcome,) = self.federation.receive([(self.name, seal(envelope, data))], at)
        if isinstance(message, Upload) and not isinstance(outcome, Refusal):
            self.chain, self.sequence = extend(self.chain, data), message.sequence
        return outcome

    def join(self, version: int = 0, epoch: int = 0, at: float = 0.0) -> list[Message] | Refusal:
        """Join, and say that it has seen so much."""
        return self.say(Join(self.member, version, epoch), at)

    def upload(self, V: Any, b: Any, n: int, at: float = 0.0, known: float = 0.0) -> list[Message] | Refusal:
        """The next upload."""
        sums = Sums(np.asarray(V, dtype=np.float64), np.asarray(b, dtype=np.float64), n)
        return self.say(Upload(self.member, self.sequence + 1, sums, known), at)
