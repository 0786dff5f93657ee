"""The federation below a relay: that of every coordinator, and what joins it to the one above.

Theory of operation
-------------------
The federation has the name and the terms of the one above. Its journal has, beside clients' frames, what came down
(OTHERS), calls from above (CALLED), and that all there was went up (FORWARDED, with the number of the upload), so that
it recovers like any other.

An upload is made in three steps, with nothing in between: the member above numbers what is pending; that is written,
to survive a power cut; FORWARDED is written here. Whoever crashes after the second finds an upload that the federation
below does not know of, and notes it before it accepts anything (`settle`). So an observation is pending or in one
upload, never both and never neither.

Nothing here knows a network or a clock. Its methods may be called from several threads: one lock guards both sides.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

from fedbandit.errors import require
from fedbandit.machines.relay import Relaying, relay_coordinator, require_relayable
from fedbandit.messages import Download, Message, decode, encode
from fedbandit.network.coordinator import journal as kinds
from fedbandit.network.coordinator.federation import ROUNDS_TO_ANSWER, Federation
from fedbandit.network.coordinator.journal import Entry, numbers
from fedbandit.network.coordinator.recorded import FAILS, Event
from fedbandit.network.coordinator.register import MemberRecord
from fedbandit.network.coordinator.rules import Rules
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.network.relay.durable import DurableRelay
from fedbandit.network.stores import Store, StoreError
from fedbandit.state import StateError

_VARIANCE = struct.Struct("<d")
RULES = Rules(retract=False)
"""What has gone up cannot be taken back, so no member's sums are kept."""


