"""One federation: the coordinator's machine, the register of members, and the journal of what was accepted.

Theory of operation
-------------------
`receive` checks a frame (who sends it, whether that session is the current one and under the terms of today, whether
the statistics are possible and no more than a member may contribute), and hands the message to the coordinator's
machine. What changed anything becomes an entry of the journal; `receive` returns the answers only when the entries are
in the store. After a crash the last snapshot is restored and the entries are applied again in the same order: machines
are deterministic, so everything is as it was. What is refused has changed nothing. Time is an argument.

Rounds. What a coordinator does between rounds (form groups, serve a queue) it does when `tick` tells it that the time
of a round has passed. `tick` counts calls and reads no clock: clocks that jump change nothing, and while the
coordinator is down no round passes. A round does not end while answers to a call are awaited, and none passes while no
member is present. A member that has never joined, is in quarantine, or has let `patience` ticks pass without an answer
is *absent*: it is not awaited until it sends something; what it owes is taken then.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fedbandit.errors import FedbanditError, whole_number
from fedbandit.machines.sums.server import OpenedSum
from fedbandit.messages import Join, Message, Receipt, Request, Restate, Upload, decode
from fedbandit.network.coordinator import journal as kinds
from fedbandit.network.coordinator.journal import Entry, numbers
from fedbandit.network.coordinator.operated import OperatedFederation
from fedbandit.network.coordinator.recorded import Event, uploads_in
from fedbandit.network.coordinator.register import MemberRecord
from fedbandit.network.coordinator.rules import Rules
from fedbandit.network.envelope import UNSAID, Envelope, unseal
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import Store, StoreError
from fedbandit.network.sums import numbers_of
from fedbandit.server_messages import FromServer

ROUNDS_TO_ANSWER = 30
"""How many rounds an answer is awaited unless configured otherwise."""

LARGEST = 2**53
"""Versions and calls that a client may say it has seen."""


class Refused(NamedTuple):
    """A refusal, for the log and the page. Only the client is told the sentence: it may quote its data."""

    at: float
    name: str
    kind: str


class Read(NamedTuple):
    """A frame that could be decoded, and why no observations can have led to its statistics, if so."""

    envelope: Envelope
    data: bytes
    message: Message
    fault: Refusal | None = None


class Federation(OperatedFederation):
    """A federation that goes on where its store left off."""

    def __init__(
        self,
        name: str,
        agreement: Agreement,
        store: Store,
        patience: int = ROUNDS_TO_ANSWER,
        snapshot_every: int = 2000,
        rules: Rules | None = None,
    ) -> None:
        self.patience = whole_number("patience", patience)
        self.refused: deque[Refused] = deque(maxlen=50)
        self.refusals: Counter[str] = Counter()
        self._counted: int | None = None  # everybody's observations, while uploads are all that comes
        super().__init__(name, agreement, store, snapshot_every, Rules() if rules is None else rules)

    # What the network asks

    def receive(self, frames: Sequence[tuple[str, bytes]], at: float) -> list[list[Message] | Refusal]:
        """Take frames with the names of their senders; the answers to each, or why it was refused.

        All are written in one transaction.
        """
        outcomes: list[list[Message] | Refusal] = []
        entries: list[Entry] = []
        self._counted = None
        try:
            with self.whole():
                for (name, frame), read in zip(frames, self._read(frame for _, frame in frames), strict=True):
                    try:
                        answers, changed = self._take(name, read, at, entries)
                    except Refusal as refusal:
                        self.note_refusal(name, refusal, at)
                        outcomes.append(refusal)
                        continue
                    if changed:
                        entries.append(Entry(kinds.FRAME, at, name, frame))
                    outcomes.append(answers)
                self.write(entries)
        except StoreError as error:
            unavailable = self._unavailable(error)
            return [outcome if isinstance(outcome, Refusal) else unavailable for outcome in outcomes]
        return outcomes

    def open_sum(self, opened: OpenedSum, at: float) -> list[Message]:
        """A secure sum has been opened: it is in the store before anybody is told."""
        try:
            with self.whole():
                answers = self.take_sum(opened, at)
                self.write([Entry(kinds.SUM, at, "", numbers(*numbers_of(opened)))])
                return answers
        except StoreError as error:
            raise self._unavailable(error) from None

    def give_up_sum(self, reason: str, at: float) -> list[Message]:
        """A secure sum will never be opened: whoever was called waits for the next one."""
        with self.whole():
            awaited = self.machine.awaits()
            answers = self._go_on(self.machine.excuse(awaited), at)
            self.write([Entry(kinds.GIVEN_UP, at, "", numbers(*awaited))])
            if self.machine.pool is not None:
                self.machine.pool.unopened = reason
            self.events.append(Event("a sum was not opened", {"reason": reason}))
            return answers

    def tick(self, at: float) -> list[Message]:
        """The time of a round has passed; what is to be sent now. A client that is offline asks when it is back."""
        try:
            with self.whole():
                return self._tick(at)
        except StoreError as error:
            raise self._unavailable(error) from None

    def _tick(self, at: float) -> list[Message]:
        awaited = self.machine.awaits()
        if awaited:
            epoch = self.machine.epoch
            if epoch != self.waited_in:  # another call than at the last tick
                self.waited_in, self.waited = epoch, 0
            self.waited += 1
            late = self.waited >= self.patience and not self.machine.secure_sums  # `SumDesk` waits for their steps
            gone = [i for i in awaited if late or not self.is_present(i)]
            if not gone:
                return []
            answers = self.mark_absent(gone, at)
            entry = Entry(kinds.ABSENT, at, "", numbers(*gone))
        else:
            self.waited = 0
            if not any(record.is_present for record in self.register.by_number):
                return []
            self.rounds += 1
            if self.machine.next_wake(self.rounds - 1) != self.rounds:
                return []
            answers = self.end_this_round(self.rounds, at)
            self.rounds_kept = self.rounds
            entry = Entry(kinds.TICK, at, "", numbers(self.rounds))
        self.write([entry])
        return answers

    def note_refusal(self, name: str, refusal: Refusal, at: float) -> None:
        """Count a refusal, and remember who and why."""
        self.refusals[refusal.kind] += 1
        self.refused.append(Refused(at, name, refusal.kind))
        if name in self.register.by_name:
            self.register.by_name[name].refusals += 1

    # How it is done

    def _read(self, frames: Iterable[bytes]) -> list[Read | Refusal]:
        """Decode frames, and look at all their statistics together: one factorisation of many matrices."""
        read = [self._decode(frame) for frame in frames]
        inside = [uploads_in(one.message) if isinstance(one, Read) else [] for one in read]
        faults = iter(self.limits.faults([upload for uploads in inside for upload in uploads]))
        for k, uploads in enumerate(inside):
            found = [fault for fault in [next(faults) for _ in uploads] if fault is not None]
            one = read[k]
            if found and isinstance(one, Read):
                read[k] = one._replace(fault=found[0])
        return read

    def _decode(self, frame: bytes) -> Read | Refusal:
        if len(frame) > self.most_bytes:
            return Refusal("size", f"The frame has {len(frame)} bytes, but {self.most_bytes} are the most.")
        try:
            envelope, data = unseal(frame)
            read = Read(envelope, data, decode(data))
        except FedbanditError as error:
            return Refusal("malformed", str(error))
        # 0 stands for a member that has never joined (`register.py`)
        return read if envelope.incarnation else Refusal("malformed", "The incarnation is 0, which no state has.")

    def _take(self, name: str, read: Read | Refusal, at: float, entries: list[Entry]) -> tuple[list[Message], bool]:
        if isinstance(read, Refusal):
            raise read
        envelope, data, message, _ = read
        record = self._record(name, envelope, message, at, entries)
        if record.quarantined:
            raise Refusal("quarantined", f"Client {name!r} is in quarantine: {record.quarantined}")
        if message.member != record.member:
            wrong = f"is member {record.member} and cannot speak for member {message.member}; its state is another's."
            raise Refusal("identity", f"Client {name!r} {wrong}")
        self._check_terms(name, envelope, message)
        applied = self.machine.applied.get(record.member, 0)
        try:
            self._check(record, read, applied, at)
        except Refusal as refusal:
            if refusal.kind == "session" and isinstance(message, Upload) and message.sums.n > 0:
                self._note_copy(record, envelope, at, entries)
            raise
        if isinstance(message, Upload | Restate | FromServer) and 0 < message.sequence <= applied:
            record.verified = record.verified or message.sequence == applied
            record.last_heard = at
            return [Receipt(record.member, message.sequence)], False  # and no more: later ones are unknown here
        if isinstance(message, Upload) and message.sums.n > 0:
            self.compare(record, message.sums, at, entries)
        session = (record.incarnation, record.epoch, record.nonce, record.absent)
        if isinstance(message, Upload) and self._counted is not None and self.comparison is None:
            self._counted += message.sums.n
        else:
            self._counted = None
        try:
            answers, moved = self.apply(record, envelope, message, data, at)
        except Refusal:
            raise
        except FedbanditError as error:
            raise Refusal("malformed" if isinstance(message, Join | Request) else "statistics", str(error)) from None
        return answers, moved or session != (record.incarnation, record.epoch, record.nonce, record.absent)

    def _note_copy(self, record: MemberRecord, envelope: Envelope, at: float, entries: list[Entry]) -> None:
        """A release was refused, and seen: where noise hides records, they have been released once more."""
        if self.private and self.system.privacy.site == "client" and record.note_copy(envelope.nonce, at):
            entries.append(Entry(kinds.COPY, at, record.name, numbers(envelope.nonce)))
            self.events.append(Event("a copy has released a client's records again", {"client": record.name}))

    def _record(self, name: str, envelope: Envelope, message: Message, at: float, entries: list[Entry]) -> MemberRecord:
        """The record of a client; one that was a member before this store was restored becomes that member again."""
        known = name in self.register.by_name
        if known or not isinstance(message, Join) or envelope.sequence == 0 or message.member >= LARGEST:
            return self.register.record(name)
        self._check_terms(name, envelope, message)
        record = self.register.readmit(name, message.member, at, envelope)
        entries.append(Entry(kinds.READMISSION, at, name, numbers(message.member)))
        self.events.append(Event("a client has its old number again", {"client": name}))
        return record

    def _check_terms(self, name: str, envelope: Envelope, message: Message) -> None:
        """Refuse what was made under other terms; in a private federation also what does not say under which."""
        said = envelope.terms
        if said == UNSAID:
            if self.private:
                raise Refusal(
                    "terms", f"Client {name!r} does not say under which terms; a private federation needs that: update."
                )
        elif said != self.digest and (isinstance(message, Join) or said.hex() not in self.terms):
            raise Refusal(
                "terms",
                f"Client {name!r} was invited under other terms ({said.hex()[:8]}) than those of the federation "
                f"({self.digest.hex()[:8]}); it has to ask for an invitation again.",
            )

    def _check(self, record: MemberRecord, read: Read, applied: int, at: float) -> None:
        """Refuse a message of another session, of another history, or with statistics that cannot be."""
        name, (envelope, data, message, fault) = record.name, read
        match message:
            case Join():
                if max(message.version, message.epoch) >= LARGEST:
                    raise Refusal("malformed", f"Client {name!r} says that it has version {message.version}.")
                reborn = record.check_join(envelope, applied, at) or (bool(record.given_up) and not record.joined)
                if reborn and self.system.privacy.contribution:
                    raise Refusal("session", f"Client {name!r} has lost its privacy ledger and may contribute no more.")
                latest = self.last_sum_of(record.member)
                if envelope.incarnation == record.incarnation and message.epoch < latest:
                    raise Refusal(
                        "session",
                        f"Client {name!r} uses an old copy of its state: it has been in sums up to epoch "
                        f"{message.epoch}, but contributed to that of epoch {latest}.",
                    )
            case Request() | FromServer(sequence=0):
                record.check_session(envelope)
            case Upload() | FromServer():
                record.check_session(envelope)
                if message.sequence > applied + 1 and not record.verified:
                    raise Refusal(
                        "session",
                        f"The coordinator has {applied} uploads of client {name!r}, which goes on from "
                        f"{message.sequence}: the coordinator's store is an old one; restore a newer backup of it.",
                    )
                record.check_history(envelope, message, data, applied)
                if message.sequence > applied:
                    self._check_clock(name, message, at)
                    restated = isinstance(message, FromServer) and message.report
                    n = sum(upload.sums.n for upload in uploads_in(message))
                    self._check_sums(record, n, 0 if restated else record.observations, fault, at)
            case Restate():
                record.check_session(envelope)
                if message.sequence != envelope.sequence or message.releases > message.sequence:
                    raise Refusal("order", f"Client {name!r} states {message.sequence} of {envelope.sequence} uploads.")
                self._check_clock(name, message, at)
                contributions = self.machine.contributions
                stays = 0 if contributions is None else contributions.n_lost(record.member)
                self._check_sums(record, message.sums.n, stays, fault, at)
            case _:
                raise Refusal("malformed", f"A coordinator does not take a {type(message).__name__}.")

    def _check_clock(self, name: str, message: Message, at: float) -> None:
        """Refuse statistics of a round that is far from having begun: taking them would forget everybody's."""
        here = self.agreement.round_at(at)
        for upload in uploads_in(message):
            if upload.round is not None and upload.round > here + 1:
                raise Refusal(
                    "statistics",
                    f"Client {name!r} has statistics of round {upload.round}, but it is round {here} here; its clock "
                    "is ahead, and what it has uploaded is taken when that round begins.",
                )

    def _check_sums(self, record: MemberRecord, n: int, own: int, fault: Refusal | None, at: float) -> None:
        """Refuse statistics that cannot be, or are more than a member may contribute that has `own` observations."""
        if fault is not None:
            raise fault
        self.limits.check_horizon(n, self._observations() - record.observations + own)
        counts = self.machine.members.n[self.machine.joined] if self.rules.compares else None
        self.rules.check(record.name, n, self.agreement.world.parameters, own, counts, at - record.enrolled)

    def _observations(self) -> int:
        """Of everybody who is heard; counted once for many uploads."""
        self._counted = self.count_heard() if self._counted is None else self._counted
        return self._counted
