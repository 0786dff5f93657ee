"""The coordinator's register: members, their sessions, and the history of their uploads.

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

"None yet" is incarnation 0: a frame that says so is malformed, or its sender could join and pass for one that has not.
The past is the member's own and that of those who had its number before.

A session that has made more uploads than were applied is accepted, but nothing is acknowledged to it and no download
is sent to it before it has repeated the last upload that was applied: a copy may have made other uploads of that
number. If it cannot, because these were acknowledged by a store that has been lost since, it is asked what all its
uploads amount to (`messages.Recall`), which takes the place of what there is from that state; what came from states
that the member has lost before stays.

A copy that is refused may have sent an upload before it knew that, of records which its original releases too, with
other noise. In a private federation that is one more life of the client (`MemberRecord.note_copy`), and composes. In
secure sums a copy has not been in the last sum that its member was in, which its Join says: it is refused before it
can contribute.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from fedbandit.messages import Upload
from fedbandit.network.envelope import Envelope, extend
from fedbandit.network.refusal import Refusal
from fedbandit.server_messages import FromServer
from fedbandit.state import READERS, Reader, State, StateError, require_like

MOST_INCARNATIONS = 100
"""How often a member may lose its state within a day; so many states that were given up are remembered."""

DAY = 86_400.0

REMEMBERED = 16
"""How many uploads back a retry is recognised; a client sends one after the other."""


@dataclass
class MemberRecord:
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
    past: list[tuple[int, float]] = field(default_factory=list)
    """The last incarnations that were given up, and when; in a private federation also openings (by their nonce) of
    copies whose uploads were refused, but have been seen: their noise is another one."""
    predecessors: list[tuple[int, float]] = field(default_factory=list)
    """The same of those who had the number before: their states are not taken for this member's."""
    enrolled: float = 0.0
    """When it was invited first."""
    quarantined: str = ""
    quarantined_by: str = ""
    suspected: bool = False
    """Whether most of the others contradict it (`robust.py`): nobody is sent what it has uploaded."""
    trusted: bool = False
    """Whether a person has ended its quarantine: what it says is not compared with the others' any more."""
    absent: bool = False
    """Whether it has let a call go unanswered for too long, and has sent nothing since."""
    last_heard: float = 0.0
    observations: int = 0
    uploads: int = 0
    releases: int = 0
    """Uploads that carried something: what privacy is spent on."""
    released_before: int = 0
    """Those of them that do not count for its present state, which has a budget of its own (`released.py`): made in
    earlier ones, or known by a restatement only."""
    downloads: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    refusals: int = 0
    asked: int = -1
    """How many it had observed when its last Request led to a call; −1 if none has (`hearing.py`)."""
    asked_in: int = 0
    asked_at: float = 0.0
    pressed: int = 0
    """How often in a row it was heard only because it had waited."""
    observed_before: int = 0
    """Those of its observations that are of states which it has lost."""

    @property
    def joined(self) -> bool:
        """Whether the member has ever joined."""
        return self.incarnation != 0

    @property
    def observed(self) -> int:
        """How many of its observations are of its present state."""
        return max(self.observations - self.observed_before, 0)  # what local servers report may fall

    @property
    def session(self) -> tuple[int, int, int, bool, bool]:
        """What a message can change of who is heard and sent something, even if the machine does not change."""
        return self.incarnation, self.epoch, self.nonce, self.verified, self.absent

    @property
    def given_up(self) -> list[tuple[int, float]]:
        """All that is past under this number, of this member and of those before it."""
        return [*self.predecessors, *self.past]

    @property
    def is_present(self) -> bool:
        """Whether an answer of this member is worth waiting for."""
        return self.joined and not self.absent and not self.quarantined

    def check_join(self, envelope: Envelope, applied: int, at: float) -> bool:
        """Whether this Join begins a new incarnation; one that the table does not allow is refused."""
        if any(envelope.incarnation == known for known, _ in self.given_up):
            raise Refusal(
                "session",
                f"Client {self.name!r} uses a state that was given up for a new one: go on with the newer file, or "
                "begin with a new one if there is none; what only this one has is lost.",
            )
        if not self.joined:
            return False
        if envelope.incarnation != self.incarnation:
            if len(self.past) >= MOST_INCARNATIONS and 0 <= at - self.past[0][1] < DAY:
                raise Refusal(
                    "session", f"Client {self.name!r} has lost its state {MOST_INCARNATIONS} times within a day."
                )
            return True
        opening = (envelope.epoch, envelope.nonce)
        if opening != (self.epoch, self.nonce) and envelope.epoch <= self.epoch:
            raise Refusal(
                "session",
                f"Client {self.name!r} uses a copy of a state that is in use elsewhere: go on with that one, and give "
                "this client a name and a file of its own; what only the copy has is lost.",
            )
        if envelope.sequence < applied or (envelope.sequence == applied and envelope.chain != self.chain):
            raise Refusal(
                "session",
                f"Client {self.name!r} uses an old copy of its state: it has made {envelope.sequence} uploads, "
                f"but {applied} have been applied.",
            )
        return False

    def check_session(self, envelope: Envelope) -> None:
        """Refuse any session but the one that joined last."""
        if (envelope.incarnation, envelope.epoch, envelope.nonce) != (self.incarnation, self.epoch, self.nonce):
            raise Refusal("session", f"Client {self.name!r} has not joined, or another session of it has since.")

    def check_history(self, envelope: Envelope, upload: Upload | FromServer, data: bytes, applied: int) -> None:
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

    def erase(self, at: float) -> None:
        """Nothing of it is left but what privacy it has spent. Its state is given up, so that it begins anew."""
        past = [*self.past[1 - MOST_INCARNATIONS :], (self.incarnation, at)] if self.joined else self.past
        names = ("enrolled", "predecessors", "releases", "quarantined", "quarantined_by", "suspected", "trusted")
        kept = {name: getattr(self, name) for name in names} | {"past": past, "released_before": self.releases}
        vars(self).update(vars(MemberRecord(self.member, self.name)) | kept)

    def note_upload(self, chain: int, size: int) -> None:
        """An upload of so many bytes was applied."""
        self.chain, self.verified = chain, True
        self.recent = [*self.recent[1 - REMEMBERED :], chain]
        self.bytes_up += size

    def note_copy(self, nonce: int, at: float) -> bool:
        """An upload of this opening of a copy was refused, and seen; whether that was not known yet."""
        if any(nonce == known for known, _ in self.given_up):
            return False
        self.past = [*self.past[1 - MOST_INCARNATIONS :], (nonce, at)]
        return True

    def note_restatement(self, envelope: Envelope, n: int, releases: int) -> None:
        """All uploads of this state were stated anew, so many more than were known: from here the history goes on."""
        self.chain, self.recent, self.verified = envelope.chain, [envelope.chain], True
        self.observations += n
        self.releases += releases
        self.released_before += releases

    def open_session(self, envelope: Envelope, reborn: bool, applied: int, at: float) -> None:
        """From now on only this session is accepted; one that is reborn has lost its history."""
        if reborn:
            self.past = [*self.past[1 - MOST_INCARNATIONS :], (self.incarnation, at)]
            self.chain, self.recent, self.released_before = 0, [], self.releases
            self.observed_before = self.observations
        self.verified = envelope.sequence == applied
        self.incarnation, self.epoch, self.nonce = envelope.incarnation, envelope.epoch, envelope.nonce


