"""One federation as a coordinator keeps it: the machine, the register of members, and the journal of what was accepted.

Theory of operation
-------------------
`receive` checks a frame (who says it, whether that session is the one to be heard, whether the statistics can be), and
hands the message to the coordinator's machine. What changed anything becomes an entry of the journal; only when the
entries are in the store may the answers leave (`receive` returns after that). After a crash the last snapshot is
restored and the entries are applied again in the same order: machines are deterministic, so everything is as it was.
Whatever is refused has changed nothing. Time is an argument.

Rounds. What a coordinator does between rounds (form groups, serve whoever waits) it does when it is told by `tick` that
the time of a round has passed. `tick` counts calls and looks at no clock: clocks that jump change nothing, and while
the coordinator is down no round passes. A round does not end while answers to a call are awaited, and none passes while
nobody is here. Whoever has never joined, is in quarantine, or has let `patience` ticks pass without an answer is
*absent*: not awaited, now or later, until it says something; what it owes is then taken.
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
from fedbandit.network.coordinator.register import Register, Seat
from fedbandit.network.envelope import SIZE, Envelope, extend, unseal
from fedbandit.network.invitation import Terms
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import Store, StoreError
from fedbandit.state import State, pack, unpack

_ENTRY = struct.Struct("<BdH")  # kind, time, length of the name
_FRAME, _SEAT, _QUARANTINE, _ROUND, _TICK, _ABSENT = 1, 2, 3, 4, 5, 6
_ROUNDS = struct.Struct("<Q")
PATIENCE = 30
"""How many rounds an answer is awaited if nothing else is said."""


class Refused(NamedTuple):
    """A refusal, for the log and the page. The sentence is told to the client alone: it may quote its data."""

    at: float
    name: str
    kind: str


class Federation:
    """A federation that goes on where its store left off."""

    def __init__(
        self, name: str, terms: Terms, store: Store, patience: int = PATIENCE, snapshot_every: int = 2000
    ) -> None:
        self.name = name
        self.terms = terms
        self._agreed = terms.as_json()
        self.store = store
        self.snapshot_every = snapshot_every
        self.system = terms.build()
        self.patience = whole_number("patience", patience)
        self.dim = self.system.structure.shared_dim(terms.world)
        self.limits = Limits.of(self.system, terms.world, terms.reward_bound)
        self.most_bytes = SIZE + encoded_size(Upload, self.dim)
        self.refused: deque[Refused] = deque(maxlen=50)
        self.refusals: Counter[str] = Counter()
        self._recover()

    def _recover(self) -> None:
        machine = self.system.told(self.terms.world).coordinator(self.terms.world)
        if machine is None:
            raise FedbanditError(f"{self.terms.system} has no coordinator: its clients exchange nothing.")
        self.machine = machine
        self.register = Register(self.terms.world.n_clients)
        self.activity = Activity()
        self.rounds = self._rounds_kept = self._waited = 0
        self._waited_in = -1  # the call whose answers were awaited at the last tick
        snapshot, entries = self.store.read(self.name)
        self._entries = len(entries)
        self._behind = False
        if snapshot is None:
            self.store.replace(self.name, pack(self.state()))
        else:
            self._restore(unpack(snapshot))
        for entry in entries:
            self._replay(entry)
        self._rounds_kept = self.rounds

    def state(self) -> State:
        """All that has to survive."""
        header, arrays = self.machine.state()
        mine = {
            "terms": self._agreed,
            "rounds": self.rounds,
            "seats": self.register.state(),
            "activity": self.activity.state(),
        }
        return State({**mine, "machine": header}, arrays)

    def _restore(self, state: State) -> None:
        ours, theirs = self._agreed, Terms.of_json(state.header["terms"]).as_json()
        if ours != theirs:
            what = next(key for key in ours if ours[key] != theirs[key])
            raise FedbanditError(
                f"The store has a federation {self.name!r} with {what} = {theirs[what]}, "
                f"but it is now configured with {ours[what]}; use another store or another name."
            )
        self.rounds = state.header["rounds"]
        self.register.restore(state.header["seats"])
        self.activity.restore(state.header["activity"])
        self.machine.restore(State(state.header["machine"], state.arrays))

    def _replay(self, entry: bytes) -> None:
        kind, at, length = _ENTRY.unpack_from(entry)
        name = entry[_ENTRY.size : _ENTRY.size + length].decode()
        rest = entry[_ENTRY.size + length :]
        if kind == _SEAT:
            self.register.take_seat(name)
        elif kind == _QUARANTINE:
            self.register.seat(name).quarantined = rest.decode()
        elif kind == _ROUND:
            (self.rounds,) = _ROUNDS.unpack(rest)
        elif kind == _TICK:
            self._end_round(_ROUNDS.unpack(rest)[0], at)
        elif kind == _ABSENT:
            self._excuse([i for (i,) in _ROUNDS.iter_unpack(rest)], at)
        else:
            envelope, data = unseal(rest)
            self._apply(self.register.seat(name), envelope, decode(data), data, at)

    # What the network asks

    def invite(self, name: str, at: float) -> Seat:
        """The seat of a client; one who has none gets the next."""
        self._catch_up_with_store()
        if name in self.register.by_name:
            return self.register.by_name[name]
        self.register.require_room(name)
        seat = self.register.take_seat(name)  # first, as the write may be a snapshot
        self._write([_entry(_SEAT, at, name)])
        return seat

    def quarantine(self, name: str, reason: str, at: float) -> None:
        """Refuse whatever a client says from now on; with an empty reason, hear it again."""
        self._catch_up_with_store()
        self.register.seat(name).quarantined = reason
        self._write([_entry(_QUARANTINE, at, name, reason.encode())])

    def receive(self, frames: Sequence[tuple[str, bytes]], at: float) -> list[list[Message] | Refusal]:
        """Take frames with the names of those who sent them; the answers to each, or why it was refused.

        All are written in one transaction. Answers are those to members who are here.
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
        """The time of a round has passed; what is to be sent now. Whoever is not connected asks when it is."""
        self._catch_up_with_store()
        try:
            return self._tick(at)
        except BaseException:
            self._behind = True  # memory has what the store has not
            raise

    def _tick(self, at: float) -> list[Message]:
        awaited = self.machine.awaits()
        if awaited:
            if self.machine.epoch != self._waited_in:  # another call than at the last tick
                self._waited_in, self._waited = self.machine.epoch, 0
            self._waited += 1
            late = self._waited >= self.patience
            gone = [i for i in awaited if late or not self._is_here(i)]
            if not gone:
                return []
            answers = self._excuse(gone, at)
            entry = _entry(_ABSENT, at, "", b"".join(map(_ROUNDS.pack, gone)))
        else:
            self._waited = 0
            if not any(self._is_here(seat.member) for seat in self.register.by_member):
                return []
            self.rounds += 1
            if self.machine.next_wake(self.rounds - 1) != self.rounds:
                return []
            answers = self._end_round(self.rounds, at)
            self._rounds_kept = self.rounds
            entry = _entry(_TICK, at, "", _ROUNDS.pack(self.rounds))
        try:
            self._write([entry])
        except StoreError as error:
            raise Refusal("unavailable", str(error)) from None
        return answers

    def note_refusal(self, name: str, refusal: Refusal, at: float) -> None:
        """Count a refusal and remember the sentence."""
        self.refusals[refusal.kind] += 1
        self.refused.append(Refused(at, name, refusal.kind))
        if name in self.register.by_name:
            self.register.by_name[name].refusals += 1

    # How it is done

    def _take(self, name: str, frame: bytes, at: float) -> tuple[list[Message], bool]:
        if len(frame) > self.most_bytes:
            raise Refusal("size", f"The frame has {len(frame)} bytes, but {self.most_bytes} are the most.")
        seat = self.register.seat(name)
        if seat.quarantined:
            raise Refusal("quarantined", f"Client {name!r} is in quarantine: {seat.quarantined}")
        try:
            envelope, data = unseal(frame)
            message = decode(data)
        except FedbanditError as error:
            raise Refusal("malformed", str(error)) from None
        if message.member != seat.member:
            raise Refusal(
                "identity", f"Client {name!r} is member {seat.member} and cannot speak for member {message.member}."
            )
        applied = self.machine.applied.get(seat.member, 0)
        match message:
            case Join():
                if seat.check_join(envelope, applied) and self.system.privacy.contribution:
                    raise Refusal("session", f"Client {name!r} has lost its privacy ledger and may contribute no more.")
            case Upload():
                seat.check_session(envelope)
                if message.sequence > applied + 1 and not seat.verified:
                    raise Refusal(
                        "session",
                        f"The coordinator has {applied} uploads of client {name!r}, which goes on from "
                        f"{message.sequence}: its store is an old one; start the client over.",
                    )
                seat.check_history(envelope, message, data, applied)
                if message.sequence > applied:
                    self.limits.check(message)
            case Request():
                seat.check_session(envelope)
            case _:
                raise Refusal("malformed", f"A coordinator does not take a {type(message).__name__}.")
        if isinstance(message, Upload) and message.sequence <= applied:
            seat.verified = seat.verified or message.sequence == applied
            seat.last_spoke = at
            return [Receipt(seat.member, message.sequence)], False  # and no more: of later ones nothing is known
        session = (seat.incarnation, seat.epoch, seat.nonce, seat.absent)
        try:
            answers, moved = self._apply(seat, envelope, message, data, at)
        except Refusal:
            raise
        except FedbanditError as error:
            raise Refusal("statistics" if isinstance(message, Upload) else "malformed", str(error)) from None
        return answers, moved or session != (seat.incarnation, seat.epoch, seat.nonce, seat.absent)

    def _apply(
        self, seat: Seat, envelope: Envelope, message: Message, data: bytes, at: float
    ) -> tuple[list[Message], bool]:
        """What to send, and whether the machine may have moved.

        One that says nothing to a Join or Request has not, but if it does something between rounds it may remember it.
        """
        new_life = isinstance(message, Join) and seat.joined and envelope.incarnation != seat.incarnation
        if new_life:
            self.machine.start_over(seat.member)
        before = self.machine.applied.get(seat.member, 0)
        answers = self.machine.receive(message)
        moved = bool(answers) or (self.machine.clocked and isinstance(message, Request))
        seat.last_spoke = at
        seat.absent = False
        if isinstance(message, Join):
            seat.open_session(envelope, new_life, before)
            if seat.verified:
                answers = [Receipt(seat.member, before), *answers]
        elif isinstance(message, Upload):
            seat.verified = True
            seat.note_upload(extend(envelope.chain, data))
            seat.uploads += 1
            seat.releases += message.sums.n > 0
            seat.observations += message.sums.n
            seat.bytes_up += len(data)
            self.activity.add(at, uploads=1, bytes=len(data))
        addressed = self._go_on(answers, at)
        return addressed or [Receipt(seat.member, 0)], moved  # an answer, if only that it was heard

    def _end_round(self, rounds: int, at: float) -> list[Message]:
        self.rounds = rounds
        return self._go_on(self.machine.end_round(rounds), at)

    def _excuse(self, members: list[int], at: float) -> list[Message]:
        self._waited = 0
        for i in members:
            if i < len(self.register.by_member):
                self.register.by_member[i].absent = True
        return self._go_on(self.machine.excuse(members), at)

    def _is_here(self, member: int) -> bool:
        """Whether an answer of this member is worth waiting for."""
        seats = self.register.by_member
        return member < len(seats) and seats[member].is_here

    def _go_on(self, answers: Sequence[Message], at: float) -> list[Message]:
        """The messages that may be sent; after a call also what follows from nobody waiting for absentees."""
        sent: list[Message] = []
        while answers:
            calls = any(isinstance(answer, Collect) for answer in answers)
            sent += self._address(answers, at)
            answers = self.machine.excuse([i for i in self.machine.awaits() if not self._is_here(i)]) if calls else []
        return sent

    def _address(self, answers: Sequence[Message], at: float) -> list[Message]:
        """The messages that may be sent; whoever has not joined yet is sent what it has missed when it does."""
        seats, size = self.register.by_member, encoded_size(Download, self.dim)
        heard = [m for m in answers if m.member < len(seats) and seats[m.member].verified]
        messages = [m for m in heard if not seats[m.member].quarantined]
        downloads = [m for m in messages if isinstance(m, Download)]
        for message in downloads:
            seats[message.member].downloads += 1
            seats[message.member].bytes_down += size
        if downloads:
            self.activity.add(at, downloads=len(downloads), bytes=len(downloads) * size)
        return messages

    def _write(self, entries: list[bytes]) -> None:
        if not entries:
            return
        if self.rounds != self._rounds_kept:  # it costs nothing now, and no round is forgotten
            entries = [_entry(_ROUND, 0.0, "", _ROUNDS.pack(self.rounds)), *entries]
            self._rounds_kept = self.rounds
        try:
            self.store.append(self.name, entries)
            self._entries += len(entries)
        except BaseException:
            self._behind = True  # memory has what the store has not
            raise
        if self._entries >= self.snapshot_every:
            try:
                self.store.replace(self.name, pack(self.state()))
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
    return _ENTRY.pack(kind, at, len(text)) + text + rest
