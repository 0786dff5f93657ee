"""Models of very few observations, without matrices of their own, and what becomes of them when they act.

With many clients that act seldom, most models have a handful of observations. Such a row is *compact*: how often it has
chosen, how much it has sent, and the observations (x, y) that it has not. When its client acts, they are put on top of
what its coordinator last gave it, so that no download ever has to be applied to it; and it takes a ninth of the memory
at d = 10, a sixteenth at d = 25.
"""

from __future__ import annotations

import math

import numpy as np

from fedbandit.engine.fast.algebra import add_scaled, clear, copy, dot
from fedbandit.engine.fast.choose import Scratch
from fedbandit.engine.fast.cohorts import ISSUE, SNAPSHOT, Hub, current_cohort, of
from fedbandit.engine.fast.hub import is_stale, measure, renew, take_in_one
from fedbandit.engine.fast.jit import compiled_apart, compiled_inline, compiled_lean, compiled_view
from fedbandit.engine.fast.row import (
    LINE,
    LISTS,
    LOGDET,
    N_LISTED,
    N_OWN,
    N_PENDING,
    STEPS,
    UNREFRESHED,
    VERSION,
    N,
    inverse_of,
    list_end,
    listed_of,
    pending_b_of,
    theta_of,
)
from fedbandit.engine.fast.rules import LoopRules, pick, triggered
from fedbandit.engine.fast.slots import SCRATCH, Slots, compact_slot, take_slot
from fedbandit.engine.fast.statistics import learn, share_base, take_scalars
from fedbandit.engine.fast.switches import has
from fedbandit.state import State, stored
from fedbandit.types import Array

MOST_LISTED = 0 if not has("compact-rows") else 3 if has("pending-lists") else 1
"""How many observations a compact row may have; no more than a full row lists."""

CHOSEN, SENT, COUNT, FIRST = range(4)  # arms chosen, observations sent, others, where these begin


def compact_length(dim: int) -> int:
    """How many numbers a compact row has."""
    needed = FIRST + MOST_LISTED * (dim + 1)
    return needed + -needed % LINE


@compiled_view
def context_of(compact: Array, i: int, d: int) -> Array:
    """The context of observation i."""
    return compact[FIRST + i * (d + 1) : FIRST + i * (d + 1) + d]


@compiled_inline
def reward_of(compact: Array, i: int, d: int) -> float:
    """The reward of observation i."""
    return compact[FIRST + i * (d + 1) + d]


@compiled_inline
def pending_end(compact: Array, d: int) -> int:
    """Where the observations end."""
    return FIRST + int(compact[COUNT]) * (d + 1)


@compiled_inline
def load_scalars(compact: Array, given: Array, row: Array) -> None:
    """Fill the scalars of `row` from `compact` on top of `given`; complete if nothing is pending."""
    k = int(compact[COUNT])
    row[STEPS] = compact[CHOSEN]
    row[VERSION] = 0
    row[N_OWN] = compact[SENT] + k
    row[N_PENDING] = row[N_LISTED] = row[UNREFRESHED] = k
    take_scalars(row, given)
    row[LOGDET] = given[LOGDET]


@compiled_lean
def load_model(compact: Array, given: Array, row: Array, d: int, u: Array) -> None:
    """Put θ̂ and V(λ)⁻¹ of a compact row on `row`, where `load_scalars` has been; u is scratch.

    By Sherman–Morrison, as in `observe`. The rest of a row is left to `complete`.
    """
    theta, inverse = theta_of(row, d), inverse_of(row, d)
    copy(theta_of(given, d), theta)
    copy(inverse_of(given, d), inverse)
    if compact[COUNT] == 0:
        return
    product = 1.0
    for i in range(int(compact[COUNT])):
        product *= learn(theta, inverse, context_of(compact, i, d), reward_of(compact, i, d), u)
    row[LOGDET] += math.log(product)


@compiled_apart
def complete(compact: Array, given: Array, row: Array, d: int) -> None:
    """Make `row`, whose model is there, a full row: what is pending, and what it shares with `given`."""
    share_base(row, given, d)
    listed, pending_b = listed_of(row, d), pending_b_of(row, d)
    clear(pending_b)
    for i in range(int(compact[COUNT])):
        copy(context_of(compact, i, d), listed[i])
        add_scaled(context_of(compact, i, d), reward_of(compact, i, d), pending_b)