class RelayFederation(Federation):
    """A federation below, and the member above (`node`), that go on where their store left off.

    `entropy` draws 64-bit numbers; `clock` gives the time, for what comes from above; `deliver` takes messages to
    clients that are no answers to theirs, and `wake` is called when there may be something to send up.
    """

    machine: Relaying

    def __init__(
        self,
        name: str,
        agreement: Agreement,
        store: Store,
        member: int,
        entropy: Callable[[], int],
        *,
        at_once: bool = False,
        patience: int = ROUNDS_TO_ANSWER,
        snapshot_every: int = 2000,
        clock: Callable[[], float] = lambda: 0.0,
        rules: Rules = RULES,
    ) -> None:
        self.lock = threading.RLock()
        self.clock = clock
        self.deliver: Callable[[list[Message]], None] = lambda messages: None  # noqa: ARG005 - clients ask when back
        self.wake: Callable[[], None] = lambda: None
        self.given_up: Callable[[], str] = str  # why the coordinator above takes nothing of this state any more
        self.about: Callable[[], dict[str, Any]] = dict  # the connection to the coordinator above
        super().__init__(name, agreement, store, patience, snapshot_every, rules)
        self.node = DurableRelay(store, agreement, member, entropy, self, at_once=at_once)
        self.settle()
        self.look()

    @property
    def relaying(self) -> Relaying:
        """The machine, as it is now: after a write has failed it is another."""
        return self.machine

    def _machine(self) -> Relaying:
        return relay_coordinator(self.system, self.agreement.world)

    # What the network below asks

    def receive(self, frames: Sequence[tuple[str, bytes]], at: float) -> list[list[Message] | Refusal]:
        """Take frames of clients; then look whether something is to go up."""
        with self.lock:
            if self.given_up():  # what would be accepted could never go up: let clients keep it
                raise Refusal("unavailable", "The coordinator above has given this relay up; try again later.")
            self._settle_or_refuse()
            outcomes = super().receive(frames, at)
            self.look()
            return outcomes

    def tick(self, at: float) -> list[Message]:
        """The time of a round has passed: who does not answer a call is not awaited for ever."""
        with self.lock:
            self._settle_or_refuse()
            answers = super().tick(at)
            self.look()
            return answers

    def invite(self, name: str, at: float) -> MemberRecord:
        """The record of a client."""
        with self.lock:
            return super().invite(name, at)

    def decline(self, name: str, at: float) -> tuple[bool, list[Message]]:
        """A client that was invited does not take part."""
        with self.lock:
            return super().decline(name, at)

    def quarantine(self, name: str, reason: str, at: float, by: str = "") -> list[Message]:
        """Refuse what a client sends from now on; what it has sent stays."""
        with self.lock:
            return super().quarantine(name, reason, at, by)

    def free(self, name: str, at: float, by: str = "") -> list[Message]:
        """Take a client's place from it."""
        with self.lock:
            return super().free(name, at, by)

    def erase(self, name: str, at: float, by: str = "") -> tuple[list[Message], dict[str, Any]]:  # noqa: ARG002
        """Refused: what has gone up is in a sum, of which nobody's part is known there."""
        raise Refusal("identity", f"{name!r} cannot be erased at a relay: what it has sent is in sums that went up.")

    # What the coordinator above says

    def take_download(self, message: Download) -> bool:
        """Put what a download has of others in their place; in the store when this returns. False if it is old."""
        with self.lock:
            self._catch_up_with_store()
            found = self.node.machine.others_in(message)
            if found is None:
                return False
            kept = Download(self.machine.places, found.version, 0, found.others, actions=self.machine.form.actions)
            entry = Entry(kinds.OTHERS, self.clock(), "", _VARIANCE.pack(found.variance) + encode(kept))
            self._write_above(entry)
            return True

    def take_call(self, epoch: int) -> None:
        """The coordinator above wants what there is."""
        with self.lock:
            self._catch_up_with_store()
            if epoch > self.machine.called:
                self._write_above(Entry(kinds.CALLED, self.clock(), "", numbers(epoch)))
                self.look()

    def _write_above(self, entry: Entry) -> None:
        answers = self._from_above(entry)
        try:
            self.write([entry])
        except BaseException:
            self.journal.behind = True  # memory has what the store has not
            raise
        self.deliver(answers)

    def _from_above(self, entry: Entry) -> list[Message]:
        if entry.kind == kinds.CALLED:
            return self._go_on(self.machine.call(entry.numbers()[0]), entry.at)
        if entry.kind == kinds.FORWARDED:
            self.machine.forward(entry.numbers()[0])
            return []
        (variance,) = _VARIANCE.unpack_from(entry.rest)
        download = decode(entry.rest[_VARIANCE.size :])
        assert isinstance(download, Download)
        return self._go_on(self.machine.take_others(download.version, download.sums, variance), entry.at)

    def _replay(self, entry: Entry) -> None:
        if entry.kind in (kinds.OTHERS, kinds.CALLED, kinds.FORWARDED):
            self._from_above(entry)
        else:
            super()._replay(entry)

    # What goes up

    def look(self, *, now: bool = False) -> None:
        """Make an upload, or a request, if it is time; with `now`, of whatever there is."""
        with self.lock:
            if self.journal.behind or self.node.machine.sequence != self.machine.forwarded:
                return  # the next message below catches up first
            with self.node.lock:
                messages = self.node.machine.speak(now=now)
                self.node.note(messages)
            try:
                self.settle()
            except StoreError as error:  # it stays as it is; nothing is accepted before it is settled
                self.events.append(Event(FAILS, {"reason": str(error)}))
            if messages:
                self.wake()

    def settle(self) -> None:
        """Note below what has gone up, if that is not known there."""
        made, noted = self.node.machine.sequence, self.machine.forwarded
        if made == noted:
            return
        if made != noted + 1:
            raise StateError(
                f"The relay's state in {self.store.where} does not fit: {made} uploads were made, {noted} are noted."
            )
        self.node.make_safe()
        entry = Entry(kinds.FORWARDED, self.clock(), "", numbers(made))
        self._from_above(entry)
        self.write([entry])

    def _settle_or_refuse(self) -> None:
        self._catch_up_with_store()
        try:
            self.settle()
        except StoreError as error:
            self.journal.behind = True
            raise self._unavailable(error) from None

    def upstream(self) -> dict[str, Any]:
        """For the page and for metrics: what went up, what waits, what came down, and the connection."""
        member, machine = self.node.machine, self.relaying
        counts = {"pending": machine.pending.n, "forwards": member.sequence, "waiting": len(member.outbox)}
        return {"member": member.member, **counts, "others": machine.others.n, **self.about()}

    def require_sound_change(self, agreement: Agreement) -> None:
        """Refuse other terms under which what is below would mean something else, or not fit."""
        taken, places = len(self.register.by_number), agreement.world.n_clients
        require(places >= taken, "clients", places, f"at least {taken}, the number of this relay's clients")
        super().require_sound_change(agreement)
        require_relayable(agreement.build())

    def renew(self, agreement: Agreement) -> None:
        """Other terms, as those above are now."""
        with self.lock:
            self._settle_or_refuse()
            self.agreement = agreement
            self.recover()
