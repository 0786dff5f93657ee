"""No communication at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedbandit.protocols.protocol import MessageProtocol
from fedbandit.protocols.trigger import Reads, Says
from fedbandit.world import World


@dataclass(frozen=True)
class Never(MessageProtocol):
    """Nobody speaks: every model learns alone."""

    says: ClassVar[Says] = "nothing"
    reads: ClassVar[Reads] = "nothing"

    def releases(self, world: World) -> int:  # noqa: ARG002 - nothing is ever sent
        """None, but a mechanism has at least one."""
        return 1
