"""A coordinator that knows its members one by one: for clusters that change or overlap, and for graphs of users.

It keeps what each member has released (never what it was sent), an `Assembly` says what a member is to be sent, and
answers are addressed downloads. An upload costs as much as it concerns members; for thousands of clients that all share
with one another, `protocols.hub` is the faster memory.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedbandit.assembly import Assembly, Members, Noise, Share, no_members
from fedbandit.errors import FedbanditError
from fedbandit.messages import Download, Join, Message, Receipt, Upload
from fedbandit.protocols.coordinator import Broadcast
from fedbandit.protocols.hub import NOTHING_COUNTED
from fedbandit.protocols.sequence import check_upload, is_retry
from fedbandit.statistics import TIE, Array, Sums


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
    """What such coordinators have in common: members' statistics, versions of downloads, uploads applied."""

    def __init__(self, assembly: Assembly, n_clients: int, dim: int, ridge: float, noise: Noise | None) -> None:
        self.assembly = assembly
        self.members = no_members(n_clients, dim)
        self.dim = dim
        self.ridge = ridge
        self.noise = noise
        self.applied: dict[int, int] = {}
        self.joined = np.zeros(n_clients, dtype=np.bool_)
        self.version = 0
        self.privatise: Callable[[int], Privatiser | None] | None = None  # of a trusted coordinator
        self.streams: dict[int, Privatiser] = {}

    @property
    def exploring(self) -> bool:
        """Whether clients choose at random for now."""
        return self.assembly.exploring

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Everything: plain values and arrays."""
        values = {
            "applied": {str(i): n for i, n in self.applied.items()},
            "version": self.version,
            "assembly": self.assembly.state(),
        }
        arrays = {"joined": self.joined, **{f"members.{k}": v for k, v in self.members._asdict().items()}}
        for i, stream in self.streams.items():
            arrays |= {f"trusted.{i}.{key}": np.asarray(value) for key, value in stream.state().items()}
        return values, arrays

    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.applied = {int(i): n for i, n in values["applied"].items()}
        self.version = values["version"]
        self.assembly.restore(values["assembly"])
        self.joined = arrays["joined"].copy()
        self.members = Members(*(arrays[f"members.{k}"].copy() for k in Members._fields))
        saved: dict[int, dict[str, Any]] = {}
        for name, value in arrays.items():
            if name.startswith("trusted."):
                _, member, key = name.split(".")
                saved.setdefault(int(member), {})[key] = value
        for i, state in saved.items():
            stream = self._stream(i)
            assert stream is not None
            stream.restore(state)

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
        stream = self._stream(upload.member)
        sums = upload.sums if stream is None or upload.sums.n == 0 else stream.release(upload.sums)
        self.members.V[upload.member] += sums.V
        self.members.b[upload.member] += sums.b
        self.members.n[upload.member] += sums.n
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
        return self.assembly.share(member, self.members, self.noise, self.ridge)

    def download(self, member: int, share: Share) -> Download:
        """The next download for a member."""
        self.version += 1
        return Download(member, self.version, self.applied.get(member, 0), share.sums, share.slack)


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

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Also how much each member has."""
        values, arrays = super().state()
        return values, arrays | {"known": self.known}

    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Go on from there."""
        super().restore(values, arrays)
        self.known = arrays["known"].copy()

    def receive(self, message: Message) -> list[Message | Broadcast]:
        """Apply a Join or an Upload."""
        match message:
            case Join(member):
                self.check_member(member)
                if self.joined[member]:
                    return []
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
        _, logdet = np.linalg.slogdet(share.sums.V / self.ridge + np.eye(self.dim))
        return float(logdet) + share.slack.offset
