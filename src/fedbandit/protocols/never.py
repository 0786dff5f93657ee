"""No communication at all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit.protocols.coordinator import Coordinator
from fedbandit.protocols.hub import Hub
from fedbandit.protocols.trigger import Joining, Kind, Says, Trigger
from fedbandit.statistics import Array
from fedbandit.world import World


@dataclass(frozen=True)
class Never:
    """Nobody speaks: every model row learns alone."""

    says: ClassVar[Says] = "nothing"
    counting: ClassVar[bool] = False
    fused: ClassVar[bool] = True
    join: ClassVar[Joining] = "cold"

    def told(self, world: World) -> Never:  # noqa: ARG002
        """Nothing to settle."""
        return self

    def trigger(self) -> Trigger:
        """A condition that never holds."""
        return Trigger.of(Kind.NEVER, math.inf, "nothing")

    def log_gamma_download(self) -> Array:
        """No download ever."""
        return np.array([math.inf])

    def coordinator(self, hub: Hub, ridge: float, dim: int) -> Coordinator | None:  # noqa: ARG002
        """There is none."""
        return None
