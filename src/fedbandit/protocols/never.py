"""No communication at all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit.engine.fast.cohorts import Hub
from fedbandit.protocols.coordinator import Coordinator
from fedbandit.protocols.trigger import Joining, Kind, Reads, Says, Trigger
from fedbandit.sharing import Noise, Sharing
from fedbandit.types import Array
from fedbandit.world import World


@dataclass(frozen=True)
class Never:
    """Nobody speaks: every model row learns alone."""

    says: ClassVar[Says] = "nothing"
    period: ClassVar[int] = 1
    counting: ClassVar[bool] = False
    one_by_one: ClassVar[bool] = False
    fused: ClassVar[bool] = True
    reads: ClassVar[Reads] = "nothing"
    join: ClassVar[Joining] = "cold"

    def told(self, world: World) -> Never:  # noqa: ARG002
        """Nothing to settle."""
        return self

    def trigger(self) -> Trigger:
        """A condition that never holds."""
        return Trigger.of(Kind.NEVER, math.inf, self.reads)

    def log_gamma_download(self) -> Array:
        """No download ever."""
        return np.array([math.inf])

    def releases(self, world: World) -> int:  # noqa: ARG002 - nothing is ever sent
        """None, but a mechanism has at least one."""
        return 1

    def member_coordinator(
        self,
        sharing: Sharing,  # noqa: ARG002
        world: World,  # noqa: ARG002
        ridge: float,  # noqa: ARG002
        noise: Noise | None,  # noqa: ARG002
    ) -> None:
        """There is none."""
        return

    def coordinator(self, hub: Hub, ridge: float, dim: int, noise: Noise | None = None) -> Coordinator | None:  # noqa: ARG002
        """There is none."""
        return None
