"""What a coordinator does that has one noisy total of everybody's statistics: it takes sums, and parts of them."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError
from fedbandit.messages import Contribution, Message
from fedbandit.protocols.pool import Pool
from fedbandit.sharing import Members


class Call(NamedTuple):
    """Members who were asked for what they have, and whose answers are still to come."""

    members: list[int]
    missing: set[int]


class Pooling(typing.Protocol):
    """The half of a coordinator that concerns its pool, if it has one."""

    members: Members
    pool: Pool | None
    calls: dict[int, Call]

    def check_member(self, member: int) -> None:
        """Refuse numbers that are none."""
        ...

    def collected(self, members: list[int]) -> list[Message]:
        """What to do when everybody who was called has answered."""
        ...

    def go_on(self, epoch: int) -> list[Message]:
        """What follows, if everybody has answered."""
        ...

    def take_sum(
        self, epoch: int, words: NDArray[np.uint64], counts: Mapping[int, int], returned: int
    ) -> list[Message]:
        """The masked sum of an epoch has been opened, over these members, who have observed so much in all."""
        if self.pool is None or epoch not in self.calls:
            raise FedbanditError(f"The sum of epoch {epoch} is not under way.")
        for member in counts:
            self.check_member(member)
        self.pool.take_sum(epoch, words, counts, returned, self.members)
        return self.collected(self.calls.pop(epoch).members)

    @property
    def secure_sums(self) -> bool:
        """Whether this coordinator sees opened sums only."""
        return self.pool is not None and self.pool.secure

    def contribute(self, message: Contribution) -> list[Message]:
        """Take a member's part of the sum that is under way; the last one opens it."""
        self.check_member(message.member)
        call = self.calls.get(message.epoch)
        if self.pool is None or call is None:
            raise FedbanditError(
                f"Client {message.member} contributed to the sum of epoch {message.epoch}, which is not under way."
            )
        if self.pool.contribute(message, member=message.member in call.members):
            call.missing.discard(message.member)
            return self.go_on(message.epoch)
        return []
