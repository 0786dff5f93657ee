"""The common case, compiled: choose an arm, observe, check the trigger; return only when Python is needed."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple

from fedbandit.algebra import Array, Ints, copy, copy_away, dot
from fedbandit.compiled import compiled_free, compiled_inline, compiled_lean
from fedbandit.engine.late import Late, send_later
from fedbandit.engine.outcome import Outcome, pull
from fedbandit.environments.block import Block
from fedbandit.light import (
    CHOSEN,
    COUNT,
    LIGHTLY,
    complete,
    context_of,
    load_model,
    load_scalars,
    note_observation,
    note_upload,
    pending_end,
    reward_of,
    start_light,
)
from fedbandit.packed import multiply_packed
from fedbandit.policies import PolicyPlan, Scratch, choose_at
from fedbandit.policies.plan import Code
from fedbandit.protocols.cohorts import ISSUE, SNAPSHOT, Hub, current_cohort, has_room, is_crowded, of
from fedbandit.protocols.hub import catch_up, is_stale, join, measure, own_base, renew, take_in_one, upload_row
from fedbandit.protocols.trigger import pick, triggered
from fedbandit.rewards import RewardPlan, learnt
from fedbandit.statistics import (
    LINE,
    LOGDET,
    N_OWN,
    N_PENDING,
    REFRESH_EVERY,
    STEPS,
    UNREFRESHED,
    VERSION,
    N,
    base_at,
    hold,
    hot_length,
    inverse_at,
    inverse_of,
    list_end,
    next_line,
    observe,
    shared_length,
)
from fedbandit.vectors import prefetch


class Status(IntEnum):
    """Why the loop came back."""

    DONE = 0  # the block is finished
    ROWS_FULL = 1  # a new row is needed
    HUB_FULL = 2  # the hub may not have room for another upload
    EVENT = 3  # a row wants to speak
    REFUSED = 4  # a reward is outside the range that was promised


DONE, ROWS_FULL, HUB_FULL, EVENT, REFUSED = (int(status) for status in Status)


class Seats(NamedTuple):
    """Where in the arrays a model row is.

    A row first gets a light seat, where it has no matrices (`fedbandit.light`), and a full one when it needs
    them: when it has more than a few observations to send, or shares something that no snapshot is of.
    """

    seat_of: Ints  # (rows,) −1 before the row has acted, −2 − k in light seat k, else the full seat
    row_at: Ints  # (capacity,) the row in a full seat
    taken: Ints  # full seats and light seats in use


FULL, LIGHT = 0, 1

BENCH = -1
"""The last of the rows is nobody's seat: light rows are worked on there."""

PERTURBED = int(Code.PERTURBED)  # the policy that reads what is pending and base

FAR, NEARER, NEAR, SOON, NEXT = 10, 8, 4, 2, 1
"""How many interactions ahead are fetched: where a row is, and its cohort; what that has gone into, and so on; the
cohort that it is in now; the row, what it was given, and the arms that are offered; and what the row says is needed
of the rest of it."""


BEGINNING = 8 * LINE
"""How much of an inverse is fetched first."""


class Rules(NamedTuple):
    """The protocol as the loop sees it."""

    kind: int
    thresholds: Array
    ridge: float
    speaks: bool  # there is a coordinator
    fused: bool  # an upload may be handled here
    counting: bool
    warm: bool  # a row that first acts has what there is
    joining_counts: bool  # and that is a download
    blank: Array  # a full row without observations
    batch: int  # the least number of pending observations with which a COUNT trigger fires
    fresh: bool  # a model learns from observations at once, not only from what is released
    perturbed: bool  # rewards are checked, and may be noised, before anything is learnt from them
    rewards: RewardPlan


class Pause(NamedTuple):
    """Where the loop stopped: continue at `resume`; the cause arose in interaction `at`, at `seat`."""

    resume: int
    status: int
    seat: int
    at: int


@compiled_lean
def take_seat(seats: Seats, r: int) -> int:
    """Give row r the next full seat."""
    seat = seats.taken[FULL]
    seats.taken[FULL] += 1
    seats.seat_of[r] = seat
    seats.row_at[seat] = r
    return seat


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


@compiled_lean
def fill_in(light: Array, given: Array, bench: Array, d: int, work: Scratch, borrows: bool) -> None:
    """Make of a light row, as far as it was put on the bench to choose with, a full row."""
    if light[COUNT] == 0:
        load_model(light, given, bench, d, work.u)
    complete(light, given, bench, d, borrows)


@compiled_lean
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


@compiled_lean
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


@compiled_inline
def look_ahead(block: Block, who: Ints, s: int, stop: int, seats: Seats, hub: Hub, speaks: bool) -> None:
    """Have what the next interactions need fetched from memory while this one is worked on.

    Here, where rows are, as they cannot be fetched before that is known, and the arms, which another thread may just
    have written; the rows when this interaction has chosen (`look_for_row`), as only so much can be under way at once.
    """
    if s + FAR < stop:
        prefetch(seats.seat_of, who[s + FAR])
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
    for ahead in range(NEAR + 1, NEARER):
        r = who[s + ahead]
        if hub.cohort_of[r] >= 0:
            hub.cohort_of[r] = hub.parent[hub.cohort_of[r]]
            prefetch(hub.parent, hub.cohort_of[r])
    r = who[s + NEAR]
    if hub.cohort_of[r] >= 0:
        prefetch(hub.cohorts[current_cohort(hub, r)], 0)


