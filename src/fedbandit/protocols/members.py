"""A coordinator that knows its members one by one: for clusters that change or overlap, and for graphs of users.

It keeps what each member has released (never what it was sent), an `Assembly` says what a member is to be sent, and
answers are addressed downloads. An upload costs as much as it concerns members; for thousands of clients that all share
with one another, `protocols.hub` is the faster memory.
"""

from __future__ import annotations

import math

import numpy as np

from fedbandit.assembly import Assembly, Members, Noise, Share, no_members
from fedbandit.errors import FedbanditError
from fedbandit.messages import Collect, Download, Join, Message, Receipt, Request, Upload
from fedbandit.protocols.coordinator import Broadcast
from fedbandit.protocols.hub import NOTHING_COUNTED
from fedbandit.protocols.sequence import check_upload, is_retry
from fedbandit.state import State
from fedbandit.statistics import TIE, Array


class MemberKeeper:
    """What such coordinators have in common: members' statistics, versions of downloads, uploads applied."""

    def __init__(self, assembly: Assembly, n_clients: int, dim: int, ridge: float, noise: Noise | None) -> None:
        self.assembly = assembly
        self.members = no_members(n_clients, dim)
        self.dim = dim
        self.ridge = ridge
        self.noise = noise
        self.applied: dict[int, int] = {}
        self.joined = np.zeros(n_clients, dtype=np.bool_)
        self.sent = np.zeros(n_clients, dtype=np.int64)  # the version of the last download of each
        self.version = 0

    @property
    def exploring(self) -> bool:
        """Whether clients choose at random for now."""
        return self.assembly.exploring

    def start_over(self, member: int) -> None:
        """The client has lost its state for good and numbers its uploads from 1 again; what it had uploaded stays."""
        self.applied.pop(member, None)

    def state(self) -> State:
        """All that a machine of the same system needs in order to go on."""
        header = {
            "machine": type(self).__name__,
            "applied": {str(i): n for i, n in self.applied.items()},
            "version": self.version,
            "assembly": self.assembly.state(),
        }
        arrays = {f"members.{k}": v for k, v in self.members._asdict().items()}
        return State(header, {"joined": self.joined.astype(np.int64), "sent": self.sent, **arrays})

    def restore(self, state: State) -> None:
        """Go on from there."""
        header, arrays = state
        if header["machine"] != type(self).__name__:
            raise FedbanditError(f"The state is one of a {header['machine']}, expected a {type(self).__name__}.")
        self.applied = {int(i): n for i, n in header["applied"].items()}
        self.version = header["version"]
        self.assembly.restore(header["assembly"])
        self.joined = arrays["joined"].astype(np.bool_)
        self.sent = arrays["sent"].copy()
        self.members = Members(*(arrays[f"members.{k}"].copy() for k in Members._fields))

    def next_wake(self, done: int) -> int:
        """After how many rounds `end_round` has something to do next."""
        return self.assembly.next_wake(done)

    def end_round(self, done: int) -> list[Message | Broadcast]:  # noqa: ARG002 - most have nothing to do
        """What to send between rounds."""
        return []

    def receive(self, message: Message) -> list[Message | Broadcast]:
        """Apply one message and say what to send."""
        raise NotImplementedError

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
        self.members.V[upload.member] += upload.sums.V
        self.members.b[upload.member] += upload.sums.b
        self.members.n[upload.member] += upload.sums.n
        self.members.releases[upload.member] += upload.sums.n > 0
        self.applied[upload.member] = upload.sequence
        return True

    def catch_up(self, member: int, version: int) -> list[Message | Broadcast]:
        """A member that is known already joins again: it is sent its share if it lacks a download."""
        return [self.download(member, self.share(member))] if self.sent[member] > version else []

    def share(self, member: int) -> Share:
        """What a member is to be sent now."""
        return self.assembly.share(member, self.members, self.noise, self.ridge)

    def download(self, member: int, share: Share) -> Download:
        """The next download for a member."""
        self.version += 1
        self.sent[member] = self.version
        return Download(member, self.version, self.applied.get(member, 0), share.sums, share.slack, share.own)


