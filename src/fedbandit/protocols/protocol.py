"""What a protocol is: who speaks, when, and what the coordinator does then."""

from __future__ import annotations

from typing import ClassVar, Protocol, runtime_checkable

from fedbandit.errors import FedbanditError
from fedbandit.model import Growing
from fedbandit.protocols.coordinator import Coordinator
from fedbandit.protocols.trigger import Joining, Reads, Says, Silence, Trigger, log_count
from fedbandit.sharing import Noise, Sharing
from fedbandit.world import World


@runtime_checkable
class MessageProtocol(Protocol):
    """Subclass it as a frozen dataclass: parameters, the facts below that differ, `trigger` and `coordinator`."""

    says: ClassVar[Says] = "upload"
    """What a client sends when its trigger fires."""

    @property
    def reads(self) -> Reads:
        """What the trigger looks at, and so what the times of messages may tell; raw data are the worst case."""
        return "raw"

    @property
    def join(self) -> Joining:
        """How a client that first acts joins: with nothing, with a download, or as a member from the start."""
        return "cold"

    @property
    def period(self) -> int:
        """How many estimators a client has and uses in turn, round by round."""
        return 1

    counting: ClassVar[bool] = False
    """Whether downloads compare numbers of observations instead of log-determinants."""

    at_once: ClassVar[bool] = False
    """Whether everybody uploads at once, when called, so that what comes can be one sum."""

    by_clock: ClassVar[bool] = False
    """Whether everybody is called at times that are known beforehand (`actions_by`)."""

    dated: ClassVar[bool] = False
    """Whether its messages say of which round they are, as models that forget need."""

    one_by_one: ClassVar[bool] = False
    """Whether its coordinator serves members one by one, by their growth; who has asked waits to be called."""

    @property
    def regroups(self) -> bool:
        """Whether its coordinator looks for groups at times of its own, beside those that a sharing asks for."""
        return False

    @property
    def since_served(self) -> bool:
        """Whether a trigger looks at all that was observed since the last download, not only at what is pending."""
        return False

    def told(self, world: World) -> MessageProtocol:  # noqa: ARG002 - nothing is open
        """The protocol with every parameter that was left open settled for this world."""
        return self

    def trigger(self) -> Trigger:
        """The condition that clients check."""
        return Silence()

    def had_reason(self, before: int, since: int) -> bool:  # noqa: ARG002 - nobody knows
        """Whether a client may have asked for a call that had released `before` observations, and then `since`."""
        return True

    def actions_by(self, world: World, calls: int) -> int:  # noqa: ARG002 - there is no clock
        """How often a client has acted by the last of so many calls, of a protocol that calls by a clock."""
        raise FedbanditError(f"{type(self).__name__} does not call by a clock.")

    def releases(self, world: World) -> int:
        """The most uploads that one client can make in this world: the number of releases to calibrate noise for."""
        return max(world.horizon // world.per_round, 1)

    def portions(self, world: World) -> tuple[int, ...]:  # noqa: ARG002 - nobody knows
        """The interactions in each release of a client that acts in every round; none if that is not known."""
        return ()

    def coordinator(
        self,
        sharing: Sharing,  # noqa: ARG002
        world: World,  # noqa: ARG002
        dim: int,  # noqa: ARG002
        ridge: float,  # noqa: ARG002
        noise: Noise | None,  # noqa: ARG002
    ) -> Coordinator | None:
        """The coordinator's machine; None if there is no coordinator.

        `dim` is the length of the vectors that messages carry, `noise` is that of private uploads.
        """
        return None


class Known(Growing, Protocol):
    """What an upload may say of its client's model."""

    @property
    def n(self) -> int:
        """Observations that it has learnt from, own and received."""
        ...


def says_what_it_knows(protocol: MessageProtocol) -> bool:
    """Whether downloads depend on how much a client knows."""
    return protocol.says == "upload" or protocol.one_by_one


def known_by(model: Known, protocol: MessageProtocol, counting: bool) -> float:
    """What an upload says of how much its client knows: log det V(λ)/det λI, or the log of a count (`counting`).

    Nothing, where no download depends on it. A log-determinant is one of exact data, so it may not leave a client that
    noises its statistics.
    """
    if not says_what_it_knows(protocol):
        return 0.0
    return log_count(model.n) if counting else model.logdet
