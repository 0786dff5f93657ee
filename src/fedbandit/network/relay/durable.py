"""A relay as the coordinator above knows it: the member, its session, and a journal.

Theory of operation
-------------------
That of every node (`client.node`), beside the journal of the federation below (`federation`), in the same store. An
upload is made of what is in the store below; it is in this journal before the federation below notes that it went up,
and before anything else is accepted there. So after a crash between the two it is known which of them lacks what.

What comes down goes into the journal below first: if it is lost here, nothing is lost.

| entry      | bytes after its kind (u8)                                                               |
|------------|-----------------------------------------------------------------------------------------|
| 4 made     | the chain before (16 bytes), the call that it answers (u64), the upload as it is sent   |
| 5 took     | the message as it came                                                                  |
| 7 sending  | number (u64) of the last upload that may be sent                                        |
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from fedbandit.errors import FedbanditError
from fedbandit.machines.relay_member import RelayMember
from fedbandit.messages import Collect, Download, Message, Recall, Receipt, Restate, Threshold, Upload, decode, encode
from fedbandit.network.client.node import CHAIN, MADE, TOOK
from fedbandit.network.client.restating import RestatingNode
from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import Store
from fedbandit.server_messages import FromServer
from fedbandit.state import State
from fedbandit.sums import Relayed, in_blocks

if TYPE_CHECKING:
    from fedbandit.network.relay.federation import RelayFederation

KIND = "relay"
_EPOCH = struct.Struct("<Q")


class DurableRelay(RestatingNode[RelayMember]):
    """One member above, that goes on where its store left off."""

    kind: ClassVar[str] = KIND

    def __init__(
        self,
        store: Store,
        agreement: Agreement,
        member: int,
        entropy: Callable[[], int],
        federation: RelayFederation,
        *,
        at_once: bool = False,
    ) -> None:
        self._federation = federation
        machine = RelayMember(member, agreement.build(), lambda: federation.relaying, at_once=at_once)
        super().__init__(store, agreement, machine, entropy)

    def number_choices_from(self, number: int) -> None:
        """A relay makes no choices."""

    def renew(self, agreement: Agreement, member: int) -> None:
        """The federation's terms have changed: so do those below, if nothing means something else by that."""
        if member != self.machine.member:
            raise FedbanditError(f"The coordinator takes this relay for member {member}, not {self.machine.member}.")
        self._federation.require_sound_change(agreement)
        old, federation = self.machine, self._federation
        machine = RelayMember(member, agreement.build(), lambda: federation.relaying, at_once=old.at_once)
        with self.lock:
            fresh = machine.threshold
            machine.restore(old.capture()())
            machine.threshold = fresh
            self.machine = machine
            self._agree(agreement)
            self.journal.defer()
        self.journal.replace(durable=True)
        self._federation.renew(agreement)  # after a crash before this, those below follow what is here

    def receive(self, message: Message) -> None:
        """Take a message from above. What it changes may be lost: the coordinator sends it again."""
        if isinstance(message, Recall):
            self.recall(message)
            return
        if isinstance(message, Receipt):
            self.note_receipt(message)
        if isinstance(message, Collect):
            self._federation.take_call(message.epoch)
            return
        taken = isinstance(message, Download) and self._federation.take_download(message)
        with self.lock:
            before = len(self.machine.outbox)
            self.machine.receive(message)
            if isinstance(message, Download) and taken:
                self.machine.contained(message.acknowledged)
            changed = taken or before != len(self.machine.outbox) or isinstance(message, Threshold)
            if changed:
                self.journal.add(bytes([TOOK]) + encode(message))
            self.forget_acknowledged()
        if changed:
            self.journal.write()
        self._federation.look()

    def make_safe(self) -> None:
        """Write all uploads there are, such that they survive a power cut."""
        if self.machine.sequence > self._safe:
            self._make_safe()

    def statement(self) -> Restate | None:
        """What all uploads amount to."""
        machine = self.machine
        sums, noise = in_blocks(machine.sent) if machine.form.actions else machine.sent, machine.told
        relayed = Relayed(noise[machine.sequence], machine.releases) if machine.sequence in noise else None
        said = machine.member, machine.sequence, machine.releases, sums, machine.known(), machine.form.actions, None
        return Restate(*said, relayed)

    # How it is kept

    def record(self, message: Upload | FromServer, data: bytes) -> None:  # noqa: ARG002
        """An entry: the upload follows from what is below, but only at the time when it was made."""
        head = bytes([MADE]) + self.chain.to_bytes(CHAIN, "little") + _EPOCH.pack(self.machine.epoch)
        self.journal.add(head + data)

    def kept(self) -> State:
        """Which federation it is a relay of."""
        return State({"federation": self._federation.name}, {})

    def take_back(self, state: State) -> None:
        """Go on from there."""
        name = state.header["federation"]
        if name != self._federation.name:
            raise FedbanditError(
                f"The state in {self.store.where} is that of a relay of federation {name!r}, not of "
                f"{self._federation.name!r}; every relay needs a file of its own."
            )
        self.machine.restore(State(state.header["machine"], state.arrays))

    def replay(self, entry: bytes) -> None:
        """Do again what is on record."""
        if entry[0] == MADE:
            (epoch,) = _EPOCH.unpack_from(entry, 1 + CHAIN)
            data = entry[1 + CHAIN + _EPOCH.size :]
            upload = decode(data)
            assert isinstance(upload, Upload)
            self.machine.repeat(upload, epoch)
            self.chain = int.from_bytes(entry[1 : 1 + CHAIN], "little")
            self.note_made(upload, data)
        elif entry[0] == TOOK:
            message = decode(entry[1:])
            self.machine.receive(message)
            if isinstance(message, Download) and message.version == self.machine.version:
                self.machine.contained(message.acknowledged)
            self.forget_acknowledged()
