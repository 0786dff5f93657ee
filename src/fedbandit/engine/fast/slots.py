"""Where model rows are, and whose they are.

There are rows with matrices, rows without, and those of clients that have never acted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.engine.fast.jit import compiled_inline, compiled_lean
from fedbandit.structures import Central, Structure
from fedbandit.types import Ints
from fedbandit.world import World


class Layout(NamedTuple):
    """`row_of[user]` is the model row that serves a user; None when each user has its own row of the same number.

    `group_of[row]` is the set of rows that share with one another; an array of length one holds for all rows.
    """

    n_rows: int
    n_groups: int
    row_of: Ints | None
    group_of: Ints


def layout_of(structure: Structure, world: World) -> Layout:
    """The layout of a structure with a row for each client, or one for all."""
    if isinstance(structure, Central):
        row_of = np.zeros(world.n_clients, dtype=np.int64)
        return Layout(1, 1, row_of, np.zeros(1, dtype=np.int64))
    groups = structure.groups(world)
    return Layout(world.n_clients, int(groups.max()) + 1, None, groups)


class Slots(NamedTuple):
    """Where in the arrays a model row is.

    A row first gets a compact slot, where it has no matrices (`compact`), and a full one when it needs
    them: when it has more than a few observations to send, or shares something that no snapshot is of.
    """

    slot_of: Ints  # (rows,) −1 before the row has acted, −2 − k in compact slot k, else the full slot
    row_at: Ints  # (capacity,) the row in a full slot
    taken: Ints  # full slots and compact slots in use
    met: NDArray[np.bool_]  # (rows,) whether its client has joined a coordinator in Python; (0,) if there is none


FULL, COMPACT = 0, 1

SCRATCH = -1
"""The last of the rows is nobody's slot: compact rows are worked on there."""


@compiled_inline
def compact_slot(slot: int) -> int:
    """Compact slot k as `slot_of` has it, −2 − k; and k again."""
    return -2 - slot


@compiled_lean
def take_slot(slots: Slots, r: int) -> int:
    """Give row r the next full slot."""
    slot = slots.taken[FULL]
    slots.taken[FULL] += 1
    slots.slot_of[r] = slot
    slots.row_at[slot] = r
    return slot
