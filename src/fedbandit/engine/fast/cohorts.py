"""Cohorts: who shares the same statistics, which snapshot they have, and who is stale first.

`fedbandit.engine.fast.hub` says what they are for; here is the memory they are kept in.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedbandit.engine.fast.algebra import copy
from fedbandit.engine.fast.jit import compiled_apart, compiled_inline, compiled_lean
from fedbandit.engine.fast.memory import minus_ones, room_for
from fedbandit.engine.fast.row import empty_rows, shared_length, start_row
from fedbandit.types import Array, Ints


class Hub(NamedTuple):
    """All of the coordinator's memory."""

    pool: Array  # (G, row)      what the coordinator has, as one row of statistics for each group
    heap: Ints  # (G,)          the cohort on top of the group's heap, −1 for none
    oldest: Ints  # (G, C)        the cohort at the head of the queue, −1 for none
    newest: Ints  # (G, C)        the cohort at its end, −1 for none
    current: Ints  # (G, C)        the cohort that has all there is, −1 for none
    newcomers: Ints  # (G, C)        the cohort that has nothing yet, −1 for none; it may be without members
    parent: Ints  # (Q,)          the cohort that a cohort has gone into, at first itself
    cohorts: Ints  # (Q, 8)        columns SIZE … UNUSED: as wide as a line of the cache
    key: Array  # (Q,)
    snapshots: Array  # (Z, shared)   statistics that were broadcast and that some cohort still has
    users: Ints  # (Z,)          how many cohorts have them
    free: Ints  # (Z,)          stack of free snapshots
    cohort_of: Ints  # (N,)          −1 before a client joins
    group_of: Ints  # (N,), or (1,) for all clients
    class_of: Ints  # (N,), or (1,) for all clients
    log_gamma: Array  # (C,)          log γ_D of each class
    counters: Ints  # cohorts used, snapshots free, version of the last snapshot, messages without statistics


SIZE, GROUP, CLASS, SNAPSHOT, ISSUE, LEFT, RIGHT, UNUSED = range(8)  # ISSUE: the version its members have
NEXT = RIGHT  # in a queue
USED, FREE, LAST_VERSION, CONTROL = range(4)

MOST_AT_ONCE = 1 << 28
"""Bytes of address space set aside for snapshots at once; there is more when they are used up."""


CROWD = 1 << 12
"""So many cohorts are a crowd."""


def empty_hub(
    dim: int, n_clients: int, n_groups: int, group_of: Ints, log_gamma: Array, ridge: float, *, room: int = 64
) -> Hub:
    """The memory of a coordinator that has heard nothing; `log_gamma` has one value, or one for each client.

    At first there is room for at least `room` cohorts.
    """
    classes, class_of = np.unique(log_gamma, return_inverse=True)
    slots = max(64, min(n_clients // 8, MOST_AT_ONCE // (8 * shared_length(dim))))
    # `make_room` looks at every client: let it be rare
    room = max(room, n_clients + min(n_clients, CROWD), 4 * (classes.size + 4))
    pool = empty_rows(n_groups, dim)
    for row in pool:
        start_row(row, dim, ridge)
    return Hub(
        pool=pool,
        heap=np.full(n_groups, -1),
        oldest=np.full((n_groups, classes.size), -1),
        newest=np.full((n_groups, classes.size), -1),
        current=np.full((n_groups, classes.size), -1),
        newcomers=np.full((n_groups, classes.size), -1),
        parent=room_for((room, 1)).view(np.int64).reshape(room),
        cohorts=room_for((room, 8)).view(np.int64),
        key=room_for((room, 1)).reshape(room),
        snapshots=room_for((slots, shared_length(dim))),
        users=np.zeros(slots, dtype=np.int64),
        free=np.arange(slots)[::-1].copy(),  # the last is taken first
        cohort_of=minus_ones(n_clients),
        group_of=group_of,
        class_of=class_of.astype(np.int64).reshape(-1),
        log_gamma=classes,
        counters=np.array([0, slots, 0, 0], dtype=np.int64),
    )


@compiled_inline
def of(per_client: Ints, i: int) -> int:
    """Entry i of an array with one entry for each client or one for all."""
    return per_client[i] if per_client.shape[0] > 1 else per_client[0]


@compiled_inline
def has_room(hub: Hub) -> bool:
    """Whether one more client surely fits that joins and uploads.

    That takes a cohort for the uploader, one for newcomers and one for every class; and a snapshot each for joining,
    for the broadcast and for the uploader.
    """
    needed = hub.log_gamma.shape[0] + 2
    return hub.counters[USED] + needed <= hub.key.shape[0] and hub.counters[FREE] >= 3


@compiled_inline
def is_crowded(hub: Hub) -> bool:
    """Whether there are so many cohorts that they, and what they were given, are not in the cache anyway."""
    return hub.counters[USED] >= CROWD


@compiled_inline
def find(parent: Ints, c: int) -> int:
    """The cohort that cohort c has gone into, halving the path on the way."""
    while parent[c] != c:
        parent[c] = parent[parent[c]]
        c = parent[c]
    return c


@compiled_apart
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
def wait(hub: Hub, c: int) -> None:
    """Let cohort c wait to become stale: in the queue if it is after all that are there, else in the heap."""
    g, kind = hub.cohorts[c, GROUP], hub.cohorts[c, CLASS]
    last = hub.newest[g, kind]
    if last >= 0 and hub.key[c] < hub.key[last]:
        hub.heap[g] = meld(hub.cohorts, hub.key, hub.heap[g], c)
        return
    if last < 0:
        hub.oldest[g, kind] = c
    else:
        hub.cohorts[last, NEXT] = c
    hub.newest[g, kind] = c


@compiled_lean
def wait_again(hub: Hub) -> None:
    """Let all cohorts wait, in the order of their numbers; nobody waits yet."""
    for c in range(hub.counters[USED]):
        if hub.newcomers[hub.cohorts[c, GROUP], hub.cohorts[c, CLASS]] != c:
            wait(hub, c)


@compiled_lean
def new_cohort(hub: Hub, g: int, kind: int, known: float, version: int, snapshot: int) -> int:
    """A cohort without members that shares what `known` measures; it does not wait yet."""
    c = hub.counters[USED]
    hub.counters[USED] += 1
    cohort = hub.cohorts[c]
    hub.parent[c] = c
    cohort[SIZE] = 0
    cohort[GROUP] = g
    cohort[CLASS] = kind
    cohort[SNAPSHOT] = snapshot
    cohort[ISSUE] = version
    cohort[LEFT] = -1
    cohort[RIGHT] = -1
    cohort[UNUSED] = 0
    hub.key[c] = known + hub.log_gamma[kind]
    if snapshot >= 0:
        hub.users[snapshot] += 1
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
    slot = hub.cohorts[c, SNAPSHOT]
    if slot >= 0:
        hub.cohorts[c, SNAPSHOT] = -1
        hub.users[slot] -= 1
        if hub.users[slot] == 0:
            hub.free[hub.counters[FREE]] = slot
            hub.counters[FREE] += 1


@compiled_inline
def leave(hub: Hub, i: int) -> int:
    """Client i leaves its cohort, whose number is returned."""
    c = find(hub.parent, hub.cohort_of[i])
    hub.cohorts[c, SIZE] -= 1
    if hub.cohorts[c, SIZE] == 0:
        drop_snapshot(hub, c)
    return c


@compiled_inline
def current_cohort(hub: Hub, i: int) -> int:
    """The cohort client i is in now."""
    c = find(hub.parent, hub.cohort_of[i])
    hub.cohort_of[i] = c
    return c
