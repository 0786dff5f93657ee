"""What a federation remembers, and how it goes on: agreement, machine, register, and the journal that all of it follows
from. Every step here is deterministic, so that entries of the journal, applied again in order, lead to the same state.

Terms. The store has the agreement that its entries were made under. If another one is configured, everything is
recovered under the old one first; then, if the change is sound, it takes effect with a snapshot.
"""

from __future__ import annotations

import json
import secrets
from typing import Any, NamedTuple

from fedbandit.encoded_sums import count_blocks
from fedbandit.errors import FedbanditError, shown
from fedbandit.machines.servers_coordinator import ServersCoordinator
from fedbandit.machines.sums.server import OpenedSum
from fedbandit.messages import (
    Collect,
    Download,
    Join,
    Message,
    Recall,
    Receipt,
    Request,
    Restate,
    Upload,
    decode,
    encoded_size,
)
from fedbandit.network.coordinator import journal as kinds
from fedbandit.network.coordinator.activity import Activity
from fedbandit.network.coordinator.hearing import is_free, note_call
from fedbandit.network.coordinator.inside import downloads_in, most_bytes
from fedbandit.network.coordinator.journal import KIND, Entry, Journal, numbers
from fedbandit.network.coordinator.limits import Limits
from fedbandit.network.coordinator.register import MemberRecord, Register, fit_places
from fedbandit.network.coordinator.rules import Rules
from fedbandit.network.envelope import SIZE, Envelope, extend, unseal
from fedbandit.network.invitation import Agreement
from fedbandit.network.migrated import remembered
from fedbandit.network.stores import Store
from fedbandit.network.sums import opened_of
from fedbandit.privacy.noise import Source
from fedbandit.privacy.secure import SecureSource
from fedbandit.protocols.coordinator import Coordinator
from fedbandit.protocols.pool import MOST_SEALED
from fedbandit.server_messages import FromServer
from fedbandit.sharing import Groups, Others
from fedbandit.state import State, StateError, require_like, restoring
from fedbandit.structures.held import HeldByCoordinator

FAILS = "the store fails"
FAULT = "a message could not be taken"
COPIED = "a copy has released a client's records again"
"""What has happened: of these `health.py` knows how they are logged."""


class Event(NamedTuple):
    """Something that an operator wants to know, for the log."""

    what: str
    facts: dict[str, Any]


