"""One federation: the coordinator's machine, the register of members, and the journal of what was accepted.

Theory of operation
-------------------
`receive` checks a frame (who sends it, whether that session is the current one, whether the statistics are possible),
and hands the message to the coordinator's machine. What changed anything becomes an entry of the journal; `receive`
returns the answers only when the entries are in the store. After a crash the last snapshot is restored and the entries
are applied again in the same order: machines are deterministic, so everything is as it was. What is refused has changed
nothing. Time is an argument.

Rounds. What a coordinator does between rounds (form groups, serve a queue) it does when `tick` tells it that the time
of a round has passed. `tick` counts calls and reads no clock: clocks that jump change nothing, and while the
coordinator is down no round passes. A round does not end while answers to a call are awaited, and none passes while no
member is present. A member that has never joined, is in quarantine, or has let `patience` ticks pass without an answer
is *absent*: it is not awaited until it sends something; what it owes is taken then.
"""

from __future__ import annotations

import struct
from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

from fedbandit.errors import FedbanditError, whole_number
from fedbandit.messages import Collect, Download, Join, Message, Receipt, Request, Upload, decode, encoded_size
from fedbandit.network.coordinator.activity import Activity
from fedbandit.network.coordinator.limits import Limits
from fedbandit.network.coordinator.register import MemberRecord, Register
from fedbandit.network.envelope import SIZE, Envelope, extend, unseal
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import Store, StoreError
from fedbandit.state import State, pack, pack_entry, require_like, restoring, unpack, unpack_entry

KIND = "coordinator"
_ENTRY = struct.Struct("<BdH")  # kind, time, length of the name
_FRAME, _ENROLMENT, _QUARANTINE, _ROUND, _TICK, _ABSENT = 1, 2, 3, 4, 5, 6
_NUMBER = struct.Struct("<Q")
ROUNDS_TO_ANSWER = 30
"""How many rounds an answer is awaited unless configured otherwise."""


class Refused(NamedTuple):
    """A refusal, for the log and the page. Only the client is told the sentence: it may quote its data."""

    at: float
    name: str
    kind: str


