"""A synchronisation, compiled: everybody uploads, everybody downloads (Async-LinUCB, Alg. 4 lines 11–16).

Of the N uploads only those of rows with something pending have anything in them, and after the N downloads all members
are one cohort of the hub, whose rows are brought up to date when they next act. So a synchronisation costs a look at
each member and one inverse: with N = 1000 and d = 25 it takes 0.02 ms instead of the 20 ms of a thousand exchanges.
"""

from __future__ import annotations

from fedbandit.engine.fast.algebra import add, add_scaled, clear
from fedbandit.engine.fast.cohorts import CONTROL, Hub, of
from fedbandit.engine.fast.compact import COUNT, SENT, context_of, reward_of
from fedbandit.engine.fast.hub import broadcast, settle_pool
from fedbandit.engine.fast.jit import compiled_apart
from fedbandit.engine.fast.packed import add_outer_packed
from fedbandit.engine.fast.row import N_LISTED, N_PENDING, N, base_b_of, base_of, pending_b_of
from fedbandit.engine.fast.rules import Rules
from fedbandit.engine.fast.slots import Slots
from fedbandit.engine.fast.statistics import add_pending
from fedbandit.types import Array


@compiled_apart
def synchronise(
    hub: Hub, asking: int, rows: Array, compacts: Array, slots: Slots, d: int, rules: Rules, scratch: Array
) -> int:
    """All members of the group of row `asking` send what is pending and are sent all there is; their number."""
    g = of(hub.group_of, asking)
    pool = hub.pool[g]
    called = 0
    for r in range(slots.slot_of.shape[0]):
        if of(hub.group_of, r) != g:
            continue
        called += 1
        slot = slots.slot_of[r]
        if slot >= 0:
            collect_row(pool, rows[slot], d)
        elif slot < -1:
            collect_compact(pool, compacts[-2 - slot], d)
    settle_pool(hub, g, d, rules.ridge, scratch)
    broadcast(hub, g, True, rules.counting)
    hub.counters[CONTROL] += 1 + called  # a request, and a call to each
    return called


@compiled_apart
def collect_row(pool: Array, row: Array, d: int) -> None:
    """Add what a row has pending to `pool`. Its base is left as it is: the row adopts another one before it acts."""
    if row[N_PENDING] == 0:
        return
    add_pending(row, d, base_of(pool, d))
    add(pending_b_of(row, d), base_b_of(pool, d))
    pool[N] += row[N_PENDING]
    clear(pending_b_of(row, d))
    row[N_PENDING] = row[N_LISTED] = 0.0


@compiled_apart
def collect_compact(pool: Array, compact: Array, d: int) -> None:
    """The same for a compact row."""
    for i in range(int(compact[COUNT])):
        x = context_of(compact, i, d)
        add_outer_packed(base_of(pool, d), x, 1.0)
        add_scaled(x, reward_of(compact, i, d), base_b_of(pool, d))
    pool[N] += compact[COUNT]
    compact[SENT] += compact[COUNT]
    compact[COUNT] = 0.0
