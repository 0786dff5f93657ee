"""Communication by the clock: now and then, ever more seldom, everybody uploads, groups are formed, all download."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit.errors import number, whole_number
from fedbandit.messages import Contribution, Join, Message, Receipt, Upload
from fedbandit.protocols.coordinator import Coordinator, Messages, not_taken
from fedbandit.protocols.protocol import MessageProtocol
from fedbandit.protocols.trigger import Joining, Reads
from fedbandit.schedule import next_growth
from fedbandit.sharing import Noise, Sharing
from fedbandit.world import World


@dataclass(frozen=True)
class Scheduled(MessageProtocol):
    """Everybody uploads when each client has acted 1, 2, … times, then every time that number has grown by `growth`.

    Then groups are formed anew, and everybody is sent what its group has, except who is alone and always was. After n
    actions a client, log n / log growth synchronisations have happened, and no model lacks more than a part
    1 − 1/growth of its group's data. The times read nothing but the clock, so they give nothing away: with a privacy
    part, releases are few and their number is known beforehand.

    `batch` is the least number of actions between synchronisations.
    """

    growth: float = 1.3
    batch: int = 1

    join: ClassVar[Joining] = "member"
    at_once: ClassVar[bool] = True
    by_clock: ClassVar[bool] = True
    reads: ClassVar[Reads] = "nothing"
    regroups: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the numbers."""
        number(self.growth, "growth", "a finite number ≥ 1", at_least=1.0)
        whole_number("batch", self.batch)

    def next_time(self, done: int, world: World) -> int:
        """After `done` rounds: the round at whose end everybody is called next."""
        return next_growth(done, first=self.batch, growth=self.growth, batch=self.batch, world=world)

    def actions_by(self, world: World, calls: int) -> int:
        """How often a client has acted by the last of so many calls, if each acts once a round: by the clock alone.

        Beyond the horizon it is once a call.

        >>> [Scheduled(growth=2.0).actions_by(World(n_clients=3, dim=2, horizon=30), k) for k in range(7)]
        [0, 1, 2, 4, 8, 9, 10]
        """
        done = k = 0
        while k < calls and (following := self.next_time(done, world)) * world.per_round <= world.horizon:
            done, k = following, k + 1
        return done * world.per_round // world.n_clients + calls - k

    def releases(self, world: World) -> int:
        """As many as there are synchronisations."""
        count, done = 0, self.next_time(0, world)
        while done <= world.horizon // world.per_round:
            count, done = count + 1, self.next_time(done, world)
        return max(count, 1)

    def coordinator(
        self, sharing: Sharing, world: World, dim: int, ridge: float, noise: Noise | None
    ) -> ScheduledCoordinator:
        """The machine that calls."""
        return ScheduledCoordinator(self, sharing, world, dim, ridge, noise)


class ScheduledCoordinator(Coordinator):
    """The machine: at the end of some rounds a Collect to all; after the last Upload, Downloads."""

    def __init__(
        self, protocol: Scheduled, sharing: Sharing, world: World, dim: int, ridge: float, noise: Noise | None
    ) -> None:
        super().__init__(sharing, world, dim, ridge, noise)
        self.protocol = protocol
        self.world = world

    def next_wake(self, done: int) -> int:
        """What protocol or sharing want, whichever is first; nothing but the sharing's time while exploring."""
        wanted = self.wakes.after(done)
        return wanted if self.exploring else min(wanted, self.protocol.next_time(done, self.world))

    def end_round(self, done: int) -> Messages:
        """Call everybody."""
        self.done = done
        return [] if self.calls else self.collect(range(self.joined.size))

    def receive(self, message: Message) -> Messages:
        """Apply an Upload; joining changes nothing."""
        match message:
            case Join():
                return self.welcome(message)
            case Upload(member, sequence):
                if not self.add(message):
                    return [Receipt(member, self.applied[member])]
                return [Receipt(member, sequence), *self.answered(member)]
            case Contribution():
                return self.contribute(message)
            case _:
                raise not_taken(message)

    def collected(self, members: list[int]) -> Messages:
        """Form groups, and send everybody its share, if that has or had data of others."""
        self.sharing.regroup(self.members, self.done, self.noise)
        return self.send_shares(i for i in members if self.mixed[i] or self.has_others(np.array([i]), self.share(i)))
