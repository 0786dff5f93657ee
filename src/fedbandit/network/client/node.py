"""What every node keeps that talks to a coordinator – a client, a local server, a relay: session, history, journal.

Theory of operation
-------------------
The journal is a snapshot and the entries since. What a node sends and must not lose is numbered 1, 2, …: it is in the
store before it can be sent, and the store has been told to survive a power cut (`outgoing`). From then on the same
bytes are sent until they are acknowledged. Opening a state increments its epoch, in the store, before all else.
Nothing here knows a network: `greeting` and `outgoing` give frames, `receive` takes a message.

What the machine is, and which entries there are, says the subclass.
"""

from __future__ import annotations

import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError
from fedbandit.messages import Message, Recall, Receipt, Request, Upload, encode
from fedbandit.network.client.journal import NodeJournal
from fedbandit.network.envelope import Envelope, Frame, extend, seal
from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import Store
from fedbandit.server_messages import FromServer
from fedbandit.state import KINDS, State, require_like, restoring, unpack, unpack_entry

MADE, TOOK, SENDING = 4, 5, 7
"""Entries that every node has: what it made, with the chain before it; a message it took; what may be sent."""
CHAIN = 16
LOST = "The coordinator has lost uploads that it had acknowledged, and they cannot be stated again"
RESTORE = "restore a newer backup of its store"


class Speaker(Protocol):
    """The machine of a node: it numbers what it says, and keeps it until it is acknowledged."""

    member: int
    sequence: int

    @property
    def outbox(self) -> Mapping[int, Message]:
        """What has not been acknowledged, by number."""
        ...

    def join(self) -> list[Message]:
        """The message to begin a connection with, if anything is ever exchanged."""
        ...

    def receive(self, message: Message) -> list[Message]:
        """Take a message, and say what to send."""
        ...

    def capture(self) -> Callable[[], State]:
        """The state as it is now."""
        ...


Machine = TypeVar("Machine", bound=Speaker)


