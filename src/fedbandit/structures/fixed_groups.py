"""Groups that are known beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedbandit.errors import require
from fedbandit.structures.layout import Layout, Model
from fedbandit.world import World


@dataclass(frozen=True)
class FixedGroups:
    """One model row for each client; clients with the same label share, others never do.

    For federations with known sites or segments, and as the oracle that clustering is compared with.

    >>> FixedGroups([0, 0, 1]).labels
    (0, 0, 1)
    """

    labels: tuple[int, ...] | ArrayLike

    model: ClassVar[Model] = "rows"
    separate: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the labels."""
        labels = np.asarray(self.labels)
        require(
            labels.ndim == 1 and labels.size > 0,
            "labels",
            self.labels,
            "a list with one label for each client",
        )
        object.__setattr__(self, "labels", tuple(labels.tolist()))

    def layout(self, world: World) -> Layout:
        """A row a client, a group a label."""
        labels = np.asarray(self.labels)
        require(
            labels.size == world.n_clients,
            "the number of labels",
            labels.size,
            f"{world.n_clients}, one a client",
        )
        names, group = np.unique(labels, return_inverse=True)
        return Layout(world.n_clients, names.size, None, group.astype(np.int64))
