"""The coordinator's memory, built so that an upload costs the same for a thousand clients as for a million.

Theory of operation
-------------------
After a download a client shares exactly what the coordinator has, so all clients of one download share the same
statistics: they are a **cohort**. A download is a broadcast: one *snapshot* of the coordinator's statistics (with its
inverse, computed once) and a new cohort. Who must be sent one? Those for whom

    measure(coordinator) − measure(what client j shares) > log γ_D(j)                      (Async-LinUCB, Eq. 4)

with measure = log det V(λ)/det λI, or the log of the number of observations. The second term is the same for a whole
cohort and never changes while it exists, so cohorts stand in a heap ordered by

    key = measure(shared) + log γ_D

and an upload pops those that have become stale. The popped cohorts merge into the new one (union–find: no member is
touched). A client's matrices are brought up to date when it next acts (`catch_up`). A client that uploads leaves its
cohort and is alone until its next download, since from then on it shares more than the snapshot.

Groups g are sets of clients that share with one another (one group: everyone). Classes c are distinct values of γ_D;
an upload costs as much more as there are classes, so a γ_D of its own for each client makes it grow with N.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedbandit.algebra import Array, Ints, add, copy
from fedbandit.compiled import compiled_inline, compiled_lean
from fedbandit.statistics import (
    LOGDET,
    N_OWN,
    N_PENDING,
    TIE,
    VERSION,
    N,
    add_pending,
    adopt,
    base_b_of,
    base_of,
    empty_rows,
    mark_sent,
    pending_b_of,
    recompute,
    refresh,
    start_row,
)


class Hub(NamedTuple):
    """All of the coordinator's memory."""

    pool: Array  # (G, row)      what the coordinator has, as one row of statistics for each group
    heap: Ints  # (G,)          the cohort on top of the group's heap, −1 for none
    current: Ints  # (G, C)        the cohort that has all there is, −1 for none
    newcomers: Ints  # (G, C)        the cohort that has nothing yet, −1 for none
    cohorts: Ints  # (Q, 8)        columns PARENT … RIGHT
    key: Array  # (Q,)
    snapshots: Array  # (Z, row)      statistics that were broadcast and that some cohort still has
    users: Ints  # (Z,)          how many cohorts have them
    free: Ints  # (Z,)          stack of free snapshots
    cohort_of: Ints  # (N,)          −1 before a client joins
    group_of: Ints  # (N,), or (1,) for all clients
    class_of: Ints  # (N,), or (1,) for all clients
    log_gamma: Array  # (C,)          log γ_D of each class
    counters: Ints  # cohorts used, snapshots free, version of the last snapshot


PARENT, SIZE, GROUP, CLASS, SNAPSHOT, ISSUE, LEFT, RIGHT = range(8)  # ISSUE: the version its members have
USED, FREE, LAST_VERSION = range(3)
BOUND_AT = N_OWN  # of a pool row: the observations at which its spectral bound was computed
NOTHING_COUNTED = -1e300  # measure of no observations when counting: log 0, but finite


