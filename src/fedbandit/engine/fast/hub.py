"""The coordinator's memory, built so that an upload costs the same for a thousand clients as for a million.

Theory of operation
-------------------
After a download a client shares exactly what the coordinator has, so all clients of one download share the same
statistics: they are a **cohort**. A download is a broadcast: one *snapshot* of the coordinator's statistics (with its
inverse, computed once) and a new cohort. Who must be sent one? Those for whom

    measure(coordinator) − measure(what client j shares) > log γ_D(j)                      (Async-LinUCB, Eq. 4)

with measure = log det V(λ)/det λI, or the log of the number of observations. The second term is the same for a whole
cohort and never changes while it exists, so cohorts wait in the order of

    key = measure(shared) + log γ_D

and an upload takes out those that have become stale. They merge into the new one (union–find: no member is touched).
What a coordinator has grows, so that a cohort that is given all there is nearly always has the largest key of its
class so far: it goes to the end of a queue, and only others stand in a heap (`wait`). Newcomers, who have nothing, are
the first to be stale and wait outside both.

A client's matrices are brought up to date when it next acts (`catch_up`). A client that uploads leaves its cohort and
is alone until its next download, since from then on it shares more than the snapshot; unless it is stale itself, and
has all there is after that (`renew`).

Groups g are sets of clients that share with one another (one group: everyone). Classes c are distinct values of γ_D;
an upload costs as much more as there are classes, so a γ_D of its own for each client makes it grow with N.
"""

from __future__ import annotations

import math

from fedbandit.engine.fast.algebra import add
from fedbandit.engine.fast.cohorts import (
    CLASS,
    GROUP,
    ISSUE,
    LAST_VERSION,
    LEFT,
    NEXT,
    RIGHT,
    SIZE,
    SNAPSHOT,
    Hub,
    current_cohort,
    drop_snapshot,
    leave,
    meld,
    new_cohort,
    of,
    take_snapshot,
    wait,
)
from fedbandit.engine.fast.jit import compiled_apart, compiled_inline, compiled_lean
from fedbandit.engine.fast.row import (
    LOGDET,
    N_OWN,
    N_PENDING,
    UNREFRESHED,
    VERSION,
    N,
    base_b_of,
    base_of,
    pending_b_of,
)
from fedbandit.engine.fast.statistics import (
    REFRESH_EVERY,
    absorb,
    add_pending,
    adopt,
    has_few_pending,
    include_listed,
    mark_sent,
    recompute,
    refresh,
)
from fedbandit.model import TIE
from fedbandit.types import Array

BOUND_AT = N_OWN  # of a pool row: the observations at which its spectral bound was computed
NOTHING_COUNTED = -1e300  # measure of no observations when counting: log 0, but finite


@compiled_lean
def measure(row: Array, counting: bool) -> float:
    """How much a row has, on the scale that downloads compare."""
    if not counting:
        return row[LOGDET]
    return math.log(row[N]) if row[N] > 0 else NOTHING_COUNTED


@compiled_lean
def open_cohort(hub: Hub, g: int, kind: int, given: bool, counting: bool) -> int:
    """Open the cohort that new clients enter: with a snapshot if `given`, else the empty newcomers' cohort."""
    if not given:
        c = new_cohort(hub, g, kind, NOTHING_COUNTED if counting else 0.0, 0, -1)
        hub.newcomers[g, kind] = c
        return c
    slot = take_snapshot(hub, g)
    c = new_cohort(hub, g, kind, measure(hub.pool[g], counting), hub.counters[LAST_VERSION], slot)
    hub.current[g, kind] = c
    wait(hub, c)
    return c


@compiled_inline
def join(hub: Hub, i: int, warm: bool, counting: bool) -> bool:
    """Client i joins, with nothing, or if `warm` with all there is; True if that was a download."""
    g, kind = of(hub.group_of, i), of(hub.class_of, i)
    given = warm and hub.pool[g, N] > 0
    c = hub.current[g, kind] if given else hub.newcomers[g, kind]
    if c < 0:
        c = open_cohort(hub, g, kind, given, counting)
    hub.cohort_of[i] = c
    hub.cohorts[c, SIZE] += 1
    return given


@compiled_lean
def stand_alone(hub: Hub, i: int, known: float) -> None:
    """Client i has uploaded: it leaves its cohort, since it now shares more than the others do."""
    old = hub.cohorts[leave(hub, i)]
    c = new_cohort(hub, old[GROUP], old[CLASS], known, old[ISSUE], -1)
    hub.cohorts[c, SIZE] = 1
    hub.cohort_of[i] = c
    wait(hub, c)


@compiled_apart
def settle_pool(hub: Hub, g: int, d: int, ridge: float, scratch: Array) -> None:
    """After V, b and n of group g have changed: the inverse and its log-determinant; nobody has all there is now.

    The spectral bound stays valid while V grows; it is tightened when there is a tenth more data than it knows of.
    """
    pool = hub.pool[g]
    if pool[N] < 1.1 * pool[BOUND_AT]:
        recompute(pool, d, ridge, scratch)
    else:
        refresh(pool, d, ridge, scratch)
        pool[BOUND_AT] = pool[N]
    close_current(hub, g)


@compiled_inline
def close_current(hub: Hub, g: int) -> None:
    """Nobody in group g has all there is now."""
    for kind in range(hub.current.shape[1]):
        hub.current[g, kind] = -1


