"""Nobody shares with anybody, and a model knows only what its client has released: privacy of the model itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit.structures.layout import Layout, Model
from fedbandit.world import World


@dataclass(frozen=True)
class Alone:
    """A row for each client, which learns from what the client's own privacy mechanism releases and nothing else.

    Then the arms that are pulled depend on the data only through releases. Releases stay in the house: they are not
    messages.
    """

    model: ClassVar[Model] = "rows"
    separate: ClassVar[bool] = True
    fresh: ClassVar[bool] = False

    def layout(self, world: World) -> Layout:
        """A row and a group a client."""
        return Layout(world.n_clients, world.n_clients, None, np.arange(world.n_clients), fresh=False, counted=False)
