"""Communication by the clock: now and then, ever more seldom, everybody uploads, groups are formed, all download."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit.engine.fast.cohorts import Hub
from fedbandit.errors import FedbanditError, number, whole_number
from fedbandit.messages import Join, Message, Receipt, Upload
from fedbandit.protocols.coordinator import Coordinator
from fedbandit.protocols.members import MemberKeeper, Messages
from fedbandit.protocols.trigger import Joining, Kind, Reads, Says, Trigger
from fedbandit.schedule import next_growth
from fedbandit.sharing import Noise, Sharing
from fedbandit.types import Array
from fedbandit.world import World


@dataclass(frozen=True)
class Scheduled:
    """Everybody uploads when each client has acted 1, 2, … times, then every time that number has grown by `growth`.

    Then groups are formed anew, and everybody is sent what its group has, except who is alone and always was. After n
    actions a client, log n / log growth synchronisations have happened, and no model lacks more than a part
    1 − 1/growth of its group's data. The times read nothing but the clock, so they give nothing away: with a privacy
    part, releases are few and their number is known beforehand.

    `batch` is the least number of actions between synchronisations.
    """

    growth: float = 1.3
    batch: int = 1

    says: ClassVar[Says] = "upload"
    period: ClassVar[int] = 1
    counting: ClassVar[bool] = False
    fused: ClassVar[bool] = False
    join: ClassVar[Joining] = "member"
    reads: ClassVar[Reads] = "nothing"
    one_by_one: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the numbers."""
        number(self.growth, "growth", "a finite number ≥ 1", at_least=1.0)
        whole_number("batch", self.batch)

    def told(self, world: World) -> Scheduled:  # noqa: ARG002 - nothing is open
        """Itself."""
        return self

    def trigger(self) -> Trigger:
        """Clients wait to be called."""
        return Trigger.of(Kind.NEVER, np.inf, self.reads)

    def log_gamma_download(self) -> Array:
        """Downloads are not conditional."""
        return np.zeros(1)

    def next_time(self, done: int, world: World) -> int:
        """After `done` rounds: the round at whose end everybody is called next."""
        return next_growth(done, self.batch, self.growth, self.batch, world)

    def releases(self, world: World) -> int:
        """As many as there are synchronisations."""
        count, done = 0, self.next_time(0, world)
        while done <= world.horizon // world.per_round:
            count, done = count + 1, self.next_time(done, world)
        return max(count, 1)

    def member_coordinator(
        self, sharing: Sharing, world: World, ridge: float, noise: Noise | None
    ) -> ScheduledCoordinator:
        """The machine that calls."""
        return ScheduledCoordinator(self, sharing, world, ridge, noise)

    def coordinator(self, hub: Hub, ridge: float, dim: int, noise: Noise | None = None) -> Coordinator | None:  # noqa: ARG002
        """There is none that does not know its members."""
        return None


class ScheduledCoordinator(MemberKeeper):
    """The machine: at the end of some rounds a Collect to all; after the last Upload, Downloads."""

    def __init__(self, protocol: Scheduled, sharing: Sharing, world: World, ridge: float, noise: Noise | None) -> None:
        super().__init__(sharing, world.n_clients, world.dim, ridge, noise)
        self.protocol = protocol
        self.world = world

    def next_wake(self, done: int) -> int:
        """What protocol or sharing want, whichever is first; nothing but the sharing's time while exploring."""
        wanted = self.sharing.next_wake(done)
        return wanted if self.exploring else min(wanted, self.protocol.next_time(done, self.world))

    def end_round(self, done: int) -> Messages:
        """Call everybody."""
        self.done = done
        return [] if self.awaited else self.collect(range(self.members.n.size))

    def receive(self, message: Message) -> Messages:
        """Apply an Upload; joining changes nothing."""
        match message:
            case Join():
                return self.welcome(message)
            case Upload(member, sequence):
                if not self.add(message):
                    return [Receipt(member, self.applied[member])]
                return [Receipt(member, sequence), *self.answered(member)]
            case _:
                raise FedbanditError(f"This coordinator does not take a {type(message).__name__}.")

    def collected(self) -> Messages:
        """Form groups, and send everybody its share."""
        self.sharing.regroup(self.members, self.done, self.noise)
        shares = [self.share(j) for j in range(self.members.n.size)]
        return [self.download(j, share) for j, share in enumerate(shares) if self.is_news(j, share)]