class Federation:
    """A federation that goes on where its store left off."""

    def __init__(
        self,
        name: str,
        agreement: Agreement,
        store: Store,
        patience: int = ROUNDS_TO_ANSWER,
        snapshot_every: int = 2000,
    ) -> None:
        self.name = name
        self.agreement = agreement
        self._agreed = agreement.as_json()
        self.store = store
        self.snapshot_every = snapshot_every
        self.system = agreement.build()
        self.patience = whole_number("patience", patience)
        self.dim = self.system.structure.shared_dim(agreement.world)
        self.limits = Limits.of(self.system, agreement.world, agreement.reward_bound)
        self.most_bytes = SIZE + encoded_size(Upload, self.dim)
        self.refused: deque[Refused] = deque(maxlen=50)
        self.refusals: Counter[str] = Counter()
        self._recover()

    def _recover(self) -> None:
        machine = self.system.told(self.agreement.world).coordinator(self.agreement.world)
        if machine is None:
            raise FedbanditError(f"{self.agreement.system} has no coordinator: its clients exchange nothing.")
        self.machine = machine
        self.register = Register(self.agreement.world.n_clients)
        self.activity = Activity()
        self.rounds = self._rounds_kept = self._waited = 0
        self._waited_in = -1  # the call whose answers were awaited at the last tick
        snapshot, entries = self.store.read(self.name)
        self._entries = len(entries)
        self._behind = False
        if snapshot is None:
            self.store.replace(self.name, pack(KIND, self.state()))
        else:
            self._restore(unpack(KIND, snapshot, self.store.where))
        for entry in entries:
            self._replay(unpack_entry(KIND, entry, self.store.where))
        self._rounds_kept = self.rounds

    def state(self) -> State:
        """All that has to survive."""
        header, arrays = self.machine.state()
        mine = {
            "agreement": self._agreed,
            "rounds": self.rounds,
            "members": self.register.state(),
            "activity": self.activity.state(),
        }
        return State({**mine, "machine": header}, arrays)

    def _restore(self, state: State) -> None:
        with restoring(KIND, self.store.where):
            require_like(State(state.header, {}), State(self.state().header, {}))
            ours, theirs = self._agreed, Agreement.of_json(state.header["agreement"]).as_json()
            if ours != theirs:
                what = next(key for key in ours if ours[key] != theirs[key])
                raise FedbanditError(
                    f"The store has a federation {self.name!r} with {what} = {theirs[what]}, but it is now configured "
                    f"with {ours[what]}; use another store or another name for the new one."
                )
            self.rounds = state.header["rounds"]
            self.register.restore(state.header["members"])
            self.activity.restore(state.header["activity"])
            self.machine.restore(State(state.header["machine"], state.arrays))

    def _replay(self, entry: bytes) -> None:
        kind, at, length = _ENTRY.unpack_from(entry)
        name = entry[_ENTRY.size : _ENTRY.size + length].decode()
        rest = entry[_ENTRY.size + length :]
        if kind == _ENROLMENT:
            self.register.enrol(name)
        elif kind == _QUARANTINE:
            self.register.record(name).quarantined = rest.decode()
        elif kind == _ROUND:
            (self.rounds,) = _NUMBER.unpack(rest)
        elif kind == _TICK:
            self._end_round(_NUMBER.unpack(rest)[0], at)
        elif kind == _ABSENT:
            self._mark_absent([i for (i,) in _NUMBER.iter_unpack(rest)], at)
        else:
            envelope, data = unseal(rest)
            self._apply(self.register.record(name), envelope, decode(data), data, at)

    # What the network asks

    def invite(self, name: str, at: float) -> MemberRecord:
        """The record of a client, which becomes a member if it is none."""
        self._catch_up_with_store()
        if name in self.register.by_name:
            return self.register.by_name[name]
        record = self.register.enrol(name)  # first, as the write may be a snapshot
        self._write([_entry(_ENROLMENT, at, name)])
        return record

    def quarantine(self, name: str, reason: str, at: float) -> None:
        """Refuse whatever a client sends from now on; an empty reason ends that."""
        self._catch_up_with_store()
        self.register.record(name).quarantined = reason
        self._write([_entry(_QUARANTINE, at, name, reason.encode())])

    def receive(self, frames: Sequence[tuple[str, bytes]], at: float) -> list[list[Message] | Refusal]:
        """Take frames with the names of their senders; the answers to each, or why it was refused.

        All are written in one transaction.
        """
        self._catch_up_with_store()
        outcomes: list[list[Message] | Refusal] = []
        entries: list[bytes] = []
        for name, frame in frames:
            try:
                answers, changed = self._take(name, frame, at)
            except Refusal as refusal:
                self.note_refusal(name, refusal, at)
                outcomes.append(refusal)
                continue
            except BaseException:
                self._behind = True  # memory has what the store has not
                raise
            if changed:
                entries.append(_entry(_FRAME, at, name, frame))
            outcomes.append(answers)
        try:
            self._write(entries)
        except StoreError as error:
            unavailable = Refusal("unavailable", str(error))
            return [outcome if isinstance(outcome, Refusal) else unavailable for outcome in outcomes]
        return outcomes

    def tick(self, at: float) -> list[Message]:
        """The time of a round has passed; what is to be sent now. A client that is offline asks when it is back."""
        self._catch_up_with_store()
        try:
            return self._tick(at)
        except BaseException:
            self._behind = True  # memory has what the store has not
            raise

    def _tick(self, at: float) -> list[Message]:
        awaited = self.machine.awaits()
        if awaited:
            epoch = self.machine.epoch
            if epoch != self._waited_in:  # another call than at the last tick
                self._waited_in, self._waited = epoch, 0
            self._waited += 1
            late = self._waited >= self.patience
            gone = [i for i in awaited if late or not self._is_present(i)]
            if not gone:
                return []
            answers = self._mark_absent(gone, at)
            entry = _entry(_ABSENT, at, "", b"".join(map(_NUMBER.pack, gone)))
        else:
            self._waited = 0
            if not any(record.is_present for record in self.register.by_number):
                return []
            self.rounds += 1
            if self.machine.next_wake(self.rounds - 1) != self.rounds:
                return []
            answers = self._end_round(self.rounds, at)
            self._rounds_kept = self.rounds
            entry = _entry(_TICK, at, "", _NUMBER.pack(self.rounds))
        try:
            self._write([entry])
        except StoreError as error:
            raise Refusal("unavailable", str(error)) from None
        return answers

    def note_refusal(self, name: str, refusal: Refusal, at: float) -> None:
        """Count a refusal, and remember who and why."""
        self.refusals[refusal.kind] += 1
        self.refused.append(Refused(at, name, refusal.kind))
        if name in self.register.by_name:
            self.register.by_name[name].refusals += 1

    # How it is done

    def _take(self, name: str, frame: bytes, at: float) -> tuple[list[Message], bool]:
        if len(frame) > self.most_bytes:
            raise Refusal("size", f"The frame has {len(frame)} bytes, but {self.most_bytes} are the most.")
        record = self.register.record(name)
        if record.quarantined:
            raise Refusal("quarantined", f"Client {name!r} is in quarantine: {record.quarantined}")
        try:
            envelope, data = unseal(frame)
            message = decode(data)
        except FedbanditError as error:
            raise Refusal("malformed", str(error)) from None
        if message.member != record.member:
            raise Refusal(
                "identity", f"Client {name!r} is member {record.member} and cannot speak for member {message.member}."
            )
        applied = self.machine.applied.get(record.member, 0)
        match message:
            case Join():
                if record.check_join(envelope, applied) and self.system.privacy.contribution:
                    raise Refusal("session", f"Client {name!r} has lost its privacy ledger and may contribute no more.")
            case Upload():
                record.check_session(envelope)
                if message.sequence > applied + 1 and not record.verified:
                    raise Refusal(
                        "session",
                        f"The coordinator has {applied} uploads of client {name!r}, which goes on from "
                        f"{message.sequence}: the coordinator's store is an old one; restore a newer backup of it.",
                    )
                record.check_history(envelope, message, data, applied)
                if message.sequence > applied:
                    self.limits.check(message)
            case Request():
                record.check_session(envelope)
            case _:
                raise Refusal("malformed", f"A coordinator does not take a {type(message).__name__}.")
        if isinstance(message, Upload) and message.sequence <= applied:
            record.verified = record.verified or message.sequence == applied
            record.last_heard = at
            return [Receipt(record.member, message.sequence)], False  # and no more: later ones are unknown here
        session = (record.incarnation, record.epoch, record.nonce, record.absent)
        try:
            answers, moved = self._apply(record, envelope, message, data, at)
        except Refusal:
            raise
        except FedbanditError as error:
            raise Refusal("statistics" if isinstance(message, Upload) else "malformed", str(error)) from None
        return answers, moved or session != (record.incarnation, record.epoch, record.nonce, record.absent)

    def _apply(
        self, record: MemberRecord, envelope: Envelope, message: Message, data: bytes, at: float
    ) -> tuple[list[Message], bool]:
        """What to send, and whether the machine may have changed.

        A machine that does not answer a Join or Request has not changed, unless it notes a Request for the next round.
        """
        reborn = isinstance(message, Join) and record.joined and envelope.incarnation != record.incarnation
        if reborn:
            self.machine.start_over(record.member)
        before = self.machine.applied.get(record.member, 0)
        answers = self.machine.receive(message)
        moved = bool(answers) or (self.machine.clocked and isinstance(message, Request))
        record.last_heard = at
        record.absent = False
        if isinstance(message, Join):
            record.open_session(envelope, reborn, before)
            if record.verified:
                answers = [Receipt(record.member, before), *answers]
        elif isinstance(message, Upload):
            record.verified = True
            record.note_upload(extend(envelope.chain, data))
            record.uploads += 1
            record.releases += message.sums.n > 0
            record.observations += message.sums.n
            record.bytes_up += len(data)
            self.activity.add(at, uploads=1, bytes=len(data))
        addressed = self._go_on(answers, at)
        return addressed or [Receipt(record.member, 0)], moved  # there is always an answer

    def _end_round(self, rounds: int, at: float) -> list[Message]:
        self.rounds = rounds
        return self._go_on(self.machine.end_round(rounds), at)

    def _mark_absent(self, members: list[int], at: float) -> list[Message]:
        self._waited = 0
        for i in members:
            if i < len(self.register.by_number):
                self.register.by_number[i].absent = True
        return self._go_on(self.machine.excuse(members), at)

    def _is_present(self, member: int) -> bool:
        """Whether an answer of this member is worth waiting for; one that never asked for an invitation has none."""
        records = self.register.by_number
        return member < len(records) and records[member].is_present

    def _go_on(self, answers: list[Message], at: float) -> list[Message]:
        """The messages that may be sent. A call does not await members who are absent, and what follows is sent too."""
        sent: list[Message] = []
        while answers:
            sent += self._address(answers, at)
            called = any(isinstance(answer, Collect) for answer in answers)
            absent = [i for i in self.machine.awaits() if not self._is_present(i)] if called else []
            answers = self.machine.excuse(absent)
        return sent

    def _address(self, answers: list[Message], at: float) -> list[Message]:
        """The messages that may be sent; a member that has not joined yet is sent what it missed when it does."""
        records, size = self.register.by_number, encoded_size(Download, self.dim)
        known = [message for message in answers if message.member < len(records)]
        messages = [m for m in known if records[m.member].verified and not records[m.member].quarantined]
        downloads = [message for message in messages if isinstance(message, Download)]
        for message in downloads:
            records[message.member].downloads += 1
            records[message.member].bytes_down += size
        if downloads:
            self.activity.add(at, downloads=len(downloads), bytes=len(downloads) * size)
        return messages

    def _write(self, entries: list[bytes]) -> None:
        if not entries:
            return
        if self.rounds != self._rounds_kept:  # rounds without other entries are written with the next one
            entries = [_entry(_ROUND, 0.0, "", _NUMBER.pack(self.rounds)), *entries]
            self._rounds_kept = self.rounds
        try:
            self.store.append(self.name, entries)
            self._entries += len(entries)
        except BaseException:
            self._behind = True  # memory has what the store has not
            raise
        if self._entries >= self.snapshot_every:
            try:
                self.store.replace(self.name, pack(KIND, self.state()))
                self._entries = 0
            except StoreError:
                pass  # the entries are safe; the next write tries again

    def _catch_up_with_store(self) -> None:
        """After a write has failed: back to what the store has."""
        if self._behind:
            try:
                self._recover()
            except StoreError as error:
                raise Refusal("unavailable", str(error)) from None


def _entry(kind: int, at: float, name: str, rest: bytes = b"") -> bytes:
    text = name.encode()
    return pack_entry(KIND, _ENTRY.pack(kind, at, len(text)) + text + rest)
