"""The coordinator's machine for protocols in which each client speaks for itself: messages in, messages out."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from fedbandit.engine.fast.cohorts import ISSUE, LAST_VERSION, Hub, find, has_room, of
from fedbandit.engine.fast.housekeeping import last_recipients, make_room, pack_hub, unpack_hub
from fedbandit.engine.fast.hub import BOUND_AT, broadcast, join, measure, settle_pool, stand_alone
from fedbandit.engine.fast.packed import pack
from fedbandit.engine.fast.row_sums import shared_sums
from fedbandit.engine.fast.statistics import HEAD, SLACK, N, add_to_base, base_b_of, base_of, scratch_matrix
from fedbandit.errors import FedbanditError
from fedbandit.messages import Collect, Download, Join, Message, Receipt, Upload
from fedbandit.protocols.sequence import check_upload, is_retry
from fedbandit.sharing import NEVER, Noise
from fedbandit.state import State
from fedbandit.sums import Slack, Sums, zero_sums
from fedbandit.types import Array


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

    @property
    def clocked(self) -> bool:
        """Whether anything is ever done between rounds."""
        ...

    def next_wake(self, done: int) -> int:
        """After how many rounds `end_round` has something to do next."""
        ...

    def end_round(self, done: int) -> list[Message | Broadcast]:
        """What to send between rounds."""
        ...

    def awaits(self) -> list[int]:
        """Whose answer has to come before anything goes on."""
        ...

    def excuse(self, members: Iterable[int]) -> list[Message | Broadcast]:
        """Wait for these members no longer."""
        ...

    def start_over(self, member: int) -> None:
        """The client has lost its state for good and numbers its uploads from 1 again."""
        ...

    def gathered(self) -> Sums:
        """All that was ever uploaded, as it came."""
        ...

    def groups(self) -> list[list[int]] | None:
        """Who shares with whom; None if everyone does."""
        ...

    def state(self) -> State:
        """All that a machine of the same system needs in order to go on."""
        ...

    def restore(self, state: State) -> None:
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
        if self.noise is None:
            add_to_base(pool, self.dim, sums.V)
        else:
            self.noisy[g] = self.noisy.get(g, 0.0) + sums.V
            if sums.n > 0:
                counts = self.released.setdefault(g, {})
                counts[upload.member] = counts.get(upload.member, 0) + 1
        base_b_of(pool, self.dim)[:] += sums.b
        pool[N] += sums.n
        self.applied[upload.member] = upload.sequence

    def settle(self, g: int) -> None:
        """After uploads to group g: compute its model; noisy sums are first made usable."""
        if self.noise is not None and g in self.noisy:
            pool = self.hub.pool[g]
            V, slack = self.noise.repair(self.noisy[g], self.released.get(g, {}), self.ridge)
            pack(np.ascontiguousarray(V), base_of(pool, self.dim))
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

    def welcome(self, message: Join, *, warm: bool, counting: bool) -> list[Message | Broadcast]:
        """A client joins; if `warm` it is sent all there is. One that joins again is sent what it has missed."""
        member = message.member
        g = self.group_of(member)
        self.reserve()
        if self.hub.cohort_of[member] >= 0:
            return self._catch_up(g, message, counting)
        if not join(self.hub, member, warm, counting):
            return []
        cohort = find(self.hub.parent, int(self.hub.cohort_of[member]))
        return [self.download(member, int(self.hub.cohorts[cohort, ISSUE]), g, self.pool_sums(g))]

    def _catch_up(self, g: int, message: Join, counting: bool) -> list[Message | Broadcast]:
        """All there is, as a new version, if the client says that it lacks a download that it was sent."""
        hub, member = self.hub, message.member
        if hub.cohorts[find(hub.parent, int(hub.cohort_of[member])), ISSUE] <= message.version:
            return []
        hub.counters[LAST_VERSION] += 1
        version = int(hub.counters[LAST_VERSION])
        stand_alone(hub, member, measure(hub.pool[g], counting))
        hub.cohorts[hub.cohort_of[member], ISSUE] = version
        return [self.download(member, version, g, self.pool_sums(g))]

    def gathered(self) -> Sums:
        """All that was ever uploaded, as it came: before noisy sums were made usable."""
        V, b, n = zero_sums(self.dim)
        for g in range(len(self.hub.pool)):
            sums = self.pool_sums(g)
            V, b, n = V + self.noisy.get(g, sums.V), b + sums.b, n + sums.n
        return Sums(V, b, n)

    def groups(self) -> list[list[int]] | None:
        """Who shares with whom; None if everyone does."""
        if self.hub.group_of.size == 1:
            return None
        return [np.flatnonzero(self.hub.group_of == g).tolist() for g in range(len(self.hub.pool))]

    @property
    def clocked(self) -> bool:
        """There are no rounds."""
        return False

    def next_wake(self, done: int) -> int:  # noqa: ARG002 - there are no rounds
        """Never."""
        return NEVER

    def end_round(self, done: int) -> list[Message | Broadcast]:  # noqa: ARG002 - there are no rounds
        """Nothing."""
        return []

    def awaits(self) -> list[int]:
        """Nobody."""
        return []

    def excuse(self, members: Iterable[int]) -> list[Message | Broadcast]:  # noqa: ARG002 - nobody is awaited
        """Nobody is awaited."""
        return []

    def start_over(self, member: int) -> None:
        """What the client had uploaded stays; its next upload is number 1, and joining it is sent all there is."""
        self.applied.pop(member, None)
        if self.hub.cohort_of[member] >= 0 and self.hub.pool[self.group_of(member), N] > 0:
            self.reserve()
            self.hub.counters[LAST_VERSION] += 1
            stand_alone(self.hub, member, 0.0)
            self.hub.cohorts[self.hub.cohort_of[member], ISSUE] = self.hub.counters[LAST_VERSION]

    def state(self) -> State:
        """The hub, and which uploads have been applied."""
        applied = np.array(list(self.applied.items()), dtype=np.int64).reshape(-1, 2)
        released = {str(g): [[i, n] for i, n in counts.items()] for g, counts in self.released.items()}
        noisy = {f"noisy.{g}": V for g, V in self.noisy.items()}
        header = {"machine": type(self).__name__, "released": released}
        return State(header, {"applied": applied, **noisy, **pack_hub(self.hub)})

    def restore(self, state: State) -> None:
        """Go on from a state of a machine of the same system."""
        if state.header["machine"] != type(self).__name__:
            raise FedbanditError(f"The state is one of a {state.header['machine']}, expected a {type(self).__name__}.")
        self.hub = unpack_hub(self.hub, state.arrays)
        self.applied = dict(state.arrays["applied"].tolist())
        self.released = {int(g): dict(counts) for g, counts in state.header["released"].items()}
        kept = (name for name in state.arrays if name.startswith("noisy."))
        self.noisy = {int(name.removeprefix("noisy.")): state.arrays[name].copy() for name in kept}

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
            case Join():
                return self.welcome(message, warm=self.warm, counting=self.counting)
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