@compiled_inline
def take_in(hub: Hub, g: int, row: Array, d: int, ridge: float, scratch: Array) -> None:
    """Add what a row has pending to what the coordinator has for group g."""
    pool = hub.pool[g]
    add_pending(row, d, base_of(pool, d))
    add(pending_b_of(row, d), base_b_of(pool, d))
    pool[N] += row[N_PENDING]
    refreshed = pool[UNREFRESHED] + row[N_PENDING] <= REFRESH_EVERY and pool[N] < 1.1 * pool[BOUND_AT]
    if refreshed and has_few_pending(row, d):
        include_listed(pool, row, d, scratch)
        close_current(hub, g)
    else:
        settle_pool(hub, g, d, ridge, scratch)


@compiled_inline
def take_in_one(hub: Hub, g: int, x: Array, y: float, ridge: float, scratch: Array) -> None:
    """Add the observation (x, y) to what the coordinator has for group g."""
    pool = hub.pool[g]
    absorb(pool, x, y, scratch[0])
    if pool[UNREFRESHED] <= REFRESH_EVERY and pool[N] < 1.1 * pool[BOUND_AT]:
        close_current(hub, g)
    else:
        settle_pool(hub, g, x.shape[0], ridge, scratch)


@compiled_inline
def hand_out(hub: Hub, c: int, known: float, slot: int) -> int:
    """Cohort c, which waits no longer, is sent all there is; the number of the snapshot, which is taken if slot < 0."""
    cohorts = hub.cohorts
    if cohorts[c, SIZE] > 0:
        g, kind = cohorts[c, GROUP], cohorts[c, CLASS]
        target = hub.current[g, kind]
        if target < 0 or target == c:
            if slot < 0:
                slot = take_snapshot(hub, g)
            target = new_cohort(hub, g, kind, known, hub.counters[LAST_VERSION], slot)
            hub.current[g, kind] = target
        hub.parent[c] = target
        cohorts[target, SIZE] += cohorts[c, SIZE]
    drop_snapshot(hub, c)
    return slot


@compiled_lean
def broadcast(hub: Hub, g: int, everyone: bool, counting: bool) -> int:
    """Send all there is to the clients of group g that are stale (or to all); the number of downloads."""
    cohorts, key = hub.cohorts, hub.key
    known = measure(hub.pool[g], counting)
    limit = math.inf if everyone else known - TIE
    downloads = 0
    slot = -1
    c = hub.heap[g]
    while c >= 0 and key[c] < limit:
        downloads += cohorts[c, SIZE]
        rest = meld(cohorts, key, cohorts[c, LEFT], cohorts[c, RIGHT])
        slot = hand_out(hub, c, known, slot)
        c = rest
    hub.heap[g] = c
    for kind in range(hub.log_gamma.shape[0]):
        c = hub.newcomers[g, kind]
        if c >= 0 and cohorts[c, SIZE] > 0 and key[c] < limit:
            downloads += cohorts[c, SIZE]
            slot = hand_out(hub, c, known, slot)
            hub.newcomers[g, kind] = -1
        c = hub.oldest[g, kind]
        while c >= 0 and key[c] < limit:
            downloads += cohorts[c, SIZE]
            slot = hand_out(hub, c, known, slot)
            c = cohorts[c, NEXT]
        hub.oldest[g, kind] = c
        if c < 0:
            hub.newest[g, kind] = -1
    if slot >= 0:  # only now, or they might be taken out again
        for kind in range(hub.log_gamma.shape[0]):
            c = hub.current[g, kind]
            if c >= 0 and cohorts[c, SNAPSHOT] == slot:
                wait(hub, c)
    return downloads


@compiled_inline
def catch_up(hub: Hub, i: int, row: Array, d: int, ridge: float, scratch: Array) -> None:
    """Before client i acts: apply the last broadcast it was sent, if it has not yet."""
    c = current_cohort(hub, i)
    if hub.cohorts[c, ISSUE] != row[VERSION]:
        row[VERSION] = hub.cohorts[c, ISSUE]
        adopt(row, hub.snapshots[hub.cohorts[c, SNAPSHOT]], d, ridge, scratch)


@compiled_inline
def is_stale(hub: Hub, i: int, known: float, counting: bool) -> bool:
    """Whether client i, if it shared what `known` measures, would have to be sent all there is."""
    pool = hub.pool[of(hub.group_of, i)]
    return measure(pool, counting) > known + hub.log_gamma[of(hub.class_of, i)] + TIE


@compiled_apart
def upload_row(hub: Hub, i: int, row: Array, d: int, ridge: float, counting: bool, scratch: Array) -> int:
    """Client i sends what its row has pending, and those who became stale are sent all there is; the downloads.

    The whole exchange of Async-LinUCB, Alg. 1 lines 3–10, where nothing has to be noised, clustered or carried.
    """
    g = of(hub.group_of, i)
    take_in(hub, g, row, d, ridge, scratch)
    mark_sent(row, d)
    known = measure(row, counting)
    received = 0
    if is_stale(hub, i, known, counting):
        # The uploader itself is stale. It is at hand: no snapshot has to be kept for it.
        adopt(row, hub.pool[g], d, ridge, scratch)
        known = measure(hub.pool[g], counting)
        received = 1
    stand_alone(hub, i, known)
    return received + broadcast(hub, g, False, counting)


@compiled_inline
def renew(hub: Hub, i: int, counting: bool) -> int:
    """After an upload of a client that is stale with what it sent, as nearly every newcomer is: the downloads.

    It is given all there is as a member of the cohort that has it, so that its row may be forgotten.
    """
    leave(hub, i)
    downloads = broadcast(hub, of(hub.group_of, i), False, counting)
    join(hub, i, True, counting)
    return downloads + 1
