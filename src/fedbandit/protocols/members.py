"""A coordinator that knows its members one by one: for clusters that change or overlap, and for graphs of users.

It keeps what each member has released (never what it was sent), an `Sharing` says what a member is to be sent, and
answers are addressed downloads. An upload costs as much as it concerns members; for thousands of clients that all share
with one another, `protocols.hub` is the faster memory.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from fedbandit.errors import FedbanditError
from fedbandit.messages import Collect, Download, Join, Message, Upload
from fedbandit.protocols.coordinator import Broadcast
from fedbandit.protocols.sequence import check_upload, is_retry
from fedbandit.sharing import NEVER, Members, Noise, Share, Sharing, no_members
from fedbandit.state import State
from fedbandit.sums import Sums

Messages = list[Message | Broadcast]


class Privatiser(typing.Protocol):
    """What noises one member's statistics, each increment exactly once."""

    def release(self, sums: Sums) -> Sums:
        """What may be used in place of `sums`."""
        ...

    def state(self) -> dict[str, Any]:
        """What must survive a crash."""
        ...

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from there."""
        ...


class MemberKeeper:
    """What such coordinators have in common: members' statistics, versions of downloads, uploads applied, and calls.

    A call (`collect`) asks members for what they have; when the last of them has answered, `collected` goes on. One
    that joins again while its answer is awaited is called again, so that a call that got lost blocks nobody. Whoever
    does not answer can be excused: it owes the answer, which is taken when it comes, but nobody waits for it.
    """

    def __init__(self, sharing: Sharing, n_clients: int, dim: int, ridge: float, noise: Noise | None) -> None:
        self.sharing = sharing
        self.members = no_members(n_clients, dim)
        self.dim = dim
        self.ridge = ridge
        self.noise = noise
        self.applied: dict[int, int] = {}
        self.joined = np.zeros(n_clients, dtype=np.bool_)
        self.sent = np.zeros(n_clients, dtype=np.int64)  # the version of the last download of each
        self.version = 0
        self.epoch = 0
        self.awaited: set[int] = set()  # members whose answer to the last call is still to come
        self.owed: dict[int, int] = {}  # member → answers to calls from which it was excused
        self.called_in: dict[int, int] = {}  # member → the epoch in which it was last called
        self.done = 0  # rounds, when `end_round` was last called
        self.mixed: set[int] = set()  # members whose last download had data of others
        self.privatise: Callable[[int], Privatiser | None] | None = None  # of a trusted coordinator
        self.streams: dict[int, Privatiser] = {}

    @property
    def exploring(self) -> bool:
        """Whether clients choose at random for now."""
        return self.sharing.exploring

    def gathered(self) -> Sums:
        """All that was ever uploaded; noised, if this coordinator is trusted to do that."""
        return Sums(self.members.V.sum(axis=0), self.members.b.sum(axis=0), int(self.members.n.sum()))

    def groups(self) -> list[list[int]] | None:
        """Who shares with whom; None if everyone does."""
        groups = self.sharing.groups()
        return None if len(groups) == 1 else groups

    def start_over(self, member: int) -> None:
        """The client has lost its state for good and numbers its uploads from 1 again; what it had uploaded stays."""
        self.applied.pop(member, None)
        if self.epoch > 0:
            self.owed[member] = max(1, self.owed.get(member, 0))  # it does not know that calls have begun
            self.called_in[member] = self.epoch

    def state(self) -> State:
        """All that a machine of the same system needs in order to go on."""
        header = {
            "machine": type(self).__name__,
            "applied": {str(i): n for i, n in self.applied.items()},
            "version": self.version,
            "epoch": self.epoch,
            "awaited": sorted(self.awaited),
            "owed": {str(i): n for i, n in self.owed.items()},
            "called_in": {str(i): epoch for i, epoch in self.called_in.items()},
            "done": self.done,
            "mixed": sorted(self.mixed),
            "sharing": self.sharing.state(),
        }
        arrays = {f"members.{k}": v for k, v in self.members._asdict().items()}
        for i, stream in self.streams.items():
            arrays |= {f"trusted.{i}.{key}": np.asarray(value) for key, value in stream.state().items()}
        return State(header, {"joined": self.joined.astype(np.int64), "sent": self.sent, **arrays})

    def restore(self, state: State) -> None:
        """Go on from there."""
        header, arrays = state
        if header["machine"] != type(self).__name__:
            raise FedbanditError(f"The state is one of a {header['machine']}, expected a {type(self).__name__}.")
        self.applied = {int(i): n for i, n in header["applied"].items()}
        self.version, self.epoch, self.done = header["version"], header["epoch"], header["done"]
        self.awaited, self.mixed = set(header["awaited"]), set(header["mixed"])
        self.owed = {int(i): n for i, n in header["owed"].items()}
        self.called_in = {int(i): epoch for i, epoch in header["called_in"].items()}
        self.sharing.restore(header["sharing"])
        self.joined = arrays["joined"].astype(np.bool_)
        self.sent = arrays["sent"].copy()
        self.members = Members(*(arrays[f"members.{k}"].copy() for k in Members._fields))
        saved: dict[int, dict[str, Any]] = {}
        for name, value in arrays.items():
            if name.startswith("trusted."):
                _, member, key = name.split(".")
                saved.setdefault(int(member), {})[key] = value
        for i, kept in saved.items():
            stream = self._stream(i)
            assert stream is not None
            stream.restore(kept)

    @property
    def clocked(self) -> bool:
        """Whether anything is ever done between rounds."""
        return self.next_wake(0) < NEVER

    def next_wake(self, done: int) -> int:
        """After how many rounds `end_round` has something to do next."""
        return self.sharing.next_wake(done)

    def end_round(self, done: int) -> Messages:
        """What to send between rounds."""
        self.done = done
        return []

    def receive(self, message: Message) -> Messages:
        """Apply one message and say what to send."""
        raise NotImplementedError

    def collect(self, who: Iterable[int]) -> Messages:
        """Call these members to send what they have; `collected` goes on when all have."""
        self.epoch += 1
        self.awaited = set(who)
        self.called_in |= dict.fromkeys(sorted(self.awaited), self.epoch)
        if not self.awaited:
            return self.collected()
        return [Collect(i, self.epoch) for i in sorted(self.awaited)]

    def collected(self) -> Messages:
        """What to do when everybody who was called has answered."""
        return []

    def answered(self, member: int) -> Messages:
        """A member has answered the call, or an earlier one that nobody waits for any more."""
        if member not in self.awaited:
            self.owed = {i: n - (i == member) for i, n in self.owed.items() if n - (i == member) > 0}
            return []
        self.awaited.discard(member)
        return [] if self.awaited else self.collected()

    def awaits(self) -> list[int]:
        """Whose answer has to come before anything goes on."""
        return sorted(self.awaited)

    def excuse(self, members: Iterable[int]) -> Messages:
        """Wait for these members no longer; what they have to say is taken when they say it."""
        excused = self.awaited.intersection(members)
        if not excused:
            return []
        for i in excused:
            self.owed[i] = self.owed.get(i, 0) + 1
        self.awaited -= excused
        return [] if self.awaited else self.collected()

    def require_asked(self, upload: Upload) -> None:
        """Refuse an upload that nobody asked for; retries are none."""
        member = upload.member
        if upload.sequence > self.applied.get(member, 0) and member not in self.awaited and member not in self.owed:
            raise FedbanditError(f"Client {member} sent upload {upload.sequence}, but was not asked for one.")

    def welcome(self, message: Join) -> Messages:
        """A member joins, perhaps again: it is called if its answer is open, and sent what it has missed."""
        member = message.member
        self.check_member(member)
        open_call = member in self.awaited or member in self.owed
        again: Messages = [Collect(member, self.called_in[member])] if open_call else []
        if self.sent[member] > message.version:
            return [*again, self.download(member, self.share(member))]
        first, self.joined[member] = not self.joined[member], True
        return [*again, *self.newcomer(member)] if first else again

    def newcomer(self, member: int) -> Messages:  # noqa: ARG002
        """What a member is sent that joins for the first time."""
        return []

    def check_member(self, member: int) -> None:
        """Refuse numbers that are none."""
        if not 0 <= member < self.joined.size:
            raise FedbanditError(f"Client {member} is not one of {self.joined.size} clients.")

    def add(self, upload: Upload) -> bool:
        """Add an upload to what its member has released; False if it was a retry."""
        self.check_member(upload.member)
        if is_retry(upload, self.applied.get(upload.member, 0)):
            return False
        check_upload(upload, self.dim, noisy=self.noise is not None)
        stream = self._stream(upload.member)
        sums = upload.sums if stream is None or upload.sums.n == 0 else stream.release(upload.sums)
        self.members.V[upload.member] += sums.V
        self.members.b[upload.member] += sums.b
        self.members.n[upload.member] += sums.n
        self.members.releases[upload.member] += sums.n > 0
        self.applied[upload.member] = upload.sequence
        return True

    def _stream(self, member: int) -> Privatiser | None:
        """What a trusted coordinator noises a member's uploads with before it does anything else with them."""
        if member not in self.streams and self.privatise is not None:
            stream = self.privatise(member)
            if stream is not None:
                self.streams[member] = stream
        return self.streams.get(member)

    def share(self, member: int) -> Share:
        """What a member is to be sent now."""
        return self.sharing.share(member, self.members, self.noise, self.ridge)

    def logdet(self, share: Share) -> float:
        """log det V(λ)/det λI of a share, as a row that adopts it has it."""
        _, value = np.linalg.slogdet(share.sums.V / self.ridge + np.eye(self.dim))
        return float(value) + share.slack.offset

    def is_news(self, member: int, share: Share) -> bool:
        """Whether there is anything in a share that its member has not: it was and is alone otherwise."""
        return member in self.mixed or self.has_others(member, share)

    def has_others(self, member: int, share: Share) -> bool:
        """Whether a share has data of others."""
        return share.sums.n != (self.members.n[member] if share.own else 0)

    def download(self, member: int, share: Share) -> Download:
        """The next download for a member."""
        self.version += 1
        self.sent[member] = self.version
        self.joined[member] = True  # whoever joins after it was sent something is sent that
        (self.mixed.add if self.has_others(member, share) else self.mixed.discard)(member)
        return Download(member, self.version, self.applied.get(member, 0), share.sums, share.slack, share.own)