class Register:
    """All members, by name and by number. A number that a member has left is given to the next newcomer."""

    def __init__(self, n_members: int) -> None:
        self.n_members = n_members
        self.by_name: dict[str, MemberRecord] = {}
        self.by_number: list[MemberRecord] = []

    @property
    def present(self) -> list[MemberRecord]:
        """The members there are."""
        return list(self.by_name.values())

    def record(self, name: str) -> MemberRecord:
        """The record of a client that is a member."""
        if name not in self.by_name:
            raise Refusal("identity", f"Client {name!r} is not a member; it must ask for an invitation first.")
        return self.by_name[name]

    def require_place(self, name: str) -> None:
        """Refuse one more client than the federation has places."""
        if name not in self.by_name and len(self.by_name) >= self.n_members:
            raise Refusal("identity", f"There is no place for client {name!r}: all {self.n_members} are taken.")

    def enrol(self, name: str, at: float) -> MemberRecord:
        """The record of a client; one that is not a member gets the first number that is free."""
        self.require_place(name)
        if name not in self.by_name:
            free = (r.member for r in self.by_number if not r.name)
            member = next(free, len(self.by_number))
            self.by_name[name] = MemberRecord(member, name, enrolled=at, predecessors=self._predecessors(member))
            self.by_number[member : member + 1] = [self.by_name[name]]
        return self.by_name[name]

    def readmit(self, name: str, member: int, at: float, envelope: Envelope | None = None) -> MemberRecord:
        """Give a client the number that it says it had, if it is free."""
        self.require_place(name)
        taken = member < len(self.by_number) and self.by_number[member].name
        if member >= self.n_members or taken:
            raise Refusal("identity", f"Client {name!r} says that it is member {member}, which is another client.")
        before = self._predecessors(member)
        if envelope is not None:
            MemberRecord(member, name, predecessors=before).check_join(envelope, 0, at)
        self.by_number += [MemberRecord(i, "") for i in range(len(self.by_number), member + 1)]
        self.by_number[member] = self.by_name[name] = MemberRecord(member, name, enrolled=at, predecessors=before)
        return self.by_name[name]

    def free(self, name: str, at: float) -> int:
        """A member is gone; its number, which another may get. Its state is given up: what it had sent has stayed."""
        record = self.by_name.pop(self.record(name).name)
        before = record.given_up
        if record.joined:  # one that never came has no state, and its successor's life is the first
            before.append((record.incarnation, at))
        self.by_number[record.member] = MemberRecord(record.member, "", predecessors=before[-MOST_INCARNATIONS:])
        return record.member

    def _predecessors(self, member: int) -> list[tuple[int, float]]:
        """What is past of those who had a number that is free."""
        return self.by_number[member].given_up if member < len(self.by_number) else []

    def state(self) -> list[dict[str, Any]]:
        """Plain values, one dict a member; of a number that is free, a record without a name."""
        return [dict(vars(record)) for record in self.by_number]

    def restore(self, state: list[dict[str, Any]]) -> None:
        """Go on from there."""
        fresh = vars(MemberRecord(0, ""))
        for number, kept in enumerate(state):
            require_like(State(kept, {}), State(fresh, {}))
            if set(kept) != set(fresh) or kept["member"] != number or number >= self.n_members:
                raise StateError(f"The stored record {number} is not one of {self.n_members} members.")
        pairs = ("past", "predecessors")
        self.by_number = [
            MemberRecord(**{**kept, **{name: [(i, at) for i, at in kept[name]] for name in pairs}}) for kept in state
        ]
        self.by_name = {record.name: record for record in self.by_number if record.name}


