"""Light rows at work: put on the bench for a client that acts, and what becomes of them then."""

from __future__ import annotations

import math

from fedbandit.engine.fast.algebra import copy_away, dot
from fedbandit.engine.fast.choose import Scratch
from fedbandit.engine.fast.cohorts import ISSUE, SNAPSHOT, Hub, current_cohort, of
from fedbandit.engine.fast.hub import is_stale, measure, renew, take_in_one
from fedbandit.engine.fast.jit import compiled_apart, compiled_inline
from fedbandit.engine.fast.light import (
    COUNT,
    LIGHTLY,
    complete,
    context_of,
    load_model,
    load_scalars,
    note_upload,
    reward_of,
)
from fedbandit.engine.fast.rules import Rules
from fedbandit.engine.fast.slots import BENCH, Seats, take_seat
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
"""What becomes of a light row: it stays; it sends what it has, is given all there is, and stays; it needs matrices."""


@compiled_inline
def fate_of(bench: Array, r: int, x: Array, u: Array, hub: Hub, rules: Rules) -> int:
    """What becomes of light row r, on the bench, after one more observation, of x with u = V(λ)⁻¹x.

    Only what is compared is brought up to date for the question, as the bench is forgotten if the row stays light.
    """
    if bench[N_PENDING] >= LIGHTLY:
        return MOVES
    logdet = bench[LOGDET]
    bench[LOGDET] += math.log(1.0 + dot(x, u))
    for count in (N, N_OWN, N_PENDING):
        bench[count] += 1
    fate = STAYS
    if triggered(rules.kind, pick(rules.thresholds, r), rules.batch, bench):
        fate = RENEWED if is_stale(hub, r, measure(bench, rules.counting), rules.counting) else MOVES
    bench[LOGDET] = logdet
    for count in (N, N_OWN, N_PENDING):
        bench[count] -= 1
    return fate


@compiled_inline
def snapshot_for(r: int, hub: Hub, speaks: bool) -> int:
    """What the coordinator last sent the light row r: the number of a snapshot, or −1 for nothing."""
    return hub.cohorts[current_cohort(hub, r), SNAPSHOT] if speaks else -1


@compiled_inline
def fetch(
    light: Array, r: int, given: Array, hub: Hub, bench: Array, d: int, rules: Rules, work: Scratch, whole: bool
) -> Array:
    """Put the light row r, which was `given` that, on the bench as far as arms are chosen with it; where its model is.

    If it has nothing to put on top, the model is the given one, which is not copied unless a full row is asked for.
    """
    load_scalars(light, given, bench)
    if rules.speaks:
        bench[VERSION] = hub.cohorts[current_cohort(hub, r), ISSUE]
    if light[COUNT] == 0 and not whole:
        return given
    load_model(light, given, bench, d, work.u)
    if whole:
        complete(light, given, bench, d, False)
    return bench


@compiled_apart
def fill_in(light: Array, given: Array, bench: Array, d: int, work: Scratch, borrows: bool) -> None:
    """Make of a light row, as far as it was put on the bench to choose with, a full row."""
    if light[COUNT] == 0:
        load_model(light, given, bench, d, work.u)
    complete(light, given, bench, d, borrows)


@compiled_apart
def settle_in(seats: Seats, r: int, rows: Array, d: int, borrows: bool) -> None:
    """Move row r from the bench, where it was filled in and nothing is folded, to a full seat of its own."""
    bench, row = rows[BENCH], rows[take_seat(seats, r)]
    base, listed, end = base_at(d), shared_length(d), next_line(list_end(bench, d))
    copy_away(bench[:base], row[:base])
    if not borrows:
        copy_away(bench[base:listed], row[base:listed])
    copy_away(bench[listed:end], row[listed:end])


@compiled_inline
def upload_light(
    hub: Hub, r: int, light: Array, bench: Array, x: Array, y: float, ridge: float, counting: bool, scratch: Array
) -> int:
    """The light row r, on the bench, sends its observations and the last one, (x, y), and is renewed; the downloads."""
    d = x.shape[0]
    g = of(hub.group_of, r)
    for i in range(int(light[COUNT])):
        take_in_one(hub, g, context_of(light, i, d), reward_of(light, i, d), ridge, scratch)
    take_in_one(hub, g, x, y, ridge, scratch)
    note_upload(light, bench)
    return renew(hub, r, counting)


@compiled_apart
def settle_all(rows: Array, lights: Array, seats: Seats, hub: Hub, rules: Rules, work: Scratch) -> None:
    """Give every row a full seat: for whoever wants to look at all of them."""
    d = work.u.shape[0]
    for r in range(seats.seat_of.shape[0]):
        seat = seats.seat_of[r]
        if seat < -1:
            light = lights[-2 - seat]
            slot = snapshot_for(r, hub, rules.speaks)
            given = rules.blank if slot < 0 else hub.snapshots[slot]
            fetch(light, r, given, hub, rows[BENCH], d, rules, work, False)
            fill_in(light, given, rows[BENCH], d, work, False)
            settle_in(seats, r, rows, d, False)