def empty_hub(dim: int, n_clients: int, n_groups: int, group_of: Ints, log_gamma: Array, ridge: float) -> Hub:
    """The memory of a coordinator that has heard nothing; `log_gamma` has one value, or one for each client."""
    classes, class_of = np.unique(log_gamma, return_inverse=True)
    room = max(64, 4 * (classes.size + 4), n_clients // 16)  # `make_room` looks at every client: let it be rare
    slots = 64
    pool = empty_rows(n_groups, dim)
    for row in pool:
        start_row(row, dim, ridge)
    return Hub(
        pool=pool,
        heap=np.full(n_groups, -1),
        current=np.full((n_groups, classes.size), -1),
        newcomers=np.full((n_groups, classes.size), -1),
        cohorts=np.zeros((room, 8), dtype=np.int64),
        key=np.zeros(room),
        snapshots=empty_rows(slots, dim),
        users=np.zeros(slots, dtype=np.int64),
        free=np.arange(slots),
        cohort_of=np.full(n_clients, -1),
        group_of=group_of,
        class_of=class_of.astype(np.int64).reshape(-1),
        log_gamma=classes,
        counters=np.array([0, slots, 0], dtype=np.int64),
    )


@compiled_inline
def of(per_client: Ints, i: int) -> int:
    """Entry i of an array with one entry for each client or one for all."""
    return per_client[i] if per_client.shape[0] > 1 else per_client[0]


@compiled_inline
def has_room(hub: Hub) -> bool:
    """Whether one more upload surely fits: a cohort for the uploader, for newcomers, and for every class."""
    needed = hub.log_gamma.shape[0] + 2
    return hub.counters[USED] + needed <= hub.key.shape[0] and hub.counters[FREE] >= 2


@compiled_inline
def find(cohorts: Ints, c: int) -> int:
    """The cohort that cohort c has gone into, halving the path on the way."""
    while cohorts[c, PARENT] != c:
        cohorts[c, PARENT] = cohorts[cohorts[c, PARENT], PARENT]
        c = cohorts[c, PARENT]
    return c


@compiled_lean
def meld(cohorts: Ints, key: Array, a: int, b: int) -> int:
    """Merge two skew heaps and return the top."""
    if a < 0:
        return b
    if b < 0:
        return a
    if key[b] < key[a]:
        a, b = b, a
    top = a
    while True:
        rest = cohorts[a, RIGHT]
        cohorts[a, RIGHT] = cohorts[a, LEFT]
        if rest < 0:
            cohorts[a, LEFT] = b
            return top
        if key[b] < key[rest]:
            cohorts[a, LEFT] = b
            a, b = b, rest
        else:
            cohorts[a, LEFT] = rest
            a = rest


@compiled_lean
def build_heaps(cohorts: Ints, key: Array, heap: Ints, n: int) -> None:
    """Put the first n cohorts on the heaps of their groups."""
    for c in range(n):
        g = cohorts[c, GROUP]
        heap[g] = meld(cohorts, key, heap[g], c)


@compiled_lean
def new_cohort(hub: Hub, g: int, kind: int, known: float, version: int, snapshot: int) -> int:
    """A cohort without members that shares what `known` measures, put on the heap."""
    c = hub.counters[USED]
    hub.counters[USED] += 1
    cohort = hub.cohorts[c]
    cohort[PARENT] = c
    cohort[SIZE] = 0
    cohort[GROUP] = g
    cohort[CLASS] = kind
    cohort[SNAPSHOT] = snapshot
    cohort[ISSUE] = version
    cohort[LEFT] = -1
    cohort[RIGHT] = -1
    hub.key[c] = known + hub.log_gamma[kind]
    if snapshot >= 0:
        hub.users[snapshot] += 1
    hub.heap[g] = meld(hub.cohorts, hub.key, hub.heap[g], c)
    return c


@compiled_lean
def take_snapshot(hub: Hub, g: int) -> int:
    """Copy what the coordinator has for group g to a free slot, as a new version."""
    hub.counters[FREE] -= 1
    slot = hub.free[hub.counters[FREE]]
    copy(hub.pool[g], hub.snapshots[slot])
    hub.counters[LAST_VERSION] += 1
    return slot


@compiled_lean
def drop_snapshot(hub: Hub, c: int) -> None:
    """Cohort c no longer needs its snapshot, and nobody may join it any more."""
    g = hub.cohorts[c, GROUP]
    kind = hub.cohorts[c, CLASS]
    if hub.current[g, kind] == c:
        hub.current[g, kind] = -1
    if hub.newcomers[g, kind] == c:
        hub.newcomers[g, kind] = -1
    slot = hub.cohorts[c, SNAPSHOT]
    if slot >= 0:
        hub.cohorts[c, SNAPSHOT] = -1
        hub.users[slot] -= 1
        if hub.users[slot] == 0:
            hub.free[hub.counters[FREE]] = slot
            hub.counters[FREE] += 1


@compiled_lean
def measure(row: Array, counting: bool) -> float:
    """How much a row has, on the scale that downloads compare."""
    if not counting:
        return row[LOGDET]
    return math.log(row[N]) if row[N] > 0 else NOTHING_COUNTED


@compiled_lean
def join(hub: Hub, i: int, warm: bool, counting: bool) -> bool:
    """Client i joins, with nothing, or if `warm` with all there is; True if that was a download."""
    g = of(hub.group_of, i)
    kind = of(hub.class_of, i)
    if warm and hub.pool[g, N] > 0:
        c = hub.current[g, kind]
        if c < 0:
            slot = take_snapshot(hub, g)
            c = new_cohort(hub, g, kind, measure(hub.pool[g], counting), hub.counters[LAST_VERSION], slot)
            hub.current[g, kind] = c
    else:
        c = hub.newcomers[g, kind]
        if c < 0:
            c = new_cohort(hub, g, kind, NOTHING_COUNTED if counting else 0.0, 0, -1)
            hub.newcomers[g, kind] = c
    hub.cohort_of[i] = c
    hub.cohorts[c, SIZE] += 1
    return hub.cohorts[c, SNAPSHOT] >= 0


@compiled_lean
def stand_alone(hub: Hub, i: int, known: float) -> None:
    """Client i has uploaded: it leaves its cohort, since it now shares more than the others do."""
    old = find(hub.cohorts, hub.cohort_of[i])
    c = new_cohort(hub, hub.cohorts[old, GROUP], hub.cohorts[old, CLASS], known, hub.cohorts[old, ISSUE], -1)
    hub.cohorts[c, SIZE] = 1
    hub.cohort_of[i] = c
    hub.cohorts[old, SIZE] -= 1
    if hub.cohorts[old, SIZE] == 0:
        drop_snapshot(hub, old)


@compiled_lean
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
    for kind in range(hub.current.shape[1]):
        hub.current[g, kind] = -1


@compiled_lean
def broadcast(hub: Hub, g: int, everyone: bool, counting: bool) -> int:
    """Send all there is to the clients of group g that are stale (or to all); the number of downloads."""
    cohorts = hub.cohorts
    known = measure(hub.pool[g], counting)
    limit = math.inf if everyone else known - TIE
    downloads = 0
    slot = -1
    c = hub.heap[g]
    hub.heap[g] = -1  # new cohorts go to a heap of their own until the stale ones are off
    while c >= 0 and hub.key[c] < limit:
        top = meld(cohorts, hub.key, cohorts[c, LEFT], cohorts[c, RIGHT])
        drop_snapshot(hub, c)
        if cohorts[c, SIZE] > 0:
            kind = cohorts[c, CLASS]
            target = hub.current[g, kind]
            if target < 0:
                if slot < 0:
                    slot = take_snapshot(hub, g)
                target = new_cohort(hub, g, kind, known, hub.counters[LAST_VERSION], slot)
                hub.current[g, kind] = target
            cohorts[c, PARENT] = target
            cohorts[target, SIZE] += cohorts[c, SIZE]
            downloads += cohorts[c, SIZE]
        c = top
    hub.heap[g] = meld(cohorts, hub.key, c, hub.heap[g])
    return downloads


@compiled_inline
def current_cohort(hub: Hub, i: int) -> int:
    """The cohort client i is in now."""
    c = find(hub.cohorts, hub.cohort_of[i])
    hub.cohort_of[i] = c
    return c


@compiled_lean
def receive_broadcast(hub: Hub, c: int, row: Array, d: int, ridge: float, scratch: Array) -> None:
    """Give a row what its cohort c was sent."""
    row[VERSION] = hub.cohorts[c, ISSUE]
    adopt(row, hub.snapshots[hub.cohorts[c, SNAPSHOT]], d, ridge, scratch)


@compiled_inline
def catch_up(hub: Hub, i: int, row: Array, d: int, ridge: float, scratch: Array) -> None:
    """Before client i acts: apply the last broadcast it was sent, if it has not yet."""
    c = current_cohort(hub, i)
    if hub.cohorts[c, ISSUE] != row[VERSION]:
        receive_broadcast(hub, c, row, d, ridge, scratch)


@compiled_lean
def upload_row(hub: Hub, i: int, row: Array, d: int, ridge: float, counting: bool, scratch: Array) -> int:
    """Client i sends what its row has pending, and those who became stale are sent all there is; the downloads.

    The whole exchange of Async-LinUCB, Alg. 1 lines 3–10, where nothing has to be noised, clustered or carried.
    """
    g = of(hub.group_of, i)
    pool = hub.pool[g]
    add_pending(row, d, base_of(pool, d))
    add(pending_b_of(row, d), base_b_of(pool, d))
    pool[N] += row[N_PENDING]
    settle_pool(hub, g, d, ridge, scratch)
    mark_sent(row, d)
    known = measure(row, counting)
    received = 0
    if measure(pool, counting) > known + hub.log_gamma[of(hub.class_of, i)] + TIE:
        # The uploader itself is stale, as every newcomer is. It is at hand: no snapshot has to be kept for it.
        adopt(row, pool, d, ridge, scratch)
        known = measure(pool, counting)
        received = 1
    stand_alone(hub, i, known)
    return received + broadcast(hub, g, False, counting)
