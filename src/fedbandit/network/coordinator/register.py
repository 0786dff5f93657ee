"""Who is who: the coordinator's register of members, their sessions and what their uploads have been so far.

A session is one opening of one durable state (`envelope.py`). What a Join with (incarnation, epoch, nonce, sequence,
chain) means, compared with what the register has for that member:

| incarnation      | epoch, nonce                  | uploads made           | then                                     |
|------------------|-------------------------------|------------------------|------------------------------------------|
| none yet         | any                           | any                    | welcome                                  |
| the same         | the same                      | –                      | a reconnection                           |
| the same         | a later epoch                 | at least those applied | a restart; the older session is shut out |
| the same         | a later epoch                 | fewer, or others       | refused: an old or other copy            |
| the same         | earlier, or another nonce     | –                      | refused: a copy that has been overtaken  |
| a new one        | any                           | any                    | the state was lost: uploads count from 1 |
| one of the past  | any                           | any                    | refused                                  |

A session that has made more uploads than were applied is heard, but nothing is acknowledged to it and no download is
sent to it before it has repeated the last upload that was applied: a copy may have made other uploads of that number.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from fedbandit.messages import Upload
from fedbandit.network.envelope import Envelope, extend
from fedbandit.network.refusal import Refusal

MOST_LIVES = 100
"""How often a member may start over before a person has to look at it."""

REMEMBERED = 16
"""How many uploads back a retry is recognised; a client sends one after the other."""


@dataclass
class Seat:
    """What the coordinator knows about one member, beside its statistics."""

    member: int
    name: str
    incarnation: int = 0
    epoch: int = 0
    nonce: int = 0
    chain: int = 0
    recent: list[int] = field(default_factory=list)
    """The chain after each of the last uploads, `chain` the last of them."""
    verified: bool = False
    """Whether the session is known to have the history that was applied. Until then nothing is acknowledged to it."""
    past: list[int] = field(default_factory=list)
    quarantined: str = ""
    absent: bool = False
    """Whether it has let a call go unanswered for too long, and has not spoken since."""
    last_spoke: float = 0.0
    observations: int = 0
    uploads: int = 0
    releases: int = 0
    """Uploads that carried something: what privacy is spent on."""
    downloads: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    refusals: int = 0

    @property
    def joined(self) -> bool:
        """Whether the member has ever joined."""
        return self.incarnation != 0

    @property
    def is_here(self) -> bool:
        """Whether an answer of this member is worth waiting for."""
        return self.joined and not self.absent and not self.quarantined

    def check_join(self, envelope: Envelope, applied: int) -> bool:
        """Whether this Join begins a new life; one that must not be heard is refused."""
        if not self.joined:
            return False
        if envelope.incarnation in self.past:
            raise Refusal("session", f"Client {self.name!r} uses a state that was given up for a new one.")
        if envelope.incarnation != self.incarnation:
            if len(self.past) >= MOST_LIVES:
                raise Refusal("session", f"Client {self.name!r} has lost its state {MOST_LIVES} times already.")
            return True
        opening = (envelope.epoch, envelope.nonce)
        if opening != (self.epoch, self.nonce) and envelope.epoch <= self.epoch:
            raise Refusal("session", f"Client {self.name!r} uses a copy of a state that is in use elsewhere.")
        if envelope.sequence < applied or (envelope.sequence == applied and envelope.chain != self.chain):
            raise Refusal(
                "session",
                f"Client {self.name!r} uses an old copy of its state: it has made {envelope.sequence} uploads, "
                f"but {applied} have been applied.",
            )
        return False

    def check_session(self, envelope: Envelope) -> None:
        """Refuse whoever is not the session that joined last."""
        if (envelope.incarnation, envelope.epoch, envelope.nonce) != (self.incarnation, self.epoch, self.nonce):
            raise Refusal("session", f"Client {self.name!r} has not joined, or another session of it has since.")

    def check_history(self, envelope: Envelope, upload: Upload, data: bytes, applied: int) -> None:
        """Refuse an upload that does not follow those which were applied, or a retry that is not one."""
        number = upload.sequence
        if number > applied + 1 or number <= applied - max(1, len(self.recent)):
            raise Refusal("order", f"Upload {number} is out of order: {applied + 1} is the next one expected.")
        if number == applied + 1:
            agrees = envelope.chain == self.chain
        else:
            agrees = number > 0 and extend(envelope.chain, data) == self.recent[number - applied - 1]
        if not agrees:
            raise Refusal("session", f"Upload {number} of client {self.name!r} differs from what was applied.")

    def note_upload(self, chain: int) -> None:
        """An upload was applied."""
        self.chain = chain
        self.recent = [*self.recent[1 - REMEMBERED :], chain]

    def open_session(self, envelope: Envelope, new_life: bool, applied: int) -> None:
        """From now on only this session is heard."""
        if new_life:
            self.past.append(self.incarnation)
            self.chain, self.recent = 0, []
        self.verified = envelope.sequence == applied or applied == 0
        self.incarnation, self.epoch, self.nonce = envelope.incarnation, envelope.epoch, envelope.nonce


class Register:
    """All seats, by name and by member."""

    def __init__(self, n_members: int) -> None:
        self.n_members = n_members
        self.by_name: dict[str, Seat] = {}
        self.by_member: list[Seat] = []

    def seat(self, name: str) -> Seat:
        """The seat of a client that has one."""
        if name not in self.by_name:
            raise Refusal("identity", f"Client {name!r} has no seat here; it must ask for an invitation first.")
        return self.by_name[name]

    def require_room(self, name: str) -> None:
        """Refuse one more client than there are seats."""
        if name not in self.by_name and len(self.by_member) >= self.n_members:
            raise Refusal("identity", f"There is no seat for client {name!r}: all {self.n_members} are taken.")

    def take_seat(self, name: str) -> Seat:
        """The seat of a client, the next free one if it has none."""
        self.require_room(name)
        if name not in self.by_name:
            self.by_name[name] = Seat(len(self.by_member), name)
            self.by_member.append(self.by_name[name])
        return self.by_name[name]

    def state(self) -> list[dict[str, Any]]:
        """Plain values."""
        return [asdict(seat) for seat in self.by_member]

    def restore(self, state: list[dict[str, Any]]) -> None:
        """Go on from there."""
        self.by_member = [Seat(**seat) for seat in state]
        self.by_name = {seat.name: seat for seat in self.by_member}
