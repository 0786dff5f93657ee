"""A coordinator that knows its members one by one: for clusters that change or overlap, and for graphs of users.

It keeps what each member has released (never what it was sent), an `Assembly` says what a member is to be sent, and
answers are addressed downloads. Everybody is a member from the start. An upload costs as much as it concerns members;
for thousands of clients that all share with one another, `protocols.hub` is the faster memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fedbandit.assembly import Assembly, Members, Noise, Share, no_members
from fedbandit.errors import FedbanditError
from fedbandit.messages import Collect, Download, Join, Message, Receipt, Upload
from fedbandit.protocols.coordinator import Broadcast
from fedbandit.protocols.hub import NOTHING_COUNTED
from fedbandit.protocols.sequence import check_upload, is_retry
from fedbandit.statistics import TIE, Array

Messages = list[Message | Broadcast]


class MemberKeeper:
    """What such coordinators have in common: members' statistics, versions of downloads, uploads applied, and calls.

    A call (`collect`) asks members for what they have; when the last of them has answered, `collected` goes on.
    """

    def __init__(self, assembly: Assembly, n_clients: int, dim: int, ridge: float, noise: Noise | None) -> None:
        self.assembly = assembly
        self.members = no_members(n_clients, dim)
        self.dim = dim
        self.ridge = ridge
        self.noise = noise
        self.applied: dict[int, int] = {}
        self.version = 0
        self.epoch = 0
        self.awaited: set[int] = set()  # members whose answer to the last call is still to come
        self.done = 0  # rounds, when `end_round` was last called
        self.mixed: set[int] = set()  # members whose last download had data of others

    @property
    def exploring(self) -> bool:
        """Whether clients choose at random for now."""
        return self.assembly.exploring

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Everything: plain values and arrays."""
        values = {
            "applied": {str(i): n for i, n in self.applied.items()},
            "version": self.version,
            "epoch": self.epoch,
            "awaited": sorted(self.awaited),
            "done": self.done,
            "mixed": sorted(self.mixed),
            "assembly": self.assembly.state(),
        }
        return values, {f"members.{k}": v for k, v in self.members._asdict().items()}

    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.applied = {int(i): n for i, n in values["applied"].items()}
        self.version, self.epoch, self.done = values["version"], values["epoch"], values["done"]
        self.awaited, self.mixed = set(values["awaited"]), set(values["mixed"])
        self.assembly.restore(values["assembly"])
        self.members = Members(*(arrays[f"members.{k}"].copy() for k in Members._fields))

    def next_wake(self, done: int) -> int:
        """After how many rounds `end_round` has something to do next."""
        return self.assembly.next_wake(done)

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
        if not self.awaited:
            return self.collected()
        return [Collect(i, self.epoch) for i in sorted(self.awaited)]

    def collected(self) -> Messages:
        """What to do when everybody who was called has answered."""
        return []

    def answered(self, member: int) -> Messages:
        """A member has answered the call."""
        self.awaited.discard(member)
        return [] if self.awaited else self.collected()

    def check_member(self, member: int) -> None:
        """Refuse numbers that are none."""
        if not 0 <= member < self.members.n.size:
            raise FedbanditError(f"Client {member} is not one of {self.members.n.size} clients.")

    def add(self, upload: Upload) -> bool:
        """Add an upload to what its member has released; False if it was a retry."""
        self.check_member(upload.member)
        if is_retry(upload, self.applied.get(upload.member, 0)):
            return False
        check_upload(upload, self.dim, noisy=self.noise is not None)
        self.members.V[upload.member] += upload.sums.V
        self.members.b[upload.member] += upload.sums.b
        self.members.n[upload.member] += upload.sums.n
        self.applied[upload.member] = upload.sequence
        return True

    def share(self, member: int) -> Share:
        """What a member is to be sent now."""
        return self.assembly.share(member, self.members, self.noise, self.ridge)

    def logdet(self, share: Share) -> float:
        """log det V(λ)/det λI of a share, as a row that adopts it has it."""
        _, value = np.linalg.slogdet(share.sums.V / self.ridge + np.eye(self.dim))
        return float(value) + share.slack.offset

    def is_news(self, member: int, share: Share) -> bool:
        """Whether there is anything in a share that its member has not: it was and is alone otherwise."""
        return member in self.mixed or share.sums.n != self.members.n[member]

    def download(self, member: int, share: Share) -> Download:
        """The next download for a member."""
        self.version += 1
        (self.mixed.discard if share.sums.n == self.members.n[member] else self.mixed.add)(member)
        return Download(member, self.version, self.applied.get(member, 0), share.sums, share.slack)


class MemberStar(MemberKeeper):
    """Members upload on their own triggers; each that is stale is sent its share (Async-LinUCB, Alg. 1, per member).

    A member is stale when measure(its share) − measure(what it has) > log γ_D, as in `protocols.hub`. When the assembly
    wakes, everybody is called, groups are formed anew, and whoever is in another group is sent its new share.
    """

    def __init__(
        self,
        assembly: Assembly,
        n_clients: int,
        dim: int,
        ridge: float,
        noise: Noise | None,
        *,
        log_gamma: Array,
        counting: bool,
    ) -> None:
        super().__init__(assembly, n_clients, dim, ridge, noise)
        self.log_gamma = np.resize(log_gamma, n_clients)
        self.counting = counting
        self.known = np.full(n_clients, NOTHING_COUNTED if counting else 0.0)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Also how much each member has."""
        values, arrays = super().state()
        return values, arrays | {"known": self.known}

    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Go on from there."""
        super().restore(values, arrays)
        self.known = arrays["known"].copy()

    def end_round(self, done: int) -> Messages:
        """Call everybody, to form groups anew."""
        self.done = done
        return [] if self.awaited else self.collect(range(self.members.n.size))

    def collected(self) -> Messages:
        """All is in: regroup."""
        everyone = range(self.members.n.size)
        before = [self._sum(j) for j in everyone]
        if self.assembly.regroup(self.members, self.done, self.noise):
            moved = [j for j in everyone if not np.array_equal(self._sum(j), before[j])]
            self.known[moved] = -np.inf  # whatever they have, it is not their group's
        return self._refresh(everyone)

    def receive(self, message: Message) -> Messages:
        """Apply an Upload; joining changes nothing."""
        match message:
            case Join(member):
                self.check_member(member)
                return []
            case Upload(member, sequence, _, known):
                if not self.add(message):
                    return [Receipt(member, self.applied[member])]
                self.known[member] = known
                if member in self.awaited:
                    return [Receipt(member, sequence), *self.answered(member)]
                stale = [] if self.awaited else self.assembly.affected(member)
                return [Receipt(member, sequence), *self._refresh(stale)]
            case _:
                raise FedbanditError(f"This coordinator does not take a {type(message).__name__}.")

    def _sum(self, member: int) -> Array:
        return self.assembly.share(member, self.members, None, self.ridge).sums.V

    def _refresh(self, candidates: Iterable[int]) -> Messages:
        sent: Messages = []
        for j in candidates:
            share = self.share(j)
            measured = self._measure(share)
            if measured > self.known[j] + self.log_gamma[j] + TIE:
                self.known[j] = measured
                sent.append(self.download(j, share))
        return sent

    def _measure(self, share: Share) -> float:
        if self.counting:
            return float(np.log(share.sums.n)) if share.sums.n > 0 else NOTHING_COUNTED
        return self.logdet(share)
