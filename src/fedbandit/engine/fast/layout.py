"""Where every user and every model row is: structures as the compiled loops see them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedbandit.structures import Central, Structure
from fedbandit.types import Ints
from fedbandit.world import World


@dataclass(frozen=True)
class Layout:
    """`row_of[user]` is the model row that serves a user; None when each user has its own row of the same number.

    `group_of[row]` is the set of rows that share with one another; an array of length one holds for all rows.
    """

    n_rows: int
    n_groups: int
    row_of: Ints | None
    group_of: Ints
    fresh: bool
    counted: bool


def layout_of(structure: Structure, world: World) -> Layout:
    """The layout of a structure with a row for each client, or one for all."""
    if isinstance(structure, Central):
        row_of = np.zeros(world.n_clients, dtype=np.int64)
        return Layout(1, 1, row_of, np.zeros(1, dtype=np.int64), fresh=True, counted=True)
    groups = structure.groups(world)
    n_groups = int(groups.max()) + 1
    return Layout(world.n_clients, n_groups, None, groups, fresh=structure.fresh, counted=structure.counted)
