"""Synchronous communication: when one client asks, everyone uploads and everyone downloads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedbandit.engine.fast.cohorts import Hub
from fedbandit.engine.fast.hub import broadcast
from fedbandit.errors import FedbanditError, number, require, unknown, whole_number
from fedbandit.messages import Collect, Join, Message, Receipt, Request, Upload
from fedbandit.protocols.coordinator import Broadcast, Coordinator, HubKeeper
from fedbandit.protocols.factors import count_releases
from fedbandit.protocols.member_sync import MemberSync
from fedbandit.protocols.members import MemberKeeper
from fedbandit.protocols.trigger import Joining, Kind, Reads, Says, Trigger
from fedbandit.sharing import Noise, Sharing
from fedbandit.state import State
from fedbandit.types import Array
from fedbandit.world import World


def _log_horizon(world: World) -> float:
    return max(math.log(world.horizon), 1.0)


THRESHOLD_RULES = {
    "T/(N^2 d log T)": lambda w: w.horizon / (w.n_clients**2 * w.dim * _log_horizon(w)),
    "T/(N^1.5 d log T)": lambda w: w.horizon / (w.n_clients**1.5 * w.dim * _log_horizon(w)),
    "T/(N d log T)": lambda w: w.horizon / (w.n_clients * w.dim * _log_horizon(w)),
    "T/(d log T)": lambda w: w.horizon / (w.dim * _log_horizon(w)),
}
"""Thresholds by name: the first two are Async-LinUCB's App. E, Table 1, the other two those of its authors' code."""


@dataclass(frozen=True)
class Synchronous:
    """A client asks for a synchronisation when Δn · log(det V(λ)/det (V − ΔV)(λ)) > D; then all N upload and download.

    `threshold` is D ≥ 0 or a rule by name; by default "T/(N d log T)" with T the interactions of all clients together.

    With `growth`, a client asks instead when it has `growth` times as many observations as it has sent, and at least
    `batch` unsent ones. That reads no data: the timing can be public.

    Reference: Wang et al. 2019 (DisLinUCB, App. G), as in Li & Wang, Async-LinUCB, 2022, Alg. 4.

    Deviations:
        D1. All N clients are members from the start: one that first acts already has what was last downloaded, and
            a synchronisation counts N uploads and N downloads, as Alg. 4 says (the authors' code counts clients
            seen so far).
        D2. After a download the model is used at once; the authors' code keeps choosing with the old inverse.
    """

    threshold: float | str | None = None
    growth: float | None = None
    batch: int = 1

    says: ClassVar[Says] = "request"
    period: ClassVar[int] = 1
    counting: ClassVar[bool] = False
    one_by_one: ClassVar[bool] = False
    fused: ClassVar[bool] = False
    join: ClassVar[Joining] = "member"

    def __post_init__(self) -> None:
        """Check the threshold."""
        if isinstance(self.threshold, str):
            if self.threshold not in THRESHOLD_RULES:
                raise unknown("rule for threshold", self.threshold, THRESHOLD_RULES)
        elif self.threshold is not None:
            infinite = not hasattr(self.threshold, "__len__") and self.threshold == math.inf
            finite = 0.0 if infinite else self.threshold
            number(finite, "threshold", "a number ≥ 0, or None for the default", at_least=0.0)
        whole_number("batch", self.batch)
        if self.growth is not None:
            number(self.growth, "growth", "a finite number ≥ 1, or None", at_least=1.0)
            require(self.threshold is None, "threshold", self.threshold, "None where growth is given")

    @property
    def reads(self) -> Reads:
        """Determinants of raw data, or public counts."""
        return "raw" if self.growth is None else "counts"

    def told(self, world: World) -> Synchronous:
        """The default or a rule becomes a number."""
        if self.growth is None and (isinstance(self.threshold, str) or self.threshold is None):
            return replace(self, threshold=THRESHOLD_RULES[self.threshold or "T/(N d log T)"](world))
        return self

    def trigger(self) -> Trigger:
        """Alg. 4 line 10, or counts."""
        if self.growth is not None:
            return Trigger.of(Kind.COUNT, self.growth, self.reads, self.batch)
        if isinstance(self.threshold, str) or self.threshold is None:
            raise FedbanditError(f"threshold {self.threshold!r} has no value before the protocol is told the world.")
        return Trigger.of(Kind.TIMED_LOGDET, self.threshold, self.reads)

    def log_gamma_download(self) -> Array:
        """Downloads are not conditional."""
        return np.zeros(1)

    def releases(self, world: World) -> int:
        """By counts: as often as they grow. By determinants: FedUCB, Prop. 1, 2√(dT/D · log(1 + TL²/(dλ))) + 4."""
        rounds = max(world.horizon // world.per_round, 1)
        if self.growth is not None:
            return count_releases(self.growth, rounds, self.batch)
        D = float(np.asarray(self.threshold, dtype=np.float64))
        if D <= 0:
            return rounds
        largest = math.log1p(world.horizon * world.bound**2 / (world.dim * 1e-3))
        return min(rounds, int(2 * math.sqrt(world.dim * rounds / D * largest)) + 4)

    def member_coordinator(self, sharing: Sharing, world: World, ridge: float, noise: Noise | None) -> MemberKeeper:
        """The same, member by member."""
        return MemberSync(sharing, world.n_clients, world.dim, ridge, noise)

    def coordinator(self, hub: Hub, ridge: float, dim: int, noise: Noise | None = None) -> Coordinator | None:
        """Alg. 4 lines 11–16."""
        return SynchronousCoordinator(hub, ridge, dim, noise)


class SynchronousCoordinator(HubKeeper):
    """The machine of a synchronous federation.

    | state      | on Request            | on Upload                                              |
    |------------|-----------------------|--------------------------------------------------------|
    | idle       | Collect to all        | refused: nobody was asked                              |
    | collecting | ignored: under way    | added; the last one is answered by a Download to all   |

    A client that joins again while its answer is awaited is asked again: a lost Collect does not block the group.
    Whoever does not answer can be excused: it owes the answer, which is added when it comes.
    """

    def __init__(self, hub: Hub, ridge: float, dim: int, noise: Noise | None = None) -> None:
        super().__init__(hub, ridge, dim, noise)
        self.epoch = 0
        self.awaited: dict[int, int] = {}  # group → answers still to come
        self._asked: dict[int, int] = {}  # group → the epoch it was asked in
        self._answered: dict[int, set[int]] = {}  # group → who has answered in this epoch
        self.owed: dict[int, int] = {}  # client → answers to collections from which it was excused

    def receive(self, message: Message) -> list[Message | Broadcast]:
        """Apply a Join, a Request or an Upload."""
        match message:
            case Join(member):
                return [*self.welcome(message, warm=True, counting=False), *self._ask_again(member)]
            case Request(member):
                return self._collect(self.group_of(member))
            case Upload(member, sequence):
                g = self.group_of(member)
                if self.is_retry(message):
                    return [Receipt(member, self.applied[member])]
                if g not in self.awaited or member in self._answered[g]:
                    return self._take_late(g, message)
                self.add(g, message)
                self._answered[g].add(member)
                return [Receipt(member, sequence), *self.answered(g, 1)]
            case _:
                raise FedbanditError(f"This coordinator does not take a {type(message).__name__}.")

    def answered(self, g: int, count: int) -> list[Message | Broadcast]:
        """`count` more clients of group g have sent all they had; after the last, everyone downloads."""
        self.awaited[g] -= count
        if self.awaited[g] > 0:
            return []
        del self.awaited[g], self._asked[g], self._answered[g]
        self.reserve()
        self.settle(g)
        broadcast(self.hub, g, True, False)
        return self.announce(g, self._members_of(g).size)

    def _take_late(self, g: int, upload: Upload) -> list[Message | Broadcast]:
        member = upload.member
        if member not in self.owed:
            raise FedbanditError(f"Client {member} sent upload {upload.sequence}, but was not asked for one.")
        self.add(g, upload)
        self.settle(g)
        self.owed = {i: n - (i == member) for i, n in self.owed.items() if n - (i == member) > 0}
        return [Receipt(member, upload.sequence)]

    def awaits(self) -> list[int]:
        """Who has not answered yet."""
        return [int(i) for g in self.awaited for i in self._members_of(g) if i not in self._answered[g]]

    def excuse(self, members: Iterable[int]) -> list[Message | Broadcast]:
        """Wait for these clients no longer."""
        sent: list[Message | Broadcast] = []
        for i in members:
            g = self.group_of(i)
            if g in self.awaited and i not in self._answered[g]:
                self._answered[g].add(i)
                self.owed[i] = self.owed.get(i, 0) + 1
                sent += [message for all_of_them in self.answered(g, 1) for message in _addressed(all_of_them)]
        return sent

    def _ask_again(self, member: int) -> list[Message | Broadcast]:
        g = self.group_of(member)
        if g not in self.awaited or member in self._answered[g]:
            return []
        return [Collect(member, self._asked[g])]

    def state(self) -> State:
        """Also who has been asked and who has answered."""
        header, arrays = super().state()
        collections = {str(g): [self._asked[g], count, sorted(self._answered[g])] for g, count in self.awaited.items()}
        owed = {str(i): n for i, n in self.owed.items()}
        return State({**header, "epoch": self.epoch, "collections": collections, "owed": owed}, arrays)

    def restore(self, state: State) -> None:
        """Go on in the middle of a collection."""
        super().restore(state)
        self.epoch = state.header["epoch"]
        self.owed = {int(i): n for i, n in state.header["owed"].items()}
        collections = {int(g): entry for g, entry in state.header["collections"].items()}
        self._asked = {g: asked for g, (asked, _, _) in collections.items()}
        self.awaited = {g: count for g, (_, count, _) in collections.items()}
        self._answered = {g: set(members) for g, (_, _, members) in collections.items()}

    def _members_of(self, g: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        if self.hub.group_of.size == 1:
            return np.arange(self.hub.cohort_of.size)
        return np.flatnonzero(self.hub.group_of == g)

    def _collect(self, g: int) -> list[Message | Broadcast]:
        if g in self.awaited:
            return []
        self.epoch += 1
        epoch, recipients = self.epoch, self._members_of(g)
        self.awaited[g] = recipients.size
        self._answered[g] = set()
        self._asked[g] = epoch

        def addressed() -> Iterator[Message]:
            return (Collect(int(i), epoch) for i in recipients)

        return [Broadcast(Collect, recipients.size, g, addressed)]


def _addressed(answer: Message | Broadcast) -> Iterable[Message]:
    """The messages of a broadcast, before the next broadcast."""
    return answer.addressed() if isinstance(answer, Broadcast) else (answer,)