@compiled_inline
def start_compact(compact: Array) -> None:
    """A compact row of nothing; what is in the room for its observations does not matter."""
    compact[CHOSEN] = compact[SENT] = compact[COUNT] = 0.0


@compiled_lean
def note_upload(compact: Array, row: Array) -> None:
    """A compact row, for which `row` has chosen, has sent all that it had and what it then observed."""
    compact[CHOSEN] = row[STEPS]
    compact[SENT] = row[N_OWN] + 1
    compact[COUNT] = 0.0


def dump_compact(compacts: Array, d: int) -> dict[str, Array]:
    """What compact rows have: numbers, and observations, with zeros where there are none."""
    observations = compacts[:, FIRST : FIRST + MOST_LISTED * (d + 1)].reshape(len(compacts), MOST_LISTED, d + 1).copy()
    observations[np.arange(MOST_LISTED) >= compacts[:, COUNT, None]] = 0.0
    return {"compact.numbers": compacts[:, :FIRST].copy(), "compact.observations": observations}


def load_compact(compacts: Array, d: int, state: State) -> None:
    """Make compact rows of it."""
    L = len(compacts)
    compacts[:, :FIRST] = stored(state, "compact.numbers", (L, FIRST))
    observations = stored(state, "compact.observations", (L, MOST_LISTED, d + 1))
    compacts[:, FIRST : FIRST + MOST_LISTED * (d + 1)] = observations.reshape(L, MOST_LISTED * (d + 1))


@compiled_lean
def note_observation(compact: Array, row: Array, x: Array, y: float) -> None:
    """A compact row, for which `row` has chosen, has seen (x, y)."""
    d = x.shape[0]
    k = int(compact[COUNT])
    compact[CHOSEN] = row[STEPS]
    compact[COUNT] = k + 1
    copy(x, context_of(compact, k, d))
    compact[FIRST + k * (d + 1) + d] = y


STAYS, RENEWED, MOVES = 0, 1, 2
"""A compact row stays compact; uploads, is given the current snapshot and stays compact; or needs matrices."""


@compiled_inline
def fate_of(spare: Array, r: int, x: Array, u: Array, hub: Hub, rules: LoopRules) -> int:
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
        stale = rules.calls or is_stale(hub, r, measure(spare, rules.counting), rules.counting)
        fate = RENEWED if stale else MOVES
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
    compact: Array, r: int, given: Array, hub: Hub, spare: Array, d: int, rules: LoopRules, work: Scratch, whole: bool
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
        complete(compact, given, spare, d)
    return spare


@compiled_apart
def fill_in(compact: Array, given: Array, spare: Array, d: int, work: Scratch) -> None:
    """Complete the scratch row that `fetch` filled only for scoring."""
    if compact[COUNT] == 0:
        load_model(compact, given, spare, d, work.u)
    complete(compact, given, spare, d)


@compiled_apart
def settle_in(slots: Slots, r: int, rows: Array, d: int) -> None:
    """Move row r from the scratch row, where it was filled in and nothing is folded if there is a list, to a full slot
    of its own.
    """
    spare, row = rows[SCRATCH], rows[take_slot(slots, r)]
    end = list_end(spare, d) if LISTS else spare.shape[0]
    copy(spare[:end], row[:end])


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
def settle_all(rows: Array, compacts: Array, slots: Slots, hub: Hub, rules: LoopRules, work: Scratch) -> None:
    """Give every row a full slot: for whoever wants to look at all of them."""
    d = work.u.shape[0]
    for r in range(slots.slot_of.shape[0]):
        slot = slots.slot_of[r]
        if slot < -1:
            compact = compacts[compact_slot(slot)]
            held = snapshot_for(r, hub, rules.speaks)
            given = rules.blank if held < 0 else hub.snapshots[held]
            fetch(compact, r, given, hub, rows[SCRATCH], d, rules, work, False)
            fill_in(compact, given, rows[SCRATCH], d, work)
            settle_in(slots, r, rows, d)
