"""Looking after a coordinator's memory, in Python: who is in which cohort, room for more, storing it.

`fedbandit.engine.fast.hub` is how it works; nothing here changes what it does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit.engine.fast.cohorts import (
    CLASS,
    FREE,
    GROUP,
    ISSUE,
    LAST_VERSION,
    LEFT,
    RIGHT,
    SIZE,
    SNAPSHOT,
    USED,
    Hub,
    wait_again,
)
from fedbandit.engine.fast.hub import BOUND_AT
from fedbandit.engine.fast.memory import enlarged, grown
from fedbandit.engine.fast.persist import dump_given, load_given
from fedbandit.state import State, stored
from fedbandit.types import Ints


def cohort_of_clients(hub: Hub) -> Ints:
    """The cohort each client is in now, −1 for those that have not joined."""
    end = hub.parent[: hub.counters[USED]]  # the cohort that each cohort has gone into
    while not np.array_equal(further := end[end], end):
        end = further
    return np.append(end, -1)[hub.cohort_of]


def make_room(hub: Hub, *, in_order: bool = False) -> Hub:
    """A hub with only the live cohorts, renumbered, and at least as many free numbers as used ones.

    `in_order` numbers them in the order in which they become stale, else they stay in the order that they have.
    """
    used = int(hub.counters[USED])
    live = np.flatnonzero((hub.parent[:used] == np.arange(used)) & (hub.cohorts[:used, SIZE] > 0))
    if in_order:
        group, kind, issue = (hub.cohorts[live, column] for column in (GROUP, CLASS, ISSUE))
        others = live != hub.newcomers[group, kind]  # newcomers come first among equals, whatever their number
        live = live[np.lexsort((others, kind, group, issue, hub.key[live]))]
    renumber = np.full(used + 1, -1)  # the last entry serves the number −1, "none"
    renumber[live] = np.arange(live.size)
    room = hub.key.size
    while room < 2 * (live.size + hub.log_gamma.size + 4):
        room *= 2
    cohorts = grown(hub.cohorts[live], room)
    cohorts[: live.size, LEFT : RIGHT + 1] = -1
    snapshots, users, free, counters = hub.snapshots, hub.users, hub.free, hub.counters.copy()
    slots, available = users.size, int(counters[FREE])
    if available < 3 + slots // 4:
        snapshots = enlarged(snapshots, 2 * slots)
        users, free = (grown(array, 2 * slots) for array in (users, free))
        free[available : available + slots] = np.arange(slots, 2 * slots)[::-1]
        counters[FREE] += slots
    counters[USED] = live.size
    tidied = hub._replace(
        heap=np.full_like(hub.heap, -1),
        oldest=np.full_like(hub.oldest, -1),
        newest=np.full_like(hub.newest, -1),
        current=renumber[hub.current],
        newcomers=renumber[hub.newcomers],
        parent=np.arange(room),
        cohorts=cohorts,
        key=grown(hub.key[live], room),
        snapshots=snapshots,
        users=users,
        free=free,
        cohort_of=renumber[cohort_of_clients(hub)],
        counters=counters,
    )
    wait_again(tidied)
    return tidied


def dump_hub(hub: Hub, d: int) -> dict[str, NDArray[Any]]:
    """The hub as named arrays for a state: the same for hubs that behave the same, wherever things are in memory.

    Cohorts without members are left out, and snapshots stand in the order of the cohorts that have them.
    """
    tidy = make_room(hub, in_order=True)
    used = int(tidy.counters[USED])
    cohorts = tidy.cohorts[:used, :LEFT].copy()
    slots, first = np.unique(cohorts[:, SNAPSHOT], return_index=True)
    taken = slots[np.argsort(first)]
    taken = taken[taken >= 0]
    place = np.full(tidy.users.size + 1, -1)  # the last entry serves the number −1, "none"
    place[taken] = np.arange(taken.size)
    cohorts[:, SNAPSHOT] = place[cohorts[:, SNAPSHOT]]
    return {
        "hub.cohorts": cohorts,
        "hub.key": tidy.key[:used].copy(),
        "hub.cohort_of": tidy.cohort_of,
        "hub.current": tidy.current,
        "hub.newcomers": tidy.newcomers,
        "hub.version": tidy.counters[LAST_VERSION : LAST_VERSION + 1].copy(),
        "hub.bound_at": tidy.pool[:, BOUND_AT].copy(),
        **dump_given(tidy.pool, d, "hub.pool"),
        **dump_given(tidy.snapshots[taken], d, "hub.snapshots"),
    }


def load_hub(hub: Hub, d: int, state: State, ridge: float) -> Hub:
    """The hub that `dump_hub` kept; `hub` is a new one of the same system."""
    arrays = state.arrays
    used = len(arrays["hub.key"])
    kept = stored(state, "hub.cohorts", (used, LEFT))
    taken = len(arrays["hub.snapshots.n"])
    slots, room = max(hub.users.size, 2 * taken), max(hub.key.size, 2 * (used + hub.log_gamma.size + 4))
    cohorts = np.zeros((room, hub.cohorts.shape[1]), dtype=np.int64)
    cohorts[:used, :LEFT] = kept
    cohorts[:used, LEFT : RIGHT + 1] = -1
    free = np.zeros(slots, dtype=np.int64)
    free[: slots - taken] = np.arange(taken, slots)[::-1]
    snapshots = enlarged(hub.snapshots[:0], slots)
    load_given(snapshots[:taken], d, "hub.snapshots", state, ridge)
    load_given(hub.pool, d, "hub.pool", state, ridge)
    hub.pool[:, BOUND_AT] = stored(state, "hub.bound_at", (len(hub.pool),))
    has = kept[:, SNAPSHOT]
    loaded = hub._replace(
        heap=np.full_like(hub.heap, -1),
        oldest=np.full_like(hub.oldest, -1),
        newest=np.full_like(hub.newest, -1),
        current=stored(state, "hub.current", hub.current.shape),
        newcomers=stored(state, "hub.newcomers", hub.newcomers.shape),
        parent=np.arange(room),
        cohorts=cohorts,
        key=grown(arrays["hub.key"], room),
        snapshots=snapshots,
        users=grown(np.bincount(has[has >= 0], minlength=taken), slots),
        free=free,
        cohort_of=stored(state, "hub.cohort_of", hub.cohort_of.shape),
        counters=np.array([used, slots - taken, int(arrays["hub.version"][0]), 0], dtype=np.int64),
    )
    wait_again(loaded)
    return loaded
