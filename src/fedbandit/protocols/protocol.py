"""What the engine, the client machine and the transports need of a protocol."""

from __future__ import annotations

import typing
from typing import ClassVar

from fedbandit.protocols.coordinator import Coordinator
from fedbandit.protocols.hub import Hub
from fedbandit.protocols.trigger import Joining, Says, Trigger
from fedbandit.statistics import Array
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

    def coordinator(self, hub: Hub, ridge: float, dim: int) -> Coordinator | None:
        """The coordinator's machine on this memory, if the protocol has a coordinator."""
        ...