class MemberStar(MemberKeeper):
    """Members upload on their own triggers; each that is stale is sent its share (Async-LinUCB, Alg. 1, per member).

    A member is stale when measure(its share) − measure(what it has) > log γ_D, as in `protocols.hub`.
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
        warm: bool,
        counting: bool,
    ) -> None:
        super().__init__(assembly, n_clients, dim, ridge, noise)
        self.log_gamma = np.resize(log_gamma, n_clients)
        self.warm = warm
        self.counting = counting
        self.known = np.full(n_clients, NOTHING_COUNTED if counting else 0.0)

    def state(self) -> State:
        """Also how much each member has."""
        header, arrays = super().state()
        return State(header, {**arrays, "known": self.known})

    def restore(self, state: State) -> None:
        """Go on from there."""
        super().restore(state)
        self.known = state.arrays["known"].copy()

    def receive(self, message: Message) -> list[Message | Broadcast]:
        """Apply a Join or an Upload."""
        match message:
            case Join(member, version):
                self.check_member(member)
                if self.joined[member]:
                    return self.catch_up(member, version)
                self.joined[member] = True
                return self._refresh([member]) if self.warm else []
            case Upload(member, sequence, _, known):
                if not self.add(message):
                    return [Receipt(member, self.applied[member])]
                self.known[member] = known
                stale = [j for j in self.assembly.affected(member) if self.joined[j]]
                return [Receipt(member, sequence), *self._refresh(stale)]
            case _:
                raise FedbanditError(f"This coordinator does not take a {type(message).__name__}.")

    def _refresh(self, candidates: list[int]) -> list[Message | Broadcast]:
        sent: list[Message | Broadcast] = []
        counts: dict[int, float] = {}  # by group, since a group's members are counted alike
        for j in candidates:
            limit = self.known[j] + self.log_gamma[j] + TIE
            if self.counting:
                group = self.assembly.affected(j)
                if id(group) not in counts:
                    counts[id(group)] = self._log_count(int(self.members.n[group].sum()))
                if counts[id(group)] <= limit:
                    continue
            share = self.share(j)
            measured = self._measure(j, share)
            if measured > limit:
                self.known[j] = measured
                sent.append(self.download(j, share))
        return sent

    def _measure(self, member: int, share: Share) -> float:
        """How much a member would have with this share and its own data."""
        own = 0 if share.own else int(self.members.n[member])
        if self.counting:
            return self._log_count(share.sums.n + own)
        V = share.sums.V if share.own else share.sums.V + self.members.V[member]
        _, logdet = np.linalg.slogdet(V / self.ridge + np.eye(self.dim))
        return float(logdet) + share.slack.offset

    @staticmethod
    def _log_count(n: int) -> float:
        return math.log(n) if n > 0 else NOTHING_COUNTED


class MemberSync(MemberKeeper):
    """When one asks, all of its group upload, and then all are sent their shares (Async-LinUCB, Alg. 4, per member)."""

    def __init__(self, assembly: Assembly, n_clients: int, dim: int, ridge: float, noise: Noise | None) -> None:
        super().__init__(assembly, n_clients, dim, ridge, noise)
        self.epoch = 0
        self._awaited: dict[int, set[int]] = {}  # by the member that asked: whose uploads are still to come

    def receive(self, message: Message) -> list[Message | Broadcast]:
        """Apply a Join, a Request or an Upload."""
        match message:
            case Join(member, version):
                self.check_member(member)
                again: list[Message | Broadcast] = [
                    Collect(member, epoch) for epoch, who in self._awaited.items() if member in who
                ]
                if self.joined[member]:
                    return again + self.catch_up(member, version)
                self.joined[member] = True
                return [self.download(member, self.share(member))] if self.version > 0 else again
            case Request(member):
                self.check_member(member)
                if any(member in who for who in self._awaited.values()):
                    return []
                self.epoch += 1
                called = list(self.assembly.affected(member))
                self._awaited[self.epoch] = set(called)
                return [Collect(j, self.epoch) for j in called]
            case Upload(member, sequence):
                asked = [epoch for epoch, who in self._awaited.items() if member in who]
                if not asked and sequence > self.applied.get(member, 0):
                    raise FedbanditError(f"Client {member} sent upload {sequence}, but was not asked for one.")
                if not self.add(message):
                    return [Receipt(member, self.applied[member])]
                sent: list[Message | Broadcast] = [Receipt(member, sequence)]
                for epoch in asked:
                    self._awaited[epoch].discard(member)
                    if not self._awaited[epoch]:
                        del self._awaited[epoch]
                        sent += [self.download(j, self.share(j)) for j in self.assembly.affected(member)]
                return sent
            case _:
                raise FedbanditError(f"This coordinator does not take a {type(message).__name__}.")

    def state(self) -> State:
        """Also whose uploads are awaited."""
        header, arrays = super().state()
        awaited = {str(epoch): sorted(who) for epoch, who in self._awaited.items()}
        return State({**header, "epoch": self.epoch, "awaited": awaited}, arrays)

    def restore(self, state: State) -> None:
        """Go on in the middle of a collection."""
        super().restore(state)
        self.epoch = state.header["epoch"]
        self._awaited = {int(epoch): set(who) for epoch, who in state.header["awaited"].items()}
