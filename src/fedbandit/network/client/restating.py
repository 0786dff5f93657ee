"""A node that can say again what all its uploads amount to, to a coordinator that was restored from a backup."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from fedbandit.messages import Recall, Receipt, Restate, encode
from fedbandit.network.client.node import LOST, RESTORE, DurableNode, Machine
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
        self._refused, self._refusal = False, ""  # whether the last statement was refused; why
        super().__init__(store, agreement, machine, entropy, federation)

    @abstractmethod
    def statement(self) -> Restate | None:
        """What all uploads amount to; None if that is not known."""

    def outgoing(self, most: int = 1) -> list[Frame]:
        """The first frames that have to be sent; all uploads as one sum, if the coordinator has lost some."""
        if self.trouble and self.machine.outbox:  # they follow what the coordinator does not have
            return []
        stated = self.statement() if self._restating else None
        if stated is None:
            return super().outgoing(most)
        if self.machine.sequence > self._safe:
            self._make_safe()
        self._stated = stated.sequence
        return [Frame(self._seal(self.chain, encode(stated)), stated.sequence)]

    def recall(self, message: Recall) -> None:
        """The coordinator has lost uploads that it may have acknowledged: what can be stated anew is.

        After a statement was refused, the next connection is left as it is while it lasts, without one.
        """
        super().recall(message)
        refused, self._refused = self._refused, False
        self._restating, self._stated = False, 2**64
        if self.trouble is None:
            return
        if self.agreement.build().privacy.pooled:
            self.trouble = f"{LOST} where only a noised total is published; {RESTORE}."
        elif self.statement() is None:
            self.trouble = f"{LOST} by {self.store.where}, which does not know all of them; {RESTORE}."
        elif refused:
            self.trouble = self._refusal
        else:
            self.trouble, self._restating = None, True

    def note_receipt(self, message: Receipt) -> None:
        """If it answers the statement, that is over."""
        super().note_receipt(message)
        self._restating = self._restating and message.sequence < self._stated

    def note_refusal(self, sentence: str) -> None:
        """If it was the statement, a person has to act."""
        if self._restating and self._stated < 2**64:
            self._restating, self._refused = False, True
            self._refusal = self.trouble = f"{LOST}: {sentence}"
