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

import traceback
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

from fedbandit.errors import FedbanditError, whole_number
from fedbandit.machines.sums.server import OpenedSum
from fedbandit.messages import Join, Message, Receipt, Request, Restate, Upload, decode
from fedbandit.network.coordinator import journal as kinds
from fedbandit.network.coordinator.checked import LARGEST, Read
from fedbandit.network.coordinator.inside import uploads_in
from fedbandit.network.coordinator.journal import Entry, numbers
from fedbandit.network.coordinator.operated import OperatedFederation
from fedbandit.network.coordinator.recorded import COPIED, FAULT, Event
from fedbandit.network.coordinator.register import MemberRecord
from fedbandit.network.coordinator.rules import Rules
from fedbandit.network.envelope import Envelope, unseal
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import Store, StoreError
from fedbandit.network.sums import numbers_of
from fedbandit.server_messages import FromServer

ROUNDS_TO_ANSWER = 30
"""How many rounds an answer is awaited unless configured otherwise."""


class Refused(NamedTuple):
    """A refusal, for the log and the page. Only the client is told the sentence: it may quote its data."""

    at: float
    name: str
    kind: str


class FrameFault(Exception):
    """A frame has led to an error that nobody expected."""

    def __init__(self, index: int, error: Exception) -> None:
        super().__init__(index)
        self.index, self.error = index, error


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
        super().__init__(name, agreement, store, snapshot_every, Rules() if rules is None else rules)

    # What the network asks

    def receive(self, frames: Sequence[tuple[str, bytes]], at: float) -> list[list[Message] | Refusal]:
        """Take frames with the names of their senders; the answers to each, or why it was refused.

        All are written in one transaction.
        """
        outcomes: list[list[Message] | Refusal] = []
        try:
            with self.answering():
                outcomes, entries = self._take_sound(frames, at)
                self.write(entries)
        except Refusal as refusal:  # of all that were not refused for something else before
            return [one if isinstance(one, Refusal) else refusal for one in outcomes or [refusal] * len(frames)]
        return outcomes

    def _take_sound(
        self, frames: Sequence[tuple[str, bytes]], at: float
    ) -> tuple[list[list[Message] | Refusal], list[Entry]]:
        """Take frames; one that leads to a fault is as if it had not come, and what came with it is taken again.

        What its sender has sent after it is refused, too: otherwise one client could have all that is stored read
        again for each of its frames.
        """
        read = self._read(frames)
        while True:
            before = [(said, len(said)) for said in (self.events, self.gone, self.unsent)]
            try:
                outcomes, entries = self._take_all(frames, read, at)
                break
            except FrameFault as fault:
                for said, known in before:
                    del said[known:]
                self._catch_up_with_store()
                sender = frames[fault.index][0]
                refusal = self._unexpected(sender, fault.error)
                for k in range(fault.index, len(frames)):
                    if frames[k][0] == sender and isinstance(read[k], Read):
                        read[k] = refusal
        for (name, _), outcome in zip(frames, outcomes, strict=True):
            if isinstance(outcome, Refusal):
                self.note_refusal(name, outcome, at)
        return outcomes, entries

    def open_sum(self, opened: OpenedSum, at: float) -> list[Message]:
        """A secure sum has been opened: it is in the store before anybody is told."""
        with self.answering():
            answers = self.take_sum(opened, at)
            self.write([Entry(kinds.SUM, at, "", numbers(*numbers_of(opened)))])
            return answers

    def give_up_sum(self, reason: str, at: float) -> list[Message]:
        """A secure sum will never be opened: whoever was called waits for the next one."""
        with self.answering():
            self.failed_at = at
            awaited = self.machine.awaits()
            answers = self._go_on(self.machine.excuse(awaited), at)
            self.write([Entry(kinds.GIVEN_UP, at, "", numbers(*awaited))])
            if self.machine.pool is not None:
                self.machine.pool.unopened = reason
            self.events.append(Event("a sum was not opened", {"reason": reason}))
            return answers

    def tick(self, at: float) -> list[Message]:
        """The time of a round has passed; what is to be sent now. A client that is offline asks when it is back."""
        with self.answering():
            return self._tick(at)

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

    def _take_all(
        self, frames: Sequence[tuple[str, bytes]], read: Sequence[Read | Refusal], at: float
    ) -> tuple[list[list[Message] | Refusal], list[Entry]]:
        """Take frames that were read: the answers to each, or why it was refused, and what is to be written."""
        outcomes, entries = list[list[Message] | Refusal](), list[Entry]()
        self._counted = None
        for index, ((name, frame), one) in enumerate(zip(frames, read, strict=True)):
            if isinstance(one, Refusal):
                outcomes.append(one)
                continue
            try:
                answers, changed = self._take(name, one, at, entries)
            except Refusal as refusal:
                outcomes.append(refusal)
                continue
            except BaseException as error:
                self.journal.behind = True  # memory has what the store has not
                if isinstance(error, StoreError) or not isinstance(error, Exception):
                    raise
                raise FrameFault(index, error) from error
            if changed:
                entries.append(Entry(kinds.FRAME, at, name, frame))
            outcomes.append(answers)
        return outcomes, entries

    def _unexpected(self, name: str, error: Exception) -> Refusal:
        """What a client is told whose message is beyond this program; an operator is told where that was."""
        last = traceback.extract_tb(error.__traceback__)[-1:]
        where = "".join(f"{PurePath(frame.filename).name}:{frame.lineno}" for frame in last)
        self.events.append(Event(FAULT, {"client": name, "fault": type(error).__name__, "where": where}))
        return Refusal("unavailable", "The coordinator has a fault, and cannot take this message; it has been logged.")

    def _read(self, frames: Sequence[tuple[str, bytes]]) -> list[Read | Refusal]:
        """Decode frames, and look at all their statistics together: one factorisation of many matrices."""
        read = [self._decode(name, frame) for name, frame in frames]
        inside = [uploads_in(one.message) if isinstance(one, Read) else [] for one in read]
        try:
            faults = iter(self.limits.faults([upload for uploads in inside for upload in uploads]))
            found = [[next(faults) for _ in uploads] for uploads in inside]
        except Exception:  # of one of them, which has to be found
            found = [[] for _ in read]
            for k, uploads in enumerate(inside):
                try:
                    found[k] = self.limits.faults(uploads)
                except Exception as error:
                    read[k] = self._unexpected(frames[k][0], error)
        for k, one in enumerate(read):
            if isinstance(one, Read):
                read[k] = one._replace(fault=next((fault for fault in found[k] if fault is not None), None))
        return read

    def _decode(self, name: str, frame: bytes) -> Read | Refusal:
        if len(frame) > self.most_bytes:
            return Refusal("size", f"The frame has {len(frame)} bytes, but {self.most_bytes} are the most.")
        try:
            envelope, data = unseal(frame)
            read = Read(envelope, data, decode(data))
        except FedbanditError as error:
            return Refusal("malformed", str(error))
        except Exception as error:
            return self._unexpected(name, error)
        # 0 stands for a member that has never joined (`register.py`)
        return read if envelope.incarnation else Refusal("malformed", "The incarnation is 0, which no state has.")

    def _take(self, name: str, read: Read, at: float, entries: list[Entry]) -> tuple[list[Message], bool]:
        envelope, data, message, _ = read
        record = self._record(name, envelope, message, at, entries)
        if record.quarantined:
            raise Refusal("quarantined", f"Client {name!r} is in quarantine: {record.quarantined}")
        if message.member != record.member:
            wrong = f"is member {record.member} and cannot speak for member {message.member}; its state is another's."
            raise Refusal("identity", f"Client {name!r} {wrong}")
        self.check_terms(name, envelope, message)
        if isinstance(message, Join):
            self.check_lost(name, message, at, entries)
        applied = self.machine.applied.get(record.member, 0)
        try:
            self.check(record, read, applied, at)
        except Refusal as refusal:
            if refusal.kind == "session" and isinstance(message, Upload) and message.sums.n > 0:
                self._note_copy(record, envelope, at, entries)
            raise
        if isinstance(message, Upload | Restate | FromServer) and 0 < message.sequence <= applied:
            if message.sequence == applied and not record.verified:
                record.verified = True
                entries.append(Entry(kinds.VERIFIED, at, name))
            record.last_heard = at
            return [Receipt(record.member, message.sequence)], False  # and no more: later ones are unknown here
        if isinstance(message, Request) and not self.hears(record, at):
            record.last_heard = at
            return [Receipt(record.member, 0)], False
        if isinstance(message, Upload | Restate):
            self.compare(record, message, at, entries)
        session = record.session
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
        return answers, moved or session != record.session

    def _note_copy(self, record: MemberRecord, envelope: Envelope, at: float, entries: list[Entry]) -> None:
        """A release was refused, and seen: where noise hides records, they have been released once more."""
        if self.private and self.system.privacy.site == "client" and record.note_copy(envelope.nonce, at):
            entries.append(Entry(kinds.COPY, at, record.name, numbers(envelope.nonce)))
            self.events.append(Event(COPIED, {"client": record.name}))

    def _record(self, name: str, envelope: Envelope, message: Message, at: float, entries: list[Entry]) -> MemberRecord:
        """The record of a client; one that was a member before this store was restored becomes that member again."""
        known = name in self.register.by_name
        if known or not isinstance(message, Join) or envelope.sequence == 0 or message.member >= LARGEST:
            return self.register.record(name)
        self.check_terms(name, envelope, message)
        record = self.register.readmit(name, message.member, at, envelope)
        entries.append(Entry(kinds.READMISSION, at, name, numbers(message.member)))
        self.events.append(Event("a client has its old number again", {"client": name}))
        return record
