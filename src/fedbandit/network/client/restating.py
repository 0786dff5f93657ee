"""A node that can say again what all its uploads amount to, to a coordinator that was restored from a backup."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from fedbandit.messages import Recall, Receipt, Restate, encode
from fedbandit.network.client.node import DurableNode, Machine
from fedbandit.network.envelope import Frame
from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import Store


class RestatingNode(DurableNode[Machine]):
    """A node whose uploads add up."""

    def __init__(
        self,
        store: Store,
        agreement: Agreement,
        machine: Machine,
        entropy: Callable[[], int],
        federation: str | None = None,
    ) -> None:
        self._restating, self._stated = False, 0  # whether the coordinator has lost uploads; up to where it was told
        super().__init__(store, agreement, machine, entropy, federation)

    @abstractmethod
    def statement(self) -> Restate | None:
        """What all uploads amount to; None if that is not known."""

    def outgoing(self, most: int = 1) -> list[Frame]:
        """The first frames that have to be sent; all uploads as one sum, if the coordinator has lost some."""
        stated = self.statement() if self._restating else None
        if stated is None:
            return super().outgoing(most)
        if self.machine.sequence > self._safe:
            self._make_safe()
        self._stated = stated.sequence
        return [Frame(self._seal(self.chain, encode(stated)), stated.sequence)]

    def recall(self, message: Recall) -> None:
        """The coordinator has lost uploads that it may have acknowledged."""
        first = min(self.machine.outbox, default=self.machine.sequence + 1)
        self._restating, self._stated = message.sequence < first - 1 and self.statement() is not None, 2**64
        self._applied = min(message.sequence, self.machine.sequence)

    def note_receipt(self, message: Receipt) -> None:
        """If it answers the statement, that is over."""
        self._restating = self._restating and message.sequence < self._stated
