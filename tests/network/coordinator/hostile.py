"""A client with a valid place that builds its frames by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedbandit.messages import Join, Message, Restate, Upload, encode
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.envelope import Envelope, extend, seal
from fedbandit.network.refusal import Refusal
from fedbandit.sums import Sums


class Hostile:
    """It says what it likes, in the order it likes; who asks gets the answers or the refusal."""

    def __init__(self, federation: Federation, name: str = "evil") -> None:
        self.federation, self.name = federation, name
        self.member = federation.invite(name, 0.0).member
        self.dim = federation.dim
        self.incarnation, self.opening, self.sequence, self.chain = 4242 + self.member, 0, 0, 0

    def frame(self, message: Message, sequence: int | None = None) -> bytes:
        """A frame of its present opening, which says that it has made so many uploads."""
        sequence = self.sequence if sequence is None else sequence
        envelope = Envelope(self.incarnation, self.opening, 77, sequence, self.chain, self.federation.digest)
        return seal(envelope, encode(message))

    def send(self, message: Message, sequence: int | None = None, at: float = 1e6) -> list[Message] | Refusal:
        """What it is answered."""
        (outcome,) = self.federation.receive([(self.name, self.frame(message, sequence))], at)
        if isinstance(message, Upload) and not isinstance(outcome, Refusal):
            self.chain, self.sequence = extend(self.chain, encode(message)), message.sequence
        return outcome

    def join(self, sequence: int | None = None, version: int = 0, epoch: int = 0) -> list[Message] | Refusal:
        """Open the state again; with a larger number than was applied here, it is asked what all uploads amount to."""
        self.opening += 1
        return self.send(Join(self.member, version, epoch), sequence)

    def upload(self, n: int = 1, sums: Sums | None = None, known: float = 0.0, **more: Any) -> list[Message] | Refusal:
        """The next upload, of n observations."""
        sums = self.some(n) if sums is None else sums
        return self.send(Upload(self.member, self.sequence + 1, sums, known, **more))

    def restate(
        self, sequence: int, releases: int, sums: Sums | None = None, known: float = 0.0, **more: Any
    ) -> list[Message] | Refusal:
        """Say what so many uploads amount to."""
        sums = self.some(1) if sums is None else sums
        message = Restate(self.member, sequence, releases, sums, known, **more)
        outcome = self.send(message, sequence)
        if not isinstance(outcome, Refusal):
            self.sequence = sequence
        return outcome

    def some(self, n: int) -> Sums:
        """Possible statistics of n observations."""
        return Sums(0.1 * n * np.eye(self.dim), np.zeros(self.dim), n)