class RecordedFederation:
    """The state of a federation, and its steps."""

    def __init__(self, name: str, agreement: Agreement, store: Store, snapshot_every: int, rules: Rules) -> None:
        self.name = name
        self.store = store
        self.rules = rules
        self.journal = Journal(store, name, snapshot_every)
        self.events: list[Event] = []
        """What has happened since the host last looked."""
        self.gone: list[tuple[int, str]] = []
        """Who was what member until then, and whose connection is to end."""
        self._agree(agreement)
        self.recover()

    def _agree(self, agreement: Agreement) -> None:
        """From now on this is what all have agreed on."""
        self.agreement = agreement
        self._agreed = agreement.as_json()
        self.digest = agreement.digest
        self.system = agreement.build()
        self.rules.require_for(self.system, agreement.world)
        self.private = self.system.guarantee.basis != "none"
        self.dim = self.system.structure.shared_dim(agreement.world)
        self.limits = Limits.of(self.system, agreement.world, agreement.reward_bound)
        self.most_bytes = SIZE + most_bytes(agreement, self.dim)
        self.machine = self._machine()
        self.register = Register(agreement.places)

    def _machine(self) -> Coordinator:
        trusted = self.system.privacy.pooled and self.system.privacy.site == "coordinator"
        source = SecureSource() if trusted else None
        machine = coordinator_of(self.agreement, source)
        if machine is None:
            raise FedbanditError(f"{self.agreement.system} has no coordinator: its clients exchange nothing.")
        if self._retracts(machine):
            machine.keep_contributions()
        if trusted and machine.pool is not None and machine.pool.total.epochs < MOST_SEALED:
            machine.pool.key = secrets.token_bytes(16)
        return machine

    def _retracts(self, machine: Coordinator) -> bool:
        """Whether members' sums are kept; a pool has one noisy total, in which nobody's part is known."""
        return self.rules.retract and machine.retracts and machine.pool is None

    def recover(self) -> None:
        wanted = self.agreement
        self.journal.behind = True  # until all of it is done: half of a history is none
        self.activity = Activity()
        self.terms = [self.digest.hex()]
        self.migrated: dict[str, Any] = {}  # how features and actions were carried over from earlier terms
        self.receipts: dict[str, Any] = {}  # receipts of erasures after which the store has still to be compacted
        self.rounds = self.rounds_kept = self.waited = 0
        self.masked: dict[int, int] = {}  # member → the last epoch for which it sent masked numbers; not kept
        self.published = 0  # totals of a trusted coordinator that are in the store
        self.waited_in = -1  # the call whose answers were awaited at the last tick
        self._agree(wanted)
        state, entries = self.journal.read()
        changed = False
        if state is None:
            self.journal.snapshot(self.state())
        else:
            with restoring(KIND, self.store.where):
                if not isinstance(state.header.get("agreement"), dict):
                    raise StateError(f"The stored agreement is {shown(state.header.get('agreement'))}.")
                stored = Agreement.of_json(state.header["agreement"])
            changed = stored.as_json() != self._agreed
            if changed:
                self._agree(stored)
            self._restore(state)
        told = len(self.events)
        for entry in entries:
            self._replay(entry)
        del self.events[told:]  # of long ago, and in the log since then
        if changed:
            self._change(wanted)
        wants, pool = self._retracts(self.machine), self.machine.pool
        if wants != (self.machine.contributions is not None):  # another rule than what was written under
            self.machine.contributions = None
            if wants:
                self.machine.keep_contributions()
            self.journal.snapshot(self.state())
        elif state is not None and pool is not None and pool.key and "pool.key" not in state.arrays:
            self.journal.snapshot(self.state())  # a key is drawn once: states before format 4 had none
        self.rounds_kept = self.rounds
        if self.machine.pool is not None:
            self.published = self.machine.pool.total.epoch
        self.journal.behind = False

    def require_sound_change(self, agreement: Agreement) -> None:
        """Refuse terms that this federation cannot go on under; nothing changes."""
        self.agreement.require_sound_change(agreement, range(len(self.register.by_number)))
        old, new, sharing = self.agreement.world.n_clients, agreement.world.n_clients, self.machine.sharing
        if new < len(self.register.by_number) or (new != old and not isinstance(sharing, Groups | Others)):
            reason = "groups are found among as many" if new > old else "members have these numbers; free places first"
            raise FedbanditError(f"clients is {new}, but the federation has {old} places, and {reason}.")

    def _change(self, agreement: Agreement) -> None:
        """Let a sound change of the agreement take effect."""
        self.require_sound_change(agreement)
        state = self.state()
        self._agree(agreement)
        terms = [*state.header["terms"], self.digest.hex()]
        fitted = {
            name: fit_places(array, self.machine.state().arrays.get(name)) for name, array in state.arrays.items()
        }
        self._restore(State({**state.header, "agreement": self._agreed, "terms": terms}, fitted))
        self.journal.snapshot(self.state())
        self.events.append(Event("the terms have changed", {"digest": self.digest.hex()}))

    def state(self) -> State:
        """All that has to survive."""
        header, arrays = self.machine.state()
        mine = {
            "agreement": self._agreed,
            "terms": self.terms,
            "migrated": self.migrated,
            "receipts": self.receipts,
            "rounds": self.rounds,
            "members": self.register.state(),
            "activity": self.activity.state(),
        }
        return State({**mine, "machine": header}, arrays)

    def _restore(self, state: State) -> None:
        with restoring(KIND, self.store.where):
            require_like(State(state.header, {}), State(self.state().header | {"agreement": {}}, {}))
            self.rounds = state.header["rounds"]
            self.terms = state.header["terms"] or [self.digest.hex()]
            self.migrated, self.receipts = remembered(state.header["migrated"]), dict(state.header["receipts"])
            self.register.restore(state.header["members"])
            self.activity.restore(state.header["activity"])
            self.machine.contributions = None
            if "aside" in state.arrays:
                self.machine.keep_contributions()
            self.machine.restore(State(state.header["machine"], state.arrays))

    def _replay(self, entry: Entry) -> None:
        name, at = entry.name, entry.at
        if entry.kind == kinds.ENROLMENT:
            self.register.enrol(name, at)
        elif entry.kind == kinds.READMISSION:
            (number,) = entry.numbers()
            self.register.readmit(name, number, at)
        elif entry.kind == kinds.QUARANTINE:
            self.register.record(name).quarantined = entry.rest.decode()  # what it had uploaded stayed, then
        elif entry.kind == kinds.SUSPENSION:
            reason, by = json.loads(entry.rest)
            self.suspend(self.register.record(name), reason, by, at)
        elif entry.kind == kinds.SUSPICION:
            self.suspect(self.register.record(name), entry.numbers() == [1], at)
        elif entry.kind == kinds.DEPARTURE:
            self.leave(name, at)
        elif entry.kind == kinds.ROUND:
            (self.rounds,) = entry.numbers()
        elif entry.kind == kinds.TICK:
            (number,) = entry.numbers()
            self.end_this_round(number, at)
        elif entry.kind == kinds.ABSENT:
            self.mark_absent(entry.numbers(), at)
        elif entry.kind == kinds.GIVEN_UP:
            self._go_on(self.machine.excuse(entry.numbers()), at)
        elif entry.kind == kinds.LOST:
            assert self.machine.pool is not None
            (self.machine.pool.lost,) = entry.numbers()
        elif entry.kind == kinds.SUM:
            self.take_sum(opened_of(entry.numbers()), at)
        elif entry.kind == kinds.COPY:
            self.register.record(name).note_copy(entry.numbers()[0], at)
        elif entry.kind == kinds.VERIFIED:
            self.register.record(name).verified = True
        else:
            envelope, data = unseal(entry.rest)
            self.apply(self.register.record(name), envelope, decode(data), data, at)

    # Steps

    def suspend(self, record: MemberRecord, reason: str, by: str, at: float) -> list[Message]:
        record.quarantined, record.quarantined_by = reason, by
        if not reason:
            record.trusted, record.suspected = True, False
        what = "quarantine" if reason else "end of a quarantine"
        self.events.append(Event(what, {"client": record.name, "by": by, "reason": reason}))
        return self._go_on(self.machine.set_aside(record.member, bool(reason) or record.suspected), at)

    def suspect(self, record: MemberRecord, suspected: bool, at: float) -> list[Message]:
        """A member is suspected of lying, or no longer; what is to be sent."""
        record.suspected = suspected
        return self._go_on(self.machine.set_aside(record.member, suspected or bool(record.quarantined)), at)

    def erase_member(self, record: MemberRecord, at: float) -> list[Message]:
        """A client has never uploaded anything; what is to be sent."""
        answers = self._go_on(self.machine.erase(record.member), at)
        record.erase(at)
        if self.machine.contributions is not None:
            self.machine.contributions.aside[record.member] = bool(record.quarantined) or record.suspected
        return answers

    def leave(self, name: str, at: float) -> list[Message]:
        number = self.register.free(name, at)
        self.masked.pop(number, None)
        return self._go_on(self.machine.vacate(number), at)

    def apply(
        self, record: MemberRecord, envelope: Envelope, message: Message, data: bytes, at: float
    ) -> tuple[list[Message], bool]:
        """What to send, and whether the machine may have changed.

        A machine that does not answer a Join or Request has not changed, unless it notes or counts Requests.
        """
        reborn = isinstance(message, Join) and record.joined and envelope.incarnation != record.incarnation
        machine = self.machine
        if reborn:
            machine.start_over(record.member)
            self.masked.pop(record.member, None)
        before, had = machine.applied.get(record.member, 0), self.credited(record.member)
        believed, epoch = machine.believes(record.member), machine.epoch
        asks = isinstance(message, Request)
        pressed = asks and not is_free(record, self.system.protocol, machine, private=self.private)
        counts = machine.clocked or (machine.pool is not None and machine.pool.quiet > 0)
        answers = machine.restate(message) if isinstance(message, Restate) else machine.receive(message)
        moved = bool(answers) or isinstance(message, Restate | FromServer) or (counts and asks)
        moved = moved or machine.believes(record.member) != believed
        record.last_heard = at
        record.absent = False
        if isinstance(message, Join):
            record.open_session(envelope, reborn, before, at)
            if record.verified:
                answers = [Receipt(record.member, before), *answers]
        elif asks and machine.epoch > epoch:
            note_call(record, machine.epoch, at, pressed=pressed)
        elif isinstance(message, Restate):
            n, releases = self.credited(record.member)
            record.note_restatement(envelope, n - had[0], releases - had[1])
            answers = [Receipt(record.member, message.sequence), *answers]
            self.events.append(Event("uploads were stated anew", {"client": record.name}))
        elif isinstance(message, Upload):
            record.note_upload(extend(envelope.chain, data), len(data))
            record.uploads += 1
            record.releases += message.sums.n > 0
            record.observations += message.sums.n
            self.activity.add(at, uploads=1, bytes=len(data))
        elif isinstance(message, FromServer) and message.sequence > 0:
            assert isinstance(machine, ServersCoordinator)
            record.note_upload(extend(envelope.chain, data), len(data))
            record.uploads += len(message.messages)
            record.releases += sum(upload.sums.n > 0 for upload in message.messages if isinstance(upload, Upload))
            record.observations = machine.observations_of(record.member)
            self.activity.add(at, uploads=len(message.messages), bytes=len(data))
        addressed = self._go_on(answers, at) or [Receipt(record.member, 0)]  # there is always an answer
        if isinstance(message, Join) and envelope.sequence > before:
            addressed.insert(0, Recall(record.member, before))  # first: after a receipt the client goes on
        return addressed, moved

    def credited(self, member: int) -> tuple[int, int]:
        """How many observations, in how many releases, are kept as a member's own."""
        kept = self.machine.contributions
        return (0, 0) if kept is None else (int(kept.own.n[member]), int(kept.own.releases[member]))

    def end_this_round(self, rounds: int, at: float) -> list[Message]:
        self.rounds = rounds
        return self._go_on(self.machine.end_round(rounds), at)

    def mark_absent(self, members: list[int], at: float) -> list[Message]:
        self.waited = 0
        for i in members:
            if i < len(self.register.by_number):
                self.register.by_number[i].absent = True
        return self._go_on(self.machine.excuse(members), at)

    def take_sum(self, opened: OpenedSum, at: float) -> list[Message]:
        """A secure sum has been opened: members are credited, and sent the new total."""
        for member, n in opened.counts.items():
            record = self.register.by_number[member]
            record.last_heard, record.uploads, record.releases = at, record.uploads + 1, record.releases + 1
            record.observations, record.observed_before = n, 0
        return self._go_on(self.machine.take_sum(opened.epoch, opened.words, opened.counts, len(opened.returned)), at)

    def last_sum_of(self, member: int) -> int:
        """The last epoch to whose secure sum a member has contributed; 0 if to none."""
        pool = self.machine.pool
        included = 0 if pool is None or not pool.secure else pool.included.get(member, 0)
        return max(included, self.masked.get(member, 0))

    def is_present(self, member: int) -> bool:
        """Whether an answer of this member is worth waiting for; one that never asked for an invitation has none."""
        records = self.register.by_number
        return member < len(records) and records[member].is_present

    def _go_on(self, answers: list[Message], at: float) -> list[Message]:
        """The messages that may be sent. A call does not await members who are absent, and what follows is sent too."""
        sent: list[Message] = []
        while answers:
            sent += self._address(answers, at)
            called = any(isinstance(answer, Collect) for answer in answers)
            absent = [i for i in self.machine.awaits() if not self.is_present(i)] if called else []
            answers = self.machine.excuse(absent)
        return sent

    def _address(self, answers: list[Message], at: float) -> list[Message]:
        """The messages that may be sent; a member that has not joined yet is sent what it missed when it does."""
        records = self.register.by_number
        known = [message for message in answers if message.member < len(records)]
        messages = [m for m in known if records[m.member].verified and not records[m.member].quarantined]
        downloads = [download for message in messages for download in downloads_in(message)]
        blocks = count_blocks(downloads[0][1].sums) if downloads and downloads[0][1].actions else None
        size = encoded_size(Download, self.dim, blocks, dated=self.system.forgets)
        for member, _ in downloads:
            records[member].downloads += 1
            records[member].bytes_down += size
        if downloads:
            self.activity.add(at, downloads=len(downloads), bytes=len(downloads) * size)
        return messages

    def write(self, entries: list[Entry]) -> None:
        if entries and self.rounds != self.rounds_kept:  # rounds without other entries are written with the next one
            entries = [Entry(kinds.ROUND, 0.0, "", numbers(self.rounds)), *entries]
            self.rounds_kept = self.rounds
        pool = self.machine.pool
        if entries and pool is not None and not pool.secure and pool.total.epoch != self.published:
            self.published = pool.total.epoch  # noise is drawn once: no entry could repeat it
            self.journal.snapshot(self.state())
            return
        self.journal.write(entries, self.state)


def coordinator_of(agreement: Agreement, source: Source | None = None) -> Coordinator | None:
    """The coordinator's machine; None if nothing is exchanged. `source` is for noise, if it is trusted to draw any."""
    system, world, servers = agreement.build(), agreement.world, agreement.servers
    if servers is not None:
        return ServersCoordinator(system, world, servers)
    if isinstance(system.structure, HeldByCoordinator):
        system.structure.require_at_hand()
    return system.coordinator(world, source=None if source is None else (lambda _: source))
