"""Compact rows at work: put in the scratch row for a client that acts, and what becomes of them then."""

from __future__ import annotations

import math

from fedbandit.engine.fast.algebra import copy_away, dot
from fedbandit.engine.fast.choose import Scratch
from fedbandit.engine.fast.cohorts import ISSUE, SNAPSHOT, Hub, current_cohort, of
from fedbandit.engine.fast.compact import (
    COUNT,
    MOST_LISTED,
    complete,
    context_of,
    load_model,
    load_scalars,
    note_upload,
    reward_of,
)
from fedbandit.engine.fast.hub import is_stale, measure, renew, take_in_one
from fedbandit.engine.fast.jit import compiled_apart, compiled_inline
from fedbandit.engine.fast.rules import Rules
from fedbandit.engine.fast.slots import SCRATCH, Slots, take_slot
from fedbandit.engine.fast.statistics import (
    LOGDET,
    N_OWN,
    N_PENDING,
    VERSION,
    N,
    base_at,
    list_end,
    next_line,
    shared_length,
)
from fedbandit.engine.fast.triggers import pick, triggered
from fedbandit.types import Array

STAYS, RENEWED, MOVES = 0, 1, 2
"""A compact row stays compact; uploads, is given the current snapshot and stays compact; or needs matrices."""


@compiled_inline
def fate_of(spare: Array, r: int, x: Array, u: Array, hub: Hub, rules: Rules) -> int:
    """What becomes of compact row r, in the scratch row, after one more observation, of x with u = V(λ)⁻¹x.

    Only what triggers compare is brought up to date: the scratch row is discarded if the row stays compact.
    """
    if spare[N_PENDING] >= MOST_LISTED:
        return MOVES
    logdet = spare[LOGDET]
    spare[LOGDET] += math.log(1.0 + dot(x, u))
    for count in (N, N_OWN, N_PENDING):
        spare[count] += 1
    fate = STAYS
    if triggered(rules.kind, pick(rules.thresholds, r), rules.batch, spare):
        fate = RENEWED if is_stale(hub, r, measure(spare, rules.counting), rules.counting) else MOVES
    spare[LOGDET] = logdet
    for count in (N, N_OWN, N_PENDING):
        spare[count] -= 1
    return fate


@compiled_inline
def snapshot_for(r: int, hub: Hub, speaks: bool) -> int:
    """What the coordinator last sent the compact row r: the number of a snapshot, or −1 for nothing."""
    return hub.cohorts[current_cohort(hub, r), SNAPSHOT] if speaks else -1


@compiled_inline
def fetch(
    compact: Array, r: int, given: Array, hub: Hub, spare: Array, d: int, rules: Rules, work: Scratch, whole: bool
) -> Array:
    """Load compact row r into the scratch row as far as scoring needs; the row to score with (`given` if nothing is
    pending).

    If it has nothing to put on top, the model is the given one, which is not copied unless a full row is asked for.
    """
    load_scalars(compact, given, spare)
    if rules.speaks:
        spare[VERSION] = hub.cohorts[current_cohort(hub, r), ISSUE]
    if compact[COUNT] == 0 and not whole:
        return given
    load_model(compact, given, spare, d, work.u)
    if whole:
        complete(compact, given, spare, d, False)
    return spare


@compiled_apart
def fill_in(compact: Array, given: Array, spare: Array, d: int, work: Scratch, borrows: bool) -> None:
    """Complete the scratch row that `fetch` filled only for scoring."""
    if compact[COUNT] == 0:
        load_model(compact, given, spare, d, work.u)
    complete(compact, given, spare, d, borrows)


@compiled_apart
def settle_in(slots: Slots, r: int, rows: Array, d: int, borrows: bool) -> None:
    """Move row r from the scratch row, where it was filled in and nothing is folded, to a full slot of its own."""
    spare, row = rows[SCRATCH], rows[take_slot(slots, r)]
    base, listed, end = base_at(d), shared_length(d), next_line(list_end(spare, d))
    copy_away(spare[:base], row[:base])
    if not borrows:
        copy_away(spare[base:listed], row[base:listed])
    copy_away(spare[listed:end], row[listed:end])


@compiled_inline
def upload_compact(
    hub: Hub, r: int, compact: Array, spare: Array, x: Array, y: float, ridge: float, counting: bool, scratch: Array
) -> int:
    """Upload r's pending observations and (x, y), give it the current snapshot; the number of downloads."""
    d = x.shape[0]
    g = of(hub.group_of, r)
    for i in range(int(compact[COUNT])):
        take_in_one(hub, g, context_of(compact, i, d), reward_of(compact, i, d), ridge, scratch)
    take_in_one(hub, g, x, y, ridge, scratch)
    note_upload(compact, spare)
    return renew(hub, r, counting)


@compiled_apart
def settle_all(rows: Array, compacts: Array, slots: Slots, hub: Hub, rules: Rules, work: Scratch) -> None:
    """Give every row a full slot: for whoever wants to look at all of them."""
    d = work.u.shape[0]
    for r in range(slots.slot_of.shape[0]):
        slot = slots.slot_of[r]
        if slot < -1:
            compact = compacts[-2 - slot]
            held = snapshot_for(r, hub, rules.speaks)
            given = rules.blank if held < 0 else hub.snapshots[held]
            fetch(compact, r, given, hub, rows[SCRATCH], d, rules, work, False)
            fill_in(compact, given, rows[SCRATCH], d, work, False)
            settle_in(slots, r, rows, d, False)
