"""What a federation refuses before anything changes: what is impossible, or of other sessions, histories and terms.

The outer message and those inside a local server's are held to the same bounds.
"""

from __future__ import annotations

from typing import NamedTuple

from fedbandit.messages import Join, Message, Request, Restate, Upload
from fedbandit.network.coordinator import journal as kinds
from fedbandit.network.coordinator.compared import ComparedFederation
from fedbandit.network.coordinator.hearing import HERE, ONCE, is_heard
from fedbandit.network.coordinator.inside import uploads_in
from fedbandit.network.coordinator.journal import Entry, numbers
from fedbandit.network.coordinator.recorded import Event
from fedbandit.network.coordinator.register import MemberRecord
from fedbandit.network.coordinator.released import ReleaseLimits
from fedbandit.network.coordinator.rules import Rules
from fedbandit.network.envelope import UNSAID, Envelope
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import Store
from fedbandit.server_messages import FromServer

LARGEST = 2**53
"""Uploads that a client may say it has made, and one more: numbers that JSON keeps."""

SEEN = 2**62
"""Versions and calls that a client may say it has seen: they move its own numbers only, and those stay below 2⁶³."""


class Read(NamedTuple):
    """A frame that could be decoded, and why no observations can have led to its statistics, if so."""

    envelope: Envelope
    data: bytes
    message: Message
    fault: Refusal | None = None


class CheckedFederation(ComparedFederation):
    """A federation that looks at a message before it takes it."""

    _counted: int | None = None  # everybody's observations, while uploads are all that comes

    def __init__(self, name: str, agreement: Agreement, store: Store, snapshot_every: int, rules: Rules) -> None:
        self._requested: dict[int, float] = {}  # member → when it last asked, while no sums are made
        self.failed_at: float | None = None
        """When a secure sum was last given up, or when that was first noticed after a restart."""
        super().__init__(name, agreement, store, snapshot_every, rules)

    def _agree(self, agreement: Agreement) -> None:
        """Also on how often members release."""
        super()._agree(agreement)
        self.releases = ReleaseLimits.of(self.system, agreement.world)
        self._servers = agreement.servers  # found out once: it is asked for at every upload

    def check_terms(self, name: str, envelope: Envelope, message: Message) -> None:
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

    def hears(self, record: MemberRecord, at: float) -> bool:
        """Whether a Request counts.

        After a secure sum that could not be opened it does if so many members have been heard since as a sum needs: a
        sum that is called for costs an epoch, also if hardly anybody is there. Then those of all do, once a second.
        """
        pool = self.machine.pool
        if pool is not None and pool.failing:
            self.failed_at = at if self.failed_at is None else self.failed_at
            here = sum(one.is_present and one.last_heard >= self.failed_at - HERE for one in self.register.by_number)
            if here < pool.quorum or 0 <= at - self._requested.get(record.member, -ONCE) < ONCE:
                return False
            self._requested[record.member] = at
            return True
        return is_heard(record, self.system.protocol, self.machine, at, private=self.private)

    def check_lost(self, name: str, message: Join, at: float, entries: list[Entry]) -> None:
        """Refuse whoever joins after a publication has been lost: what it had would be noised once more."""
        pool = self.machine.pool
        if pool is None or not pool.key:
            return
        if (lost := pool.later(message.version)) and not pool.lost:
            pool.lost = lost
            entries.append(Entry(kinds.LOST, at, name, numbers(lost)))
            self.events.append(Event("a publication was lost", {"client": name, "publication": lost}))
        if pool.lost:
            raise Refusal(
                "session",
                f"Publication {pool.lost} of this coordinator is not in its store, which has {pool.total.epoch}: to go "
                "on from here would noise the same records twice; restore a newer backup, or begin a new federation.",
            )
        if message.version > max(pool.version, int(self.machine.sent[message.member])):
            raise Refusal("malformed", f"Client {name!r} says that it has version {message.version}, which never was.")

    def check(self, record: MemberRecord, read: Read, applied: int, at: float) -> None:
        """Refuse a message of another session, of another history, or with statistics that cannot be."""
        name, (envelope, data, message, fault) = record.name, read
        self._check_numbers(name, envelope, message)
        if self.machine.secure_sums and isinstance(message, Upload | Restate):
            raise Refusal("malformed", f"Client {name!r} sent an upload, but secure sums take contributions only.")
        match message:
            case Join():
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
                    self._check_releases(record, message)
            case Restate():
                record.check_session(envelope)
                if message.sequence > applied:
                    self._check_restated(record, envelope, message, fault, at)
            case _:
                raise Refusal("malformed", f"A coordinator does not take a {type(message).__name__}.")

    def _check_numbers(self, name: str, envelope: Envelope, message: Message) -> None:
        """Refuse numbers that nobody can have counted to, in a message and in those inside of it."""
        if envelope.sequence >= LARGEST:
            raise Refusal("malformed", f"Client {name!r} says that it has made {envelope.sequence} uploads.")
        for one in message.messages if isinstance(message, FromServer) else (message,):
            if isinstance(one, Join) and max(one.version, one.epoch) >= SEEN:
                raise Refusal(
                    "malformed", f"Client {name!r} says that it has version {one.version} and epoch {one.epoch}."
                )
            if isinstance(one, Upload | Restate) and one.sequence >= LARGEST:
                raise Refusal("malformed", f"Client {name!r} says that it has made {one.sequence} uploads.")
            if isinstance(one, Request):
                self.limits.check_growth(one.growth)

    def _check_restated(
        self, record: MemberRecord, envelope: Envelope, message: Restate, fault: Refusal | None, at: float
    ) -> None:
        """Refuse what nobody was asked for, and what no uploads can have amounted to."""
        name, kept = record.name, self.machine.contributions
        if kept is None:
            raise Refusal(
                "session",
                f"Client {name!r} states anew what the coordinator has lost: its store is an old one and keeps no "
                "member's sums apart; restore a newer backup of it.",
            )
        if record.verified:
            raise Refusal("order", f"Client {name!r} states its uploads anew, but was not asked to.")
        if message.sequence != envelope.sequence or message.releases > message.sequence:
            raise Refusal("order", f"Client {name!r} states {message.sequence} of {envelope.sequence} uploads.")
        self._check_clock(name, message, at)
        self._check_sums(record, message.sums.n, kept.n_lost(record.member), fault, at)
        self._check_relayed(record, message)
        self.releases.check_restated(name, message, self.machine.epoch)

    def _check_releases(self, record: MemberRecord, message: Upload | FromServer) -> None:
        """Refuse more releases than a member can make, or more noise than they can have."""
        if isinstance(message, Upload) and message.relayed is not None:
            self._check_relayed(record, message)
            return
        models = 1 if self._servers is None else int((self._servers == record.member).sum())
        released = sum(upload.sums.n > 0 for upload in uploads_in(message))
        if released:
            self.releases.check_upload(record, released, self.machine.epoch, models)

    def _check_relayed(self, record: MemberRecord, message: Upload | Restate) -> None:
        """Refuse what only relays say from whoever is none; who was taken for one by an earlier version still is."""
        told = self.machine.members.told
        if message.relayed is not None and record.name not in self.rules.relays and record.member not in told:
            raise Refusal(
                "role",
                f"{record.name!r} says how much noise there is in what it forwards, but is no relay of this "
                f'federation; its operator can make it one: relays = ["{record.name}"].',
            )
        self.releases.check_relayed(record.name, message, told.get(record.member, 0.0))

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
