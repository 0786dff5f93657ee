"""All clients learn the same thing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit.structures.layout import Layout, Model
from fedbandit.world import World


@dataclass(frozen=True)
class Everyone:
    """One model row for each client, and all of them share with one another (Async-LinUCB, Eq. 1)."""

    model: ClassVar[Model] = "rows"
    separate: ClassVar[bool] = True

    def layout(self, world: World) -> Layout:
        """A row a client, one group."""
        return Layout(world.n_clients, 1, None, np.zeros(1, dtype=np.int64))
