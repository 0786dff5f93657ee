"""The coordinator's machine for protocols in which each client speaks for itself: messages in, messages out."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedbandit.assembly import Noise
from fedbandit.errors import FedbanditError
from fedbandit.messages import Collect, Download, Join, Message, Receipt, Upload
from fedbandit.protocols.hub import (
    BOUND_AT,
    ISSUE,
    LAST_VERSION,
    Hub,
    broadcast,
    find,
    has_room,
    join,
    last_recipients,
    make_room,
    of,
    settle_pool,
    stand_alone,
)
from fedbandit.protocols.sequence import check_upload, is_retry
from fedbandit.statistics import HEAD, SLACK, Array, N, Slack, Sums, b_of, base_of, scratch_matrix, shared_sums


@dataclass(frozen=True)
class Broadcast:
    """The same message for many clients; `addressed` writes one for each, which a simulation never needs.

    Call it before the coordinator receives anything else: it reads what the coordinator has now.
    """

    kind: type[Download] | type[Collect]
    count: int
    group: int
    addressed: Callable[[], Iterator[Message]] = field(repr=False)


class Coordinator(typing.Protocol):
    """A machine that keeps a hub and answers messages; it does no I/O and knows no clock."""

    hub: Hub
    applied: dict[int, int]
    """The last upload that was applied, of each client."""

    def receive(self, message: Message) -> list[Message | Broadcast]:
        """Apply one message and say what to send."""
        ...

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What it remembers beside the hub: plain values and arrays."""
        ...

    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Go on from there."""
        ...


class HubKeeper:
    """What coordinator machines have in common: the hub, and which uploads have been applied."""

    def __init__(self, hub: Hub, ridge: float, dim: int, noise: Noise | None = None) -> None:
        self.hub = hub
        self.noise = noise
        self.noisy: dict[int, Array] = {}  # group → the sum of noisy uploads as they came
        self.released: dict[int, dict[int, int]] = {}  # group → the clients they came from, and how many of each
        self.ridge = ridge
        self.dim = dim
        self.scratch = scratch_matrix(dim)
        self.applied: dict[int, int] = {}

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Which uploads have been applied, and noisy sums as they came."""
        values = {
            "applied": {str(i): n for i, n in self.applied.items()},
            "released": {str(g): {str(i): n for i, n in counts.items()} for g, counts in self.released.items()},
        }
        return values, {f"noisy.{g}": V for g, V in self.noisy.items()}

    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Go on from there; the hub is restored by whoever keeps it."""
        self.applied = {int(i): n for i, n in values["applied"].items()}
        self.released = {int(g): {int(i): n for i, n in c.items()} for g, c in values["released"].items()}
        self.noisy = {int(k.removeprefix("noisy.")): V.copy() for k, V in arrays.items() if k.startswith("noisy.")}

    def group_of(self, member: int) -> int:
        """The group of a client, refusing numbers that are none."""
        if not 0 <= member < self.hub.cohort_of.size:
            raise FedbanditError(f"Client {member} is not one of {self.hub.cohort_of.size} clients.")
        return of(self.hub.group_of, member)

    def is_retry(self, upload: Upload) -> bool:
        """Whether this upload has been applied before."""
        return is_retry(upload, self.applied.get(upload.member, 0))

    def add(self, g: int, upload: Upload) -> None:
        """Add an upload's statistics to the pool of group g."""
        check_upload(upload, self.dim, noisy=self.noise is not None)
        sums = upload.sums
        pool = self.hub.pool[g]
        V, b = base_of(pool, self.dim), b_of(pool, self.dim)
        if self.noise is not None:
            V = self.noisy.setdefault(g, np.zeros((self.dim, self.dim)))
            if sums.n > 0:
                counts = self.released.setdefault(g, {})
                counts[upload.member] = counts.get(upload.member, 0) + 1
        V += sums.V
        b += sums.b
        pool[N] += sums.n
        self.applied[upload.member] = upload.sequence

    def settle(self, g: int) -> None:
        """After uploads to group g: compute its model; noisy sums are first made usable."""
        if self.noise is not None and g in self.noisy:
            pool = self.hub.pool[g]
            base_of(pool, self.dim)[:], slack = self.noise.repair(self.noisy[g], self.released.get(g, {}), self.ridge)
            pool[SLACK:HEAD] = slack
            pool[BOUND_AT] = 0  # with noise V need not grow, so the last spectral bound means nothing
        settle_pool(self.hub, g, self.dim, self.ridge, self.scratch)

    def reserve(self) -> None:
        """Make sure that one more upload or newcomer fits."""
        if not has_room(self.hub):
            self.hub = make_room(self.hub)

    def pool_sums(self, g: int) -> Sums:
        """A copy of what the coordinator has for group g."""
        return shared_sums(self.hub.pool[g], self.dim)

    def welcome(self, member: int, *, warm: bool, counting: bool) -> list[Message | Broadcast]:
        """A client joins; if `warm` it is sent all there is. Joining again changes nothing."""
        g = self.group_of(member)
        self.reserve()
        if self.hub.cohort_of[member] >= 0 or not join(self.hub, member, warm, counting):
            return []
        cohort = find(self.hub.cohorts, int(self.hub.cohort_of[member]))
        return [self.download(member, int(self.hub.cohorts[cohort, ISSUE]), g, self.pool_sums(g))]

    def download(self, member: int, version: int, g: int, sums: Sums) -> Download:
        """The download for one client."""
        slack = Slack(*self.hub.pool[g, SLACK:HEAD].tolist())
        return Download(member, version, self.applied.get(member, 0), sums, slack)

    def announce(self, g: int, count: int) -> list[Message | Broadcast]:
        """The broadcast that has just been made, if anybody gets it."""
        if count == 0:
            return []
        version = int(self.hub.counters[LAST_VERSION])
        hub = self.hub

        def addressed() -> Iterator[Message]:
            sums = self.pool_sums(g)
            return (self.download(int(i), version, g, sums) for i in last_recipients(hub))

        return [Broadcast(Download, count, g, addressed)]


class StarCoordinator(HubKeeper):
    """Clients upload when their own trigger fires; each stale client is sent all there is (Async-LinUCB, Alg. 1)."""

    def __init__(self, hub: Hub, ridge: float, dim: int, *, warm: bool, counting: bool, noise: Noise | None) -> None:
        super().__init__(hub, ridge, dim, noise)
        self.warm = warm
        self.counting = counting

    def receive(self, message: Message) -> list[Message | Broadcast]:
        """Apply a Join or an Upload."""
        match message:
            case Join(member):
                return self.welcome(member, warm=self.warm, counting=self.counting)
            case Upload(member, sequence, _, known):
                g = self.group_of(member)
                if self.is_retry(message):
                    return [Receipt(member, self.applied[member])]
                self.reserve()
                if self.hub.cohort_of[member] < 0:
                    raise FedbanditError(f"Client {member} sent an upload before it joined.")
                self.add(g, message)
                self.settle(g)
                stand_alone(self.hub, member, known)
                count = broadcast(self.hub, g, False, self.counting)
                return [Receipt(member, sequence), *self.announce(g, count)]
            case _:
                raise FedbanditError(f"This coordinator does not take a {type(message).__name__}.")