@compiled_inline
def look_for_row(who: Ints, s: int, stop: int, rows: Array, lights: Array, seats: Seats, hub: Hub, d: int) -> None:
    """Have a row that acts soon fetched: a full one, or a light one and what it was given; then, what else it needs."""
    if s + SOON >= stop:
        return
    seat = seats.seat_of[who[s + SOON]]
    if seat >= 0:
        fetch_ahead(rows[seat], 0, inverse_at(d) + BEGINNING)
    elif seat < -1:
        fetch_ahead(lights[-2 - seat], 0, 2 * LINE)
        if is_crowded(hub):
            slot = hub.cohorts[hub.cohort_of[who[s + SOON]], SNAPSHOT]
            if slot >= 0:
                fetch_ahead(hub.snapshots[slot], 0, hot_length(d))
    seat = seats.seat_of[who[s + NEXT]]
    if seat >= 0:  # the rest of its inverse, and where it will list its next context
        fetch_ahead(rows[seat], inverse_at(d) + BEGINNING, hot_length(d))
        at = list_end(rows[seat], d)
        fetch_ahead(rows[seat], at - at % LINE, at + d)
    elif seat < -1:
        fetch_ahead(lights[-2 - seat], 2 * LINE, pending_end(lights[-2 - seat], d))


@compiled_inline
def fetch_ahead(array: Array, start: int, stop: int) -> None:
    """Have entries start, …, stop − 1 fetched, if a line of the cache begins at `start`."""
    for i in range(start, stop, LINE):
        prefetch(array, i)


@compiled_free
def run(
    start: int,
    stop: int,
    before: int,
    block: Block,
    who: Ints,
    rows: Array,
    lights: Array,
    seats: Seats,
    hub: Hub,
    late: Late,
    plan: PolicyPlan,
    rules: Rules,
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
    borrowing = rules.fused and rules.speaks and plan.code != PERTURBED
    growing = seats.seat_of.shape[0] - seats.row_at.shape[0]  # rows that have no place yet
    while s < stop:
        if rules.speaks and not has_room(hub):
            return Pause(s, HUB_FULL, -1, s)
        if max(seats.taken[FULL] - seats.row_at.shape[0], seats.taken[LIGHT] - lights.shape[0]) == 0 < growing:
            return Pause(s, ROWS_FULL, -1, s)
        look_ahead(block, who, s, stop, seats, hub, rules.speaks)
        now = before + s
        entry = late.first[now % ring] if delayed else -1
        acting = entry < 0
        if acting:
            r = who[s]
            if seats.seat_of[r] == -1:
                if rules.fused:
                    start_light(lights[seats.taken[LIGHT]])
                    seats.seat_of[r] = -2 - seats.taken[LIGHT]
                    seats.taken[LIGHT] += 1
                else:
                    copy(rules.blank, rows[take_seat(seats, r)])
                if rules.speaks and join(hub, r, rules.warm, rules.counting) and rules.joining_counts:
                    out.downloads[s] += 1
        else:
            r = late.row[entry]
        seat = seats.seat_of[r]
        light = seat < 0
        row = rows[BENCH if light else seat]
        model = given = row
        borrows = borrowing
        if light:
            slot = snapshot_for(r, hub, rules.speaks)
            given = rules.blank if slot < 0 else hub.snapshots[slot]
            model = fetch(lights[-2 - seat], r, given, hub, row, d, rules, work, plan.code == PERTURBED)
            borrows = borrowing and slot >= 0
        elif rules.speaks:
            catch_up(hub, r, row, d, rules.ridge, work.M, borrows)

        if acting:
            offered = block.arms[s, : block.counts[s]]
            a = choose_at(plan, model, r, int(row[STEPS]), block.X, offered, work)
            row[STEPS] += 1
            look_for_row(who, s, stop, rows, lights, seats, hub, d)
            x = block.X[offered[a]]
            y = pull(block, s, a, out)
            s += 1
            if delayed and block.delays[s - 1] > 0:
                send_later(late, now, block.delays[s - 1], r, x, y)
                if light:
                    lights[-2 - seat, CHOSEN] = row[STEPS]
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
                return Pause(s, REFUSED, seat, at)
        if light:
            fate = fate_of(row, r, x, work.best_u, hub, rules)
            if fate == STAYS:
                note_observation(lights[-2 - seat], row, x, y)
                continue
            if fate == RENEWED:
                out.uploads[at] += 1
                out.downloads[at] += upload_light(
                    hub, r, lights[-2 - seat], row, x, y, rules.ridge, rules.counting, work.M
                )
                continue
            fill_in(lights[-2 - seat], given, row, d, work, borrows)
        elif borrows and row[UNREFRESHED] >= REFRESH_EVERY - 1:
            own_base(hub, r, row, d)
        if rules.fresh:
            observe(row, x, y, work.best_u, rules.ridge, work.M)
        else:
            hold(row, x, y)
        if triggered(rules.kind, pick(rules.thresholds, r), rules.batch, row):
            if not rules.fused:
                return Pause(s, EVENT, seat, at)
            if borrows:
                own_base(hub, r, row, d)
                borrows = False
            out.uploads[at] += 1
            out.downloads[at] += upload_row(hub, r, row, d, rules.ridge, rules.counting, work.M)
        if light:
            settle_in(seats, r, rows, d, borrows)
    return Pause(stop, DONE, -1, stop)
