"""Fetching ahead: with many clients, what an interaction needs is not in the cache unless it is asked for in time."""

from __future__ import annotations

from fedbandit.engine.fast.cohorts import SNAPSHOT, Hub, current_cohort, is_crowded
from fedbandit.engine.fast.compact import pending_end
from fedbandit.engine.fast.jit import compiled_inline
from fedbandit.engine.fast.row import LINE, N_LISTED, hot_length, inverse_at, list_end, list_length, shared_length
from fedbandit.engine.fast.slots import Slots, compact_slot
from fedbandit.engine.fast.vectors import prefetch
from fedbandit.environments.block import Block
from fedbandit.types import Array, Ints

FAR, NEARER, NOT_FAR, NEAR, SOON, NEXT = 10, 8, 6, 4, 3, 2
"""Prefetch distances, in interactions: FAR slot and cohort; NEARER, NOT_FAR two union–find parents; NEAR the root
cohort; SOON row, snapshot and arms; NEXT the row's tail."""

BEGINNING = 8 * LINE
"""How much of an inverse is fetched first."""


@compiled_inline
def look_ahead(block: Block, who: Ints, s: int, stop: int, slots: Slots, hub: Hub, speaks: bool) -> None:
    """Have what the next interactions need fetched from memory while this one is worked on.

    Here, where rows are, as they cannot be fetched before that is known, and the arms, which another thread may just
    have written; the rows when this interaction has its own and is about to choose (`look_for_row`).
    """
    if s + FAR < stop:
        prefetch(slots.slot_of, who[s + FAR])
        if speaks:
            prefetch(hub.cohort_of, who[s + FAR])
            if is_crowded(hub):
                look_for_cohorts(who, s, hub)
    if s + SOON < stop:
        arms, means = block.arms[s + SOON], block.means[s + SOON]
        for i in range(0, arms.shape[0], LINE):
            prefetch(arms, i)
            prefetch(means, i)


@compiled_inline
def look_for_cohorts(who: Ints, s: int, hub: Hub) -> None:
    """Have the cohorts that rows are in fetched, step by step, as each says which one it has gone into.

    It does no harm if an upload changes in between who has what.
    """
    c = hub.cohort_of[who[s + NEARER]]
    if c >= 0:
        prefetch(hub.parent, c)
    r = who[s + NOT_FAR]
    if hub.cohort_of[r] >= 0:
        hub.cohort_of[r] = hub.parent[hub.cohort_of[r]]
        prefetch(hub.parent, hub.cohort_of[r])
    r = who[s + NEAR]
    if hub.cohort_of[r] >= 0:
        prefetch(hub.cohorts[current_cohort(hub, r)], 0)


@compiled_inline
def look_for_row(who: Ints, s: int, stop: int, rows: Array, compacts: Array, slots: Slots, hub: Hub, d: int) -> None:
    """Prefetch the row that acts soon: a full one, or a compact one and its snapshot; then the rest of it."""
    if s + SOON >= stop:
        return
    slot = slots.slot_of[who[s + SOON]]
    if slot >= 0:
        fetch_ahead(rows[slot], 0, inverse_at(d) + BEGINNING)
    elif slot < -1:
        fetch_ahead(compacts[compact_slot(slot)], 0, 2 * LINE)
        if is_crowded(hub):
            held = hub.cohorts[hub.cohort_of[who[s + SOON]], SNAPSHOT]
            if held >= 0:
                fetch_ahead(hub.snapshots[held], 0, hot_length(d))
    slot = slots.slot_of[who[s + NEXT]]
    if slot >= 0:  # the rest of its inverse, and where it will list its next context
        fetch_ahead(rows[slot], inverse_at(d) + BEGINNING, hot_length(d))
        at = list_end(rows[slot], d)
        fetch_ahead(rows[slot], at - at % LINE, at + d)
        if rows[slot, N_LISTED] == list_length(d):  # it is folded, which needs all the rest
            fetch_ahead(rows[slot], shared_length(d), rows.shape[1])
    elif slot < -1:
        fetch_ahead(compacts[compact_slot(slot)], 2 * LINE, pending_end(compacts[compact_slot(slot)], d))


@compiled_inline
def fetch_ahead(array: Array, start: int, stop: int) -> None:
    """Have entries start, …, stop − 1 fetched, if a line of the cache begins at `start`."""
    for i in range(start, stop, LINE):
        prefetch(array, i)
