"""What the engine, the client machine and the transports need of a protocol."""

from __future__ import annotations

import typing
from typing import ClassVar

from fedbandit.engine.fast.cohorts import Hub
from fedbandit.engine.fast.hub import measure
from fedbandit.protocols.coordinator import Coordinator
from fedbandit.protocols.members import MemberKeeper
from fedbandit.protocols.trigger import Joining, Reads, Says, Trigger
from fedbandit.sharing import Noise, Sharing
from fedbandit.types import Array
from fedbandit.world import World


@typing.runtime_checkable
class MessageProtocol(typing.Protocol):
    """Parameters of a protocol, and the facts that a system checks."""

    says: ClassVar[Says]
    """What a client sends when its trigger fires."""
    counting: ClassVar[bool]
    """Whether downloads compare numbers of observations instead of log-determinants."""
    fused: ClassVar[bool]
    """Whether the engine may run the whole exchange compiled (`hub.upload_row`)."""

    one_by_one: ClassVar[bool]
    """Whether its coordinator must know members one by one; who has asked it waits to be called."""

    @property
    def period(self) -> int:
        """How many estimators a client has and uses in turn, round by round."""
        ...

    @property
    def reads(self) -> Reads:
        """What the trigger looks at, and so what the times of messages may tell."""
        ...

    @property
    def join(self) -> Joining:
        """How a client that first acts joins: with nothing, with a download, or as a member from the start."""
        ...

    def told(self, world: World) -> MessageProtocol:
        """The protocol with every parameter that was left open settled for this world."""
        ...

    def trigger(self) -> Trigger:
        """The condition that clients check."""
        ...

    def log_gamma_download(self) -> Array:
        """Log γ_D, of all clients or of each."""
        ...

    def releases(self, world: World) -> int:
        """The most uploads that one client can make in this world: the number of releases to calibrate noise for."""
        ...

    def member_coordinator(
        self, sharing: Sharing, world: World, ridge: float, noise: Noise | None
    ) -> MemberKeeper | None:
        """The coordinator's machine for a structure that needs to know members one by one; None if it has none."""
        ...

    def coordinator(self, hub: Hub, ridge: float, dim: int, noise: Noise | None = None) -> Coordinator | None:
        """The coordinator's machine on this memory, if the protocol has one; `noise` is that of private uploads."""
        ...


def known_by(row: Array, protocol: MessageProtocol, counting: bool) -> float:
    """What an upload says of how much its client knows: nothing, where no download depends on it.

    A log-determinant is one of exact data, so it may not leave a client that noises its statistics (`counting`).
    """
    return measure(row, counting) if protocol.says == "upload" or protocol.one_by_one else 0.0
