"""One model for all: the reference that federations are measured against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit.structures.layout import Layout, Model
from fedbandit.world import World


@dataclass(frozen=True)
class Central:
    """A single model row serves every client: all data are in one place and nothing has to be exchanged.

    Policies that draw at random use the stream of row 0, one step for each action of anybody.
    """

    model: ClassVar[Model] = "rows"
    separate: ClassVar[bool] = False

    def layout(self, world: World) -> Layout:
        """Row 0 for everyone."""
        return Layout(1, 1, np.zeros(world.n_clients, dtype=np.int64), np.zeros(1, dtype=np.int64))
