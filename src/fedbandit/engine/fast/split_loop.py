"""The compiled loop of models in two parts: as `loop`, with a shared row that is exchanged and a personal one."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.engine.fast.algebra import copy
from fedbandit.engine.fast.choose import Scratch, choose
from fedbandit.engine.fast.choose_split import SplitScratch, choose_split
from fedbandit.engine.fast.cohorts import Hub, has_room
from fedbandit.engine.fast.delayed import Late, send_later
from fedbandit.engine.fast.hub import catch_up, join, upload_row
from fedbandit.engine.fast.jit import compiled_free, compiled_lean
from fedbandit.engine.fast.outcome import pull
from fedbandit.engine.fast.packed import multiply_packed
from fedbandit.engine.fast.plan import PolicyPlan
from fedbandit.engine.fast.rewards import learnt
from fedbandit.engine.fast.rules import DONE, EVENT, HUB_FULL, NEWCOMER, REFUSED, Pause
from fedbandit.engine.fast.split_model import cut, mask, observe_split
from fedbandit.engine.fast.statistics import N_OWN, VERSION, inverse_of, observe, scratch_in
from fedbandit.engine.fast.triggers import pick, triggered
from fedbandit.engine.outcome import Outcome
from fedbandit.environments.block import Block
from fedbandit.rewards import RewardPlan
from fedbandit.structures.two_part_model import Parts
from fedbandit.types import Array, Ints

BEGIN = 32  # a client in its start-up may have full rank: beyond the codes of `rules.Status`
ABSENT, STARTING, RUNNING = -1, 0, 1


class SplitRows(NamedTuple):
    """All clients' rows."""

    shared: Array  # (N, row of d_g)
    own: Array  # (N, row of d_l), or (0, 0) if nobody has a personal part
    first: Array  # (N, row of d)  of the start-up, or (0, 0)
    phase: Ints  # (N,)  ABSENT, STARTING, RUNNING
    looked: Ints  # (N,)  the version of the download at which rank was last looked at
    sizes: Ints  # (N,)  d_i


class SplitRules(NamedTuple):
    """The protocol as this loop sees it."""

    kind: int
    thresholds: Array
    batch: int
    ridge: float
    speaks: bool
    fused: bool
    counting: bool
    warm: bool
    joining_counts: bool
    startup: bool
    perturbed: bool
    rewards: RewardPlan
    blank_shared: Array
    blank_own: Array
    blank_first: Array


@compiled_lean
def enter(rows: SplitRows, rules: SplitRules, i: int, d_l: int) -> None:
    """Client i acts for the first time."""
    copy(rules.blank_shared, rows.shared[i])
    rows.phase[i] = RUNNING
    if d_l > 0:
        copy(rules.blank_own, rows.own[i])
        if rules.startup and rows.sizes[i] > 0:
            copy(rules.blank_first, rows.first[i])
            rows.phase[i] = STARTING


@compiled_free
def run_split(
    start: int,
    stop: int,
    before: int,
    block: Block,
    rows: SplitRows,
    parts: Parts,
    hub: Hub,
    met: NDArray[np.bool_],
    late: Late,
    plan: PolicyPlan,
    rules: SplitRules,
    whole: Scratch,
    work: SplitScratch,
    masked: Array,
    positions: Ints,
    out: Outcome,
) -> Pause:
    """Interactions start, …, stop − 1 of a block that `before` interactions precede, until Python is needed.

    `whole` is room for a row on the whole context, `masked` for all arms of an interaction, `positions` is 0, 1, ….
    """
    ring = late.first.shape[0]
    delayed = block.delays.shape[0] > 0
    d, d_g, d_l = block.X.shape[1], parts.shared, parts.own
    linked = met.shape[0] > 0
    s = start
    while s < stop:
        if rules.speaks and not has_room(hub):
            return Pause(s, HUB_FULL, -1, s)
        now = before + s
        entry = late.first[now % ring] if delayed else -1
        acting = entry < 0
        i = block.clients[s] if acting else late.row[entry]
        at = s
        if acting and linked and not met[i]:
            return Pause(s, NEWCOMER, i, s)
        if rows.phase[i] == ABSENT:
            enter(rows, rules, i, d_l)
            if rules.speaks and join(hub, i, rules.warm, rules.counting) and rules.joining_counts:
                out.downloads[s] += 1
        row_g = rows.shared[i]
        starting = rows.phase[i] == STARTING
        if rules.speaks:
            catch_up(hub, i, row_g, d_g, rules.ridge, scratch_in(work.M, d_g))
        if acting:
            offered = block.arms[s, : block.counts[s]]
            if starting or d_l == 0:
                row = rows.first[i] if starting else row_g
                for k in range(offered.shape[0]):
                    mask(block.X[offered[k]], parts, rows.sizes[i], masked[k])
                a = choose(plan, row, i, masked, positions[: offered.shape[0]], whole)
                if d_l == 0:
                    copy(whole.best_u, work.u_g)
            else:
                a = choose_split(plan, row_g, rows.own[i], i, block.X, offered, parts, rows.sizes[i], work)
            x = block.X[offered[a]]
            y = pull(block, s, a, out)
            s += 1
            if delayed and block.delays[at] > 0:
                send_later(late, now, block.delays[at], i, x, y)
                continue
        else:
            late.first[now % ring] = late.following[entry]
            x = late.x[entry]
            y = late.y[entry]
            if not starting:
                multiply_packed(inverse_of(row_g, d_g), x[:d_g], work.u_g)
                if d_l > 0:
                    cut(x, parts, rows.sizes[i], work.x_l)
                    multiply_packed(inverse_of(rows.own[i], d_l), work.x_l, work.u_l)
        if rules.perturbed:
            y = learnt(rules.rewards, y, i, int((rows.first[i] if starting else row_g)[N_OWN]))
            if math.isnan(y):
                return Pause(s, REFUSED, i, at)
        if starting:
            row = rows.first[i]
            mask(x, parts, rows.sizes[i], masked[0])
            multiply_packed(inverse_of(row, d), masked[0], whole.best_u)
            observe(row, masked[0], y, whole.best_u, rules.ridge, whole.M)
            if row_g[VERSION] != rows.looked[i] or row[N_OWN] >= d_g:
                return Pause(s, BEGIN, i, at)
            continue
        if d_l == 0:
            observe(row_g, x, y, work.u_g, rules.ridge, scratch_in(work.M, d_g))
        else:
            observe_split(row_g, rows.own[i], x[:d_g], work.x_l, y, work.u_g, work.u_l, rules.ridge, work.M)
        if triggered(rules.kind, pick(rules.thresholds, i), rules.batch, row_g):
            if not rules.fused:
                return Pause(s, EVENT, i, at)
            out.uploads[at] += 1
            out.downloads[at] += upload_row(hub, i, row_g, d_g, rules.ridge, rules.counting, scratch_in(work.M, d_g))
    return Pause(stop, DONE, -1, stop)