class DurableNode(ABC, Generic[Machine]):
    """A node of a federation that goes on where its store left off. `entropy` draws 64-bit numbers.

    `federation` is the name that its state belongs to: another is refused, and "" (not said) takes any. None is for a
    relay, whose store has the federation's journal by that name.
    """

    kind: ClassVar[str]
    """Of its state (`fedbandit.state`)."""

    def __init__(
        self,
        store: Store,
        agreement: Agreement,
        machine: Machine,
        entropy: Callable[[], int],
        federation: str | None = None,
    ) -> None:
        self.store, self.federation = store, federation
        self._written = federation  # the name in the store: none in an old file until the coordinator has answered
        self._agree(agreement)
        self.lock = threading.Lock()
        """Held while the machine is touched, never while the store is written."""
        self.machine = machine
        self.incarnation = 0
        self.epoch = 0
        self.chain = 0
        self.asking: Request | FromServer | None = None
        """A request that has to be sent."""
        self._made: dict[int, tuple[int, bytes]] = {}  # unacknowledged upload → the chain before it, its bytes
        self.journal = NodeJournal(store, self.kind, self.lock, self._capture)
        self._safe = 0  # uploads up to this number are in the store and survive a power cut: these may be sent
        self.trouble: str | None = None
        """What a person has to do about the coordinator's history, as long as it is so."""
        self._applied = 0  # uploads that the coordinator has, as far as it said so since the last greeting
        self._complete = True  # the last greeting was sent with an empty outbox
        self._recover()
        if self.incarnation == 0:
            self.incarnation = entropy() | 1  # zero stands for none
        self.epoch += 1
        self.nonce = entropy()
        self.number_choices_from(entropy() >> 1)  # of 62 random bits: no other node or opening has them
        self.journal.replace(durable=True)
        self._safe = self.machine.sequence

    # What a subclass says

    @abstractmethod
    def number_choices_from(self, number: int) -> None:
        """The next choice gets the number after this one."""

    @abstractmethod
    def renew(self, agreement: Agreement, member: int) -> None:
        """The federation's terms have changed: go on under the new ones, if nothing means something else by that."""

    @abstractmethod
    def receive(self, message: Message) -> None:
        """Take a message from the coordinator. What it changes may be lost: the coordinator sends it again."""

    @abstractmethod
    def record(self, message: Upload | FromServer, data: bytes) -> None:
        """Note in the journal that this was made."""

    @abstractmethod
    def replay(self, entry: bytes) -> None:
        """Do again what is on record."""

    @abstractmethod
    def kept(self) -> State:
        """What the state has beside that of the machine and of the session."""

    @abstractmethod
    def take_back(self, state: State) -> None:
        """Go on from a state: `kept`, and that of the machine."""

    # What the network asks

    def greeting(self) -> bytes | None:
        """The frame to begin a connection with; None if nothing is ever exchanged."""
        messages = self.machine.join()
        self._complete, self._applied = not self.machine.outbox, 0
        return self._seal(self.chain, encode(messages[0])) if messages else None

    def recall(self, message: Recall) -> None:
        """The coordinator has so many uploads; nobody states anew what it has lost (but see `RestatingNode`)."""
        self._applied = min(message.sequence, self.machine.sequence)
        self.trouble = f"{LOST}; {RESTORE}." if self.has_lost(message.sequence) else None

    def has_lost(self, sequence: int) -> bool:
        """Whether the coordinator has lost uploads that it had acknowledged, if it has these."""
        return sequence < min(self.machine.outbox, default=self.machine.sequence + 1) - 1

    def note_receipt(self, message: Receipt) -> None:
        """The coordinator has uploads up to a number."""
        if not self.has_lost(message.sequence):
            self.trouble = None

    def note_refusal(self, sentence: str) -> None:
        """The coordinator has refused what was sent last, and a person has to do something about it."""

    def hear_time(self, seconds: float) -> None:
        """It is this time at the coordinator, and not later here; for nodes that go by rounds of time."""

    def greet_again(self) -> bytes | None:
        """The frame to ask for what was missed, now that nothing is open."""
        return self.greeting()

    def outgoing(self, most: int = 1) -> list[Frame]:
        """The first frames that have to be sent, in this order, until they are acknowledged.

        Of uploads that the coordinator has but for their receipts, only the last is sent again: a coordinator that was
        told a sum (`Restate`) does not know those before it one by one.
        """
        if self.machine.outbox:
            numbers = [n for n in sorted(self.machine.outbox) if n >= self._applied][:most]
            if numbers[0] > self._safe:
                self._make_safe()
            return [Frame(self._seal(*self._made[n]), n) for n in numbers if n <= self._safe]
        if not self._complete:
            greeting = self.greet_again()
            return [] if greeting is None else [Frame(greeting, 0)]
        request, self.asking = self.asking, None  # one that gets lost is made again when the trigger fires again
        return [] if request is None else [Frame(self._seal(self.chain, encode(request)), None)]

    def flush(self) -> None:
        """Write what waits in memory."""
        self.journal.write()

    # How it is kept

    def _agree(self, agreement: Agreement) -> None:
        self.agreement = agreement
        self._agreed = agreement.as_json()
        self.terms = agreement.digest
        """The digest of what was agreed on."""

    def state(self) -> State:
        """All that has to survive."""
        return self._capture()()

    def _capture(self) -> Callable[[], State]:
        finish_machine, made, more = self.machine.capture(), dict(self._made), self.kept()
        mine: dict[str, Any] = {} if self._written is None else {"federation": self._written}
        mine |= {
            "agreement": self._agreed,
            "member": self.machine.member,
            "incarnation": self.incarnation,
            "epoch": self.epoch,
            "chain": self.chain,
            "chains": [[n, chain] for n, (chain, _) in made.items()],
        }

        def finish() -> State:
            header, arrays = finish_machine()
            sent: dict[str, NDArray[Any]] = {
                f"upload.{n}": np.frombuffer(data, dtype=np.uint8) for n, (_, data) in made.items()
            }
            return State({**mine, **more.header, "machine": header}, {**arrays, **sent, **more.arrays})

        return finish

    def _recover(self) -> None:
        snapshot, entries = self.store.read(self.kind)
        if snapshot is None:
            return
        header, arrays = unpack(self.kind, snapshot, self.store.where)
        with restoring(self.kind, self.store.where):
            require_like(State(header, {}), State(self.state().header | {"agreement": {}, "machine": {}}, {}))
            self._require_same(header.get("federation"))
            if Agreement.of_json(header["agreement"]).as_json() != self._agreed:
                raise FedbanditError(
                    f"{KINDS[self.kind].name} in {self.store.where} belongs to a federation with another agreement; "
                    "every federation needs a file of its own."
                )
            made = {n: (chain, arrays[f"upload.{n}"].tobytes()) for n, chain in header["chains"]}
            self.take_back(State(header, arrays))
            self._made = made
        self.incarnation, self.epoch, self.chain = header["incarnation"], header["epoch"], header["chain"]
        for entry in entries:
            self.replay(unpack_entry(self.kind, entry, self.store.where))

    def _require_same(self, federation: str | None) -> None:
        """Refuse a state of another federation, which would be sent what is not meant for it; "" is of an old file."""
        if federation and self.federation and federation != self.federation:
            raise FedbanditError(
                f"{KINDS[self.kind].name} in {self.store.where} belongs to the federation {federation!r}, not to "
                f"{self.federation!r}: name that one, or give a file of its own for this one. Keep the old file, which "
                "has a privacy ledger and what was not sent yet."
            )
        self.federation = self.federation or federation
        self._written = federation

    def note_heard(self) -> None:
        """The coordinator has answered: an old file is of the federation that was named, and says so from now on."""
        if self._written != self.federation:
            with self.lock:
                self._written = self.federation
                self.journal.defer()
            self.journal.write(durable=True)

    def note(self, messages: list[Message]) -> None:
        """Take messages of the machine that have to be sent: one that is numbered extends the chain."""
        for message in messages:
            if isinstance(message, Upload) or (isinstance(message, FromServer) and message.sequence > 0):
                data = encode(message)
                self.record(message, data)
                self.note_made(message, data)
                self.asking = None
            elif isinstance(message, Request | FromServer):
                self.asking = message
        self.forget_acknowledged()

    def made_entry(self, data: bytes) -> bytes:
        """The entry that this was made."""
        return bytes([MADE]) + self.chain.to_bytes(CHAIN, "little") + data

    def note_made(self, message: Upload | FromServer, data: bytes) -> None:
        """A numbered message is made: it extends the chain."""
        self._made[message.sequence] = self.chain, data
        self.chain = extend(self.chain, data)

    def forget_acknowledged(self) -> None:
        """What the machine need not send any more is kept no longer."""
        if len(self._made) > len(self.machine.outbox):
            self._made = {n: made for n, made in self._made.items() if n in self.machine.outbox}

    def _make_safe(self) -> None:
        """Write all there is, such that it survives a power cut."""
        with self.lock:
            sequence = self.machine.sequence
            self.journal.add(struct.pack("<BQ", SENDING, sequence))
        self.journal.write(durable=True)
        self._safe = sequence

    def _seal(self, chain: int, message: bytes) -> bytes:
        return seal(
            Envelope(self.incarnation, self.epoch, self.nonce, self.machine.sequence, chain, self.terms), message
        )
