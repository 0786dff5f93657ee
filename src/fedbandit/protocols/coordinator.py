"""The coordinator's machine: messages in, messages out; no I/O, no clock.

Theory of operation
-------------------
A coordinator keeps what its members have released, never what it sent them. A *sharing* says what a member is to be
sent, a *protocol* says when: it subclasses `Coordinator` and says what it does with a Join, a Request or an Upload, at
the end of a round (`end_round`), and when a call is answered (`collected`).

Statistics stand in slots. Where groups never change (`Groups`) there is a slot a group, so that memory and time do not
grow with members; otherwise there is a slot a member.

Exactly once. A client numbers its uploads 1, 2, …; each number is applied once, and a repeated one is acknowledged.

Versions. Downloads have growing numbers, those of the same share at the same time the same one. A client that joins
again tells the last one it has, and is sent its share anew if that is not the last one it was sent. One that has seen
later versions or calls than there were here knows a state of this coordinator that was lost, or lies: from then on it
is *ahead* by so much, and what it is sent is numbered accordingly. No other member's numbers depend on what it says.

Calls. `collect` asks members for what they have; when the last one has answered, `collected` goes on. One that joins
again while its answer is awaited is called again, so that a lost call blocks nobody. Whoever does not answer can be
excused: it owes the answer, which is taken when it comes, but nobody waits for it. An upload that nobody asked for is
taken as well: it answers a call that a coordinator made before its store was restored from a backup.

Contributions. A coordinator that keeps each member's sums too (`keep_contributions`) can set a member's aside and take
them back, let a member go, and be told what all uploads of a member amount to, if it has lost some (`restate`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError
from fedbandit.messages import Collect, Download, Join, Message, Upload
from fedbandit.protocols.ahead import Ahead
from fedbandit.protocols.contributions import Contributing, check_upload
from fedbandit.protocols.pool import Pool, Privatiser
from fedbandit.protocols.pooling import Call, Pooling
from fedbandit.schedule import Wakes
from fedbandit.sharing import NEVER, Groups, Noise, Share, Sharing, no_members
from fedbandit.solving import LogDet
from fedbandit.state import State, StateError, require_like
from fedbandit.sums import Form, Sums
from fedbandit.types import Ints
from fedbandit.world import World

Messages = list[Message]


class Coordinator(Contributing, Pooling):
    """What coordinators have in common: statistics, versions of downloads, uploads applied, and calls."""

    retracts: ClassVar[bool] = True  # whether each member's sums can be kept apart

    def __init__(self, sharing: Sharing, world: World, dim: int, ridge: float, noise: Noise | None = None) -> None:
        N, self.sharing, self.wakes, self.form = world.n_clients, sharing, Wakes(sharing), Form(dim, world.actions)
        self.slot_of: Ints = sharing.group_of if isinstance(sharing, Groups) else np.arange(N)  # −1: no member
        self.members = no_members(N, self.form, int(self.slot_of.max()) + 1)
        self.dim, self.ridge, self.noise = dim, ridge, noise
        self.applied: dict[int, int] = {}  # the last upload that was applied, of each member
        self.joined = np.zeros(N, dtype=np.bool_)
        self.sent = np.zeros(N, dtype=np.int64)  # the version of the last download of each
        self.mixed = np.zeros(N, dtype=np.bool_)  # whether that one had data of others
        self.version = self.epoch = self.done = 0  # of the last download, call and `end_round`
        self.calls: dict[int, Call] = {}  # epoch → the call, until it is answered
        self.called_in = np.zeros(N, dtype=np.int64)  # the epoch in which each was last called
        self.ahead = Ahead()
        self.owed: dict[int, int] = {}  # member → answers to calls from which it was excused
        self.privatise: Callable[[int], Privatiser | None] | None = None  # of a trusted coordinator
        self.streams: dict[int, Privatiser] = {}
        self.pool: Pool | None = None  # of everybody together, where one total is all that is noised
        self.contributions = None
        self._logdet = LogDet(ridge)

    # What a protocol says

    def receive(self, message: Message) -> Messages:
        """Apply one message and say what to send."""
        raise NotImplementedError

    def next_wake(self, done: int) -> int:
        """After how many rounds `end_round` has something to do next, if `done` are over."""
        return self.wakes.after(done)

    def end_round(self, done: int) -> Messages:
        """What to send between rounds."""
        self.done = done
        return []

    def newcomer(self, member: int) -> Messages:  # noqa: ARG002
        """What a member is sent that joins for the first time."""
        return []

    def collected(self, members: list[int]) -> Messages:  # noqa: ARG002
        """What to do when everybody who was called has answered."""
        return []

    # What the network asks

    @property
    def clocked(self) -> bool:
        """Whether anything is ever done between rounds."""
        return self.next_wake(0) < NEVER

    @property
    def exploring(self) -> bool:
        """Whether clients choose at random for now."""
        return self.sharing.exploring

    def awaits(self) -> list[int]:
        """Whose answer has to come before anything goes on."""
        return sorted(i for call in self.calls.values() for i in call.missing)

    def excuse(self, members: Iterable[int]) -> Messages:
        """Wait for these members no longer; what they have to say is taken when they say it."""
        excused, sent = set(members), list[Message]()
        for epoch, call in list(self.calls.items()):
            gone = call.missing & excused
            for i in sorted(gone if not self.secure_sums else ()):  # a sum that is over takes nobody
                self.owed[i] = self.owed.get(i, 0) + 1
            call.missing.difference_update(gone)
            sent += self.go_on(epoch) if gone else []
        return sent

    def start_over(self, member: int) -> None:
        """The client has lost its state for good, and numbers its uploads from 1 again.

        What it had uploaded stays. When it joins, it is called, if calls have begun, and sent what there is.
        """
        self.applied.pop(member, None)
        self.ahead.forget(member)  # what it had seen is lost with its state
        if self.pool is not None:
            self.pool.forget(member)
        if self.contributions is not None:
            self.contributions.begin_anew(member)
        if self.secure_sums:
            self.sent[member] = self.version
            return
        if self.epoch > 0 and not self.is_asked(member):
            self.owed[member] = 1
            self.called_in[member] = self.epoch
        if self.joined[member] and self.share(member).sums.n > 0:
            self.version += 1
            self.sent[member] = self.version

    def gathered(self) -> Sums:
        """All that was ever uploaded; noised, if this coordinator is trusted to do that."""
        return Sums(self.members.V.sum(axis=0), self.members.b.sum(axis=0), int(self.members.n.sum()))

    def groups(self) -> list[list[int]] | None:
        """Who shares with whom; None if everyone does."""
        groups = self.sharing.groups()
        return None if len(groups) == 1 else groups

    # What protocols are made of

    def begin(self, released: Mapping[int, Sums]) -> Messages:
        """Start with what members have released elsewhere: all of them join, and are sent their shares."""
        for member, sums in released.items():
            self.members.add(member, int(self.slot_of[member]), sums)
            if self.contributions is not None:
                self.contributions.add(member, sums)
        return self.send_shares(released)

    def welcome(self, message: Join) -> Messages:
        """A member joins, perhaps again: it is called if its answer is open, and sent what it has missed."""
        member = message.member
        self.check_member(member)
        self._catch_up(message)
        again: Messages = [self._call(member)] if self.is_asked(member) else []
        if self.sent[member] > message.version:
            return [*again, *self.send_shares([member])]
        first, self.joined[member] = not self.joined[member], True
        return [*again, *self.newcomer(member)] if first else again

    def _catch_up(self, message: Join) -> None:
        """A member that has seen what never was here: this is an older state of this coordinator."""
        if self.pool is not None and self.pool.secure:  # all in a sum have one epoch, and versions are epochs
            self.epoch = self.pool.believed(message.member, message.epoch, self.epoch)
            return
        member = message.member
        asked_in = int(self.called_in[member]) if self.is_asked(member) else 0
        version = self.version if self.pool is None else message.version  # publications are sealed, and nobody is ahead
        if self.ahead.note(message, version, self.epoch, asked_in):
            self.sent[member] = message.version + 1  # whatever there is, it has something else

    def believes(self, member: int) -> tuple[int, ...]:
        """What there is here by a member's word: how far it is ahead, and the last epoch."""
        seen = 0 if self.pool is None else self.pool.seen_by(member)
        return self.ahead.versions(member), self.ahead.calls(member), self.epoch, seen

    def check_member(self, member: int) -> None:
        """Refuse numbers that are none."""
        if not 0 <= member < self.slot_of.size or self.slot_of[member] < 0:
            raise FedbanditError(f"Client {member} is not one of {self.slot_of.size} clients.")

    def is_awaited(self, member: int) -> bool:
        """Whether something waits for this member's answer."""
        return any(member in call.missing for call in self.calls.values())

    def is_asked(self, member: int) -> bool:
        """Whether a member has been called and not answered, excused or not."""
        return member in self.owed or self.is_awaited(member)

    def add(self, upload: Upload) -> bool:
        """Add an upload to what its member has released; False if it was a retry."""
        member, sums = upload.member, upload.sums
        self.check_member(member)
        expected = self.applied.get(member, 0) + 1
        if upload.sequence > expected:
            raise FedbanditError(
                f"Client {member} sent upload {upload.sequence}, but {expected} is the next one expected."
            )
        if upload.sequence < expected:
            return False
        check_upload(upload, self.form)
        sums = self.in_units(sums, upload.round)
        stream = self._stream(member)
        if stream is not None and sums.n > 0:
            sums = stream.release(sums)
        self.applied[member] = upload.sequence
        if self.pool is not None:
            self.pool.add(member, upload.sequence, sums)
        elif self.contributions is None or not self.contributions.aside[member]:
            self.members.add(member, int(self.slot_of[member]), sums)
        if self.contributions is not None:
            self.contributions.add(member, sums)
        self.members.note_relayed(member, upload.relayed)
        return True

    def _stream(self, member: int) -> Privatiser | None:
        """What a trusted coordinator noises a member's uploads with before it does anything else with them."""
        if member not in self.streams and self.privatise and (stream := self.privatise(member)) is not None:
            self.streams[member] = stream
        return self.streams.get(member)

    def collect(self, who: Iterable[int]) -> Messages:
        """Call these members to send what they have; `collected` goes on when all have."""
        if self.pool is not None and self.pool.is_over(self.epoch):
            return []
        self.epoch += 1
        members = sorted(who)
        self.calls[self.epoch] = Call(members, set(members))
        self.called_in[members] = self.epoch
        return [self._call(i) for i in members] or self.go_on(self.epoch)

    def _call(self, member: int) -> Collect:
        included = self.pool.included.get(member, 0) if self.pool is not None and self.pool.secure else 0
        return Collect(member, int(self.called_in[member]) + self.ahead.calls(member), included)

    def answered(self, member: int) -> Messages:
        """A member has answered its call, or an earlier one that nobody waits for any more."""
        for epoch, call in self.calls.items():
            if member in call.missing:
                call.missing.discard(member)
                return self.go_on(epoch)
        self.owed = {i: n - (i == member) for i, n in self.owed.items() if n - (i == member) > 0}
        return []

    def go_on(self, epoch: int) -> Messages:
        """What follows if everybody has answered a call."""
        if self.calls[epoch].missing:
            return []
        members = self.calls.pop(epoch).members
        if self.pool is not None and not self.pool.close(epoch, self.members):
            return []
        return self.collected(members)

    def share(self, member: int) -> Share:
        """What a member is to be sent now."""
        return self.sharing.share(member, self.members, self.noise, self.ridge)

    def send(self, who: Sequence[int] | Ints, share: Share) -> Messages:
        """Send these members this share, as a new version."""
        if len(who) == 0:
            return []
        at = np.asarray(who, dtype=np.int64)
        self.version = self.version + 1 if self.pool is None else self.pool.version
        self.sent[at] = self.version
        for i in at.tolist() if self.ahead.by_member else ():
            self.sent[i] += self.ahead.versions(i)
        self.joined[at] = True  # whoever joins after it was sent something is sent that
        self.mixed[at] = self.has_others(at, share)
        sums, slack, own = share
        last = self.applied if self.pool is None else self.pool.included
        form = self.form.actions, self.date
        versions = zip(at.tolist(), self.sent[at].tolist(), strict=True)
        return [Download(i, version, last.get(i, 0), sums, slack, own, *form) for i, version in versions]

    def send_shares(self, who: Iterable[int]) -> Messages:
        """Send each of these members its share; those who get the same one, in the same version."""
        by_share: dict[int, tuple[Share, list[int]]] = {}
        for i in who:
            share = self.share(i)
            by_share.setdefault(id(share), (share, []))[1].append(i)
        return [message for share, same in by_share.values() for message in self.send(same, share)]

    def has_others(self, who: Ints, share: Share) -> Any:
        """Of each of these members: whether this share has data of others."""
        return share.sums.n != (self.members.n[who] if share.own else 0)

    def logdet(self, share: Share) -> float:
        """log det V(λ)/det λI of a share, as a model that adopts it has it."""
        offset = 0.0 if share.slack.spectrum > 0 else share.slack.offset  # nobody knows yet what a client mixes
        return self._logdet(self.members.forgetting.total(share.sums, self.members.round)) + offset

    # How it is kept

    def kept(self) -> dict[str, NDArray[Any]]:
        """The arrays that a state consists of, by name."""
        return {
            **{name: getattr(self.members, name) for name in ("V", "b", "n", "releases")},
            "joined": self.joined,
            "sent": self.sent,
            "mixed": self.mixed,
            "called_in": self.called_in,
            **({} if self.contributions is None else self.contributions.kept()),
        }

    def state(self) -> State:
        """All that a machine of the same system needs in order to go on."""
        header = {
            "machine": type(self).__name__,
            "version": self.version,
            "epoch": self.epoch,
            "done": self.done,
            "applied": {str(i): n for i, n in self.applied.items()},
            "calls": {str(epoch): [call.members, sorted(call.missing)] for epoch, call in self.calls.items()},
            "owed": {str(i): n for i, n in self.owed.items()},
            "sharing": self.sharing.state(),
        } | ({} if self.date is None else {"round": self.date})
        if self.ahead.by_member:
            header["ahead"] = self.ahead.state()
        arrays: dict[str, NDArray[Any]] = {
            name: array.astype(np.int64 if array.dtype == bool else array.dtype) for name, array in self.kept().items()
        }
        for i, stream in self.streams.items():
            arrays |= {f"trusted.{i}.{key}": np.asarray(value) for key, value in stream.state().items()}
        if self.pool is not None:
            arrays |= {f"pool.{key}": value for key, value in self.pool.state().items()}
        if self.contributions is not None:
            arrays |= self.contributions.lost()
        return State(header, arrays | self.members.relays())

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        require_like(state, self.state(), {"trusted.*": None, "pool.*": None, "lost.*": None, "relayed.*": None})
        self.take_back(state)

    def take_back(self, state: State) -> None:
        """Go on from a state that fits."""
        header, arrays = state
        if header["machine"] != type(self).__name__:
            raise StateError(f"The state is one of a {header['machine']}, expected a {type(self).__name__}.")
        for name, array in self.kept().items():
            array[:] = arrays[name]
        self.members.restore_relays(arrays)
        self.members.round = header.get("round", 0)
        if self.contributions is not None:
            self.contributions.restore_lost(arrays)
        self.streams = {}
        self.version, self.epoch, self.done = header["version"], header["epoch"], header["done"]
        self.applied = {int(i): n for i, n in header["applied"].items()}
        self.calls = {int(epoch): Call(who, set(missing)) for epoch, (who, missing) in header["calls"].items()}
        self.owed = {int(i): n for i, n in header["owed"].items()}
        self.ahead.restore(header.get("ahead", {}))
        self.sharing.restore(header["sharing"])
        if self.pool is not None:
            pooled = {name.removeprefix("pool."): value for name, value in arrays.items() if name.startswith("pool.")}
            self.pool.restore(pooled, self.members)
        trusted: dict[int, dict[str, Any]] = {}
        for _, member, key in (name.split(".") for name in arrays if name.startswith("trusted.")):
            trusted.setdefault(int(member), {})[key] = arrays[f"trusted.{member}.{key}"]
        for i, saved in trusted.items():
            stream = self._stream(i)
            if stream is None:
                raise StateError(f"The state has noise of client {i}, but this coordinator is not trusted with it.")
            stream.restore(saved)


def not_taken(message: Message) -> FedbanditError:
    """The error for a message that is not meant for this coordinator."""
    return FedbanditError(f"This coordinator does not take a {type(message).__name__}.")
