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
    SHORTENED,
    SIZE,
    SNAPSHOT,
    UNUSED,
    USED,
    Hub,
    wait_again,
)
from fedbandit.engine.fast.memory import enlarged
from fedbandit.engine.fast.statistics import grown
from fedbandit.errors import FedbanditError
from fedbandit.types import Ints

_ROOMY = ("parent", "cohorts", "key", "snapshots", "users", "free")


def cohort_of_clients(hub: Hub) -> Ints:
    """The cohort each client is in now, −1 for those that have not joined."""
    return np.append(_ends(hub), -1)[hub.cohort_of]


def _ends(hub: Hub) -> Ints:
    """The cohort that each cohort has gone into in the end."""
    end = hub.parent[: hub.counters[USED]]
    while not np.array_equal(further := end[end], end):
        end = further
    return end


def last_recipients(hub: Hub) -> Ints:
    """The clients that have the newest snapshot."""
    cohort = cohort_of_clients(hub)
    return np.flatnonzero((cohort >= 0) & (hub.cohorts[cohort, ISSUE] == hub.counters[LAST_VERSION]))


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
    counters[USED] = counters[SHORTENED] = live.size
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
        cohort_of=np.append(renumber[_ends(hub)], -1)[hub.cohort_of],
        counters=counters,
    )
    wait_again(tidied)
    return tidied


def pack_hub(hub: Hub) -> dict[str, NDArray[Any]]:
    """The hub as named arrays for a state: the same for hubs that behave the same, wherever things are in memory.

    Cohorts without members are left out, and snapshots stand in the order of the cohorts that have them.
    """
    tidy = make_room(hub, in_order=True)
    used = int(tidy.counters[USED])
    cohorts, counters = tidy.cohorts[:used].copy(), tidy.counters.copy()
    slots, first = np.unique(cohorts[:, SNAPSHOT], return_index=True)
    taken = slots[np.argsort(first)]
    taken = taken[taken >= 0]
    place = np.full(tidy.users.size + 1, -1)  # the last entry serves the number −1, "none"
    place[taken] = np.arange(taken.size)
    cohorts[:, SNAPSHOT] = place[cohorts[:, SNAPSHOT]]
    counters[FREE] = 0
    return {
        **{f"hub.{name}": array for name, array in tidy._asdict().items() if name not in _ROOMY},
        "hub.counters": counters[:SHORTENED],
        "hub.cohorts": cohorts[:, :UNUSED],
        "hub.key": tidy.key[:used],
        "hub.snapshots": tidy.snapshots[taken],
        "hub.users": tidy.users[taken],
    }


def unpack_hub(hub: Hub, arrays: dict[str, NDArray[Any]]) -> Hub:
    """The hub that `pack_hub` packed; `hub` is any one of the same system."""
    for name in ("pool", "cohort_of", "log_gamma"):
        stored, expected = arrays[f"hub.{name}"].shape, getattr(hub, name).shape
        if stored != expected:
            raise FedbanditError(f"The stored {name} is of shape {stored}, expected {expected}.")
    taken, used = len(arrays["hub.users"]), len(arrays["hub.key"])
    slots = max(hub.users.size, 2 * taken)
    room = max(hub.key.size, 2 * (used + hub.log_gamma.size + 4))
    free = np.zeros(slots, dtype=np.int64)
    free[: slots - taken] = np.arange(taken, slots)[::-1]
    counters = np.append(arrays["hub.counters"], used)
    counters[FREE] = slots - taken
    cohorts = np.pad(arrays["hub.cohorts"], ((0, room - used), (0, 1)))
    plain = {name: arrays[f"hub.{name}"] for name in Hub._fields if name not in _ROOMY}
    return Hub(
        **plain | {"counters": counters},
        parent=np.arange(room),
        cohorts=cohorts,
        key=grown(arrays["hub.key"], room),
        snapshots=enlarged(arrays["hub.snapshots"], slots),
        users=grown(arrays["hub.users"], slots),
        free=free,
    )
