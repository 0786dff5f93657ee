"""The common case, compiled: choose an arm, observe, check the trigger; return only when Python is needed."""

from __future__ import annotations

import math

from fedbandit.engine.fast.algebra import copy
from fedbandit.engine.fast.choose import Scratch, choose_at
from fedbandit.engine.fast.cohorts import Hub, has_room
from fedbandit.engine.fast.compact import (
    CHOSEN,
    RENEWED,
    STAYS,
    fate_of,
    fetch,
    fill_in,
    note_observation,
    settle_in,
    snapshot_for,
    start_compact,
    upload_compact,
)
from fedbandit.engine.fast.hub import catch_up, join, upload_row
from fedbandit.engine.fast.jit import compiled_free
from fedbandit.engine.fast.known import Code
from fedbandit.engine.fast.packed import multiply_packed
from fedbandit.engine.fast.plan import PolicyPlan
from fedbandit.engine.fast.prefetching import look_ahead, look_for_row
from fedbandit.engine.fast.rewards import Late, learnt, pull, send_later
from fedbandit.engine.fast.row import N_OWN, STEPS, inverse_of
from fedbandit.engine.fast.rules import (
    DONE,
    EVENT,
    HUB_FULL,
    NEWCOMER,
    REFUSED,
    ROWS_FULL,
    LoopRules,
    Pause,
    pick,
    triggered,
)
from fedbandit.engine.fast.slots import COMPACT, FULL, SCRATCH, Slots, compact_slot, take_slot
from fedbandit.engine.fast.statistics import hold, observe
from fedbandit.engine.fast.synchronising import synchronise
from fedbandit.engine.learner import Outcome
from fedbandit.environments.block import Block
from fedbandit.types import Array, Ints

PERTURBED = int(Code.PERTURBED)  # the policy that reads what is pending and base


@compiled_free
def run(
    start: int,
    stop: int,
    before: int,
    block: Block,
    who: Ints,
    rows: Array,
    compacts: Array,
    slots: Slots,
    hub: Hub,
    late: Late,
    plan: PolicyPlan,
    rules: LoopRules,
    work: Scratch,
    out: Outcome,
) -> Pause:
    """Interactions start, …, stop − 1 of a block that `before` interactions precede, until Python is needed.

    `who` says which row serves the user of each.
    """
    ring = late.first.shape[0]
    delayed = block.delays.shape[0] > 0
    d = block.X.shape[1]
    s = start
    linked = slots.met.shape[0] > 0
    growing = slots.slot_of.shape[0] - slots.row_at.shape[0]  # rows that have no place yet
    while s < stop:
        if rules.speaks and not has_room(hub):
            return Pause(s, HUB_FULL, -1, s)
        if max(slots.taken[FULL] - slots.row_at.shape[0], slots.taken[COMPACT] - compacts.shape[0]) == 0 < growing:
            return Pause(s, ROWS_FULL, -1, s)
        look_ahead(block, who, s, stop, slots, hub, rules.speaks)
        now = before + s
        entry = late.first[now % ring] if delayed else -1
        acting = entry < 0
        if acting:
            r = who[s]
            if linked and not slots.met[r]:
                return Pause(s, NEWCOMER, r, s)
            if slots.slot_of[r] == -1:
                if rules.fused:
                    start_compact(compacts[slots.taken[COMPACT]])
                    slots.slot_of[r] = compact_slot(slots.taken[COMPACT])
                    slots.taken[COMPACT] += 1
                else:
                    copy(rules.blank, rows[take_slot(slots, r)])
                if rules.speaks and join(hub, r, rules.warm, rules.counting) and rules.joining_counts:
                    out.downloads[s] += 1
        else:
            r = late.row[entry]
        slot = slots.slot_of[r]
        compact = slot < 0
        row = rows[SCRATCH if compact else slot]
        model = given = row
        if compact:
            held = snapshot_for(r, hub, rules.speaks)
            given = rules.blank if held < 0 else hub.snapshots[held]
            model = fetch(compacts[compact_slot(slot)], r, given, hub, row, d, rules, work, plan.code == PERTURBED)
        elif rules.speaks:
            catch_up(hub, r, row, d, rules.ridge, work.M)

        if acting:
            offered = block.arms[s, : block.counts[s]]
            look_for_row(who, s, stop, rows, compacts, slots, hub, d)
            a = choose_at(plan, model, r, int(row[STEPS]), block.X, offered, work)
            row[STEPS] += 1
            x = block.X[offered[a]]
            y = pull(block, s, a, out)
            s += 1
            if delayed and block.delays[s - 1] > 0:
                send_later(late, now, block.delays[s - 1], r, x, y)
                if compact:
                    compacts[compact_slot(slot), CHOSEN] = row[STEPS]
                continue
        else:
            late.first[now % ring] = late.following[entry]
            x = late.x[entry]
            y = late.y[entry]
            multiply_packed(inverse_of(model, d), x, work.best_u)

        at = s - 1 if acting else s
        if rules.perturbed:
            y = learnt(rules.rewards, y, r, int(row[N_OWN]))
            if math.isnan(y):
                return Pause(s, REFUSED, slot, at)
        if compact:
            fate = fate_of(row, r, x, work.best_u, hub, rules)
            if fate == STAYS:
                note_observation(compacts[compact_slot(slot)], row, x, y)
                continue
            if fate == RENEWED and rules.calls:
                note_observation(compacts[compact_slot(slot)], row, x, y)
                called = synchronise(hub, r, rows, compacts, slots, d, rules, work.M)
                out.uploads[at] += called
                out.downloads[at] += called
                continue
            if fate == RENEWED:
                out.uploads[at] += 1
                out.downloads[at] += upload_compact(
                    hub, r, compacts[compact_slot(slot)], row, x, y, rules.ridge, rules.counting, work.M
                )
                continue
            fill_in(compacts[compact_slot(slot)], given, row, d, work)
        if rules.fresh:
            observe(row, x, y, work.best_u, rules.ridge, work.M)
        else:
            hold(row, x, y)
        speaks = triggered(rules.kind, pick(rules.thresholds, r), rules.batch, row)
        if speaks and not rules.fused:
            return Pause(s, EVENT, slot, at)
        if speaks and not rules.calls:
            out.uploads[at] += 1
            out.downloads[at] += upload_row(hub, r, row, d, rules.ridge, rules.counting, work.M)
        if compact:
            settle_in(slots, r, rows, d)
        if speaks and rules.calls:
            called = synchronise(hub, r, rows, compacts, slots, d, rules, work.M)
            out.uploads[at] += called
            out.downloads[at] += called
    return Pause(stop, DONE, -1, stop)