def fit_places(stored: NDArray[Any], fresh: NDArray[Any] | None) -> NDArray[Any]:
    """An array with a row for each place, for another number of places."""
    if fresh is None or stored.shape == fresh.shape or stored.shape[1:] != fresh.shape[1:]:
        return stored
    fitted, rows = fresh.copy(), min(len(stored), len(fresh))
    fitted[:rows] = stored[:rows]
    return fitted


def _read_first(state: State) -> State:
    """Format 1: no terms, no time of invitation, and of incarnations that were given up only the number."""
    header, arrays = state
    fresh = vars(MemberRecord(0, ""))
    members = [{**fresh, **kept, "past": [[i, 0.0] for i in kept["past"]]} for kept in header["members"]]
    return _read_third(State({**header, "members": members, "terms": []}, arrays))


def _read_second(state: State) -> State:
    """Format 2: what was past under a number was its member's, also of members before. Who has it now keeps it."""
    header, arrays = state
    members = [
        {**kept, "predecessors": []} if kept["name"] else {**kept, "past": [], "predecessors": kept["past"]}
        for kept in header["members"]
    ]
    return _read_third(State({**header, "members": members}, arrays))


def _read_third(state: State) -> State:
    """Format 3: no migrations, no erasure whose compaction is owed, releases of all states of a member together, and
    nothing about its Requests.
    """
    header, arrays = state
    fresh = vars(MemberRecord(0, ""))
    members = [{**fresh, **kept, "released_before": kept["releases"]} for kept in header["members"]]
    return State({**header, "members": members, "migrated": {}, "receipts": {}}, arrays)


READERS["coordinator", 1] = Reader(snapshot=_read_first)
READERS["coordinator", 2] = Reader(snapshot=_read_second)
READERS["coordinator", 3] = Reader(snapshot=_read_third)
