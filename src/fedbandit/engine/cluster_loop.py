"""The common case with clusters, compiled: the loop of `loop.py` in which users of a local cluster share a row.

Beside the row of its cluster, each user has a row of its own statistics, by which clusters are found. The loop comes
back when clusters may have changed; what they become is worked out in Python (`clusters.py`).
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.compiled import compiled_lean
from fedbandit.engine.loop import DONE, EVENT, HUB_FULL, REFUSED, Late, Outcome, Pause, Rules, draw_reward, send_later
from fedbandit.environments.block import Block
from fedbandit.policies import PolicyPlan, Scratch, choose
from fedbandit.protocols.hub import SNAPSHOT, Hub, catch_up, current_cohort, has_room, upload_row
from fedbandit.protocols.trigger import triggered
from fedbandit.rewards import learnt
from fedbandit.statistics import (
    BASE_LOGDET,
    LOGDET,
    N_OWN,
    STEPS,
    TIE,
    VERSION,
    Array,
    Ints,
    N,
    add,
    add_pending,
    b_of,
    base_of,
    copy,
    inverse_of,
    keep_pending,
    multiply,
    observe,
    refresh,
    theta_of,
)
from fedbandit.structures import Law, Rule
from fedbandit.structures.clustering import alike, differ, radius

PRUNING, SETS = int(Rule.PRUNING), int(Rule.SETS)


class News(IntEnum):
    """Why the loop came back, beside `loop.Status`."""

    TORN = 10  # edges of a user are gone, and its cluster may have come apart
    LEAVES = 11  # a user does not belong to its set
    MEETING = 12  # two sets of a server can merge


TORN, LEAVES, MEETING = (int(news) for news in News)


class Groups(NamedTuple):
    """Who is in which cluster. A local cluster, and its row, has the number of its smallest user."""

    row_of: Ints  # (N,)
    server_of: Ints  # (N,)
    members: Ints  # (N,) the users of server 0, then those of server 1, …
    start: Ints  # (L+1,) where those of each server begin
    place: Ints  # (N,) the position of a user among those of its server
    edges: NDArray[np.bool_]  # the graphs of all servers, one matrix after the other; (0,) without graphs
    edges_at: Ints  # (L+1,) where each begins
    size: Ints  # (N,) by row: users
    waiting: Ints  # (N,) by row: users that have not acted in this phase (sets)
    checked: NDArray[np.bool_]  # (N,) users that have
    served: Ints  # (L,) interactions of each server
    pivot: Array  # (N, d) by row: θ̂ when the phase began
    pivot_n: Array  # (N,) by row: observations then
    dropped: Ints  # (N,) memory for `prune`


@compiled_lean
def note(row: Array, x: Array, y: float) -> None:
    """Add the observation (x, y) to the sums of a row whose estimate nobody needs before its next `recompute`."""
    d = x.shape[0]
    keep_pending(row, d, x)
    b = b_of(row, d)
    for k in range(d):
        b[k] += x[k] * y
    row[N] += 1


@compiled_lean
def prune(i: int, own: Array, groups: Groups, alpha: float, d: int) -> int:
    """Delete the edges of user i to those it differs from; how many, which are left in `groups.dropped`."""
    server = groups.server_of[i]
    first = groups.start[server]
    count = groups.start[server + 1] - first
    at = groups.edges_at[server]
    here = groups.place[i]
    found = 0
    for there in range(count):
        if groups.edges[at + here * count + there]:
            j = groups.members[first + there]
            if differ(theta_of(own[i], d), own[i, N], theta_of(own[j], d), own[j, N], alpha):
                groups.edges[at + here * count + there] = False
                groups.edges[at + there * count + here] = False
                groups.dropped[found] = there
                found += 1
    return found


@compiled_lean
def still_together(i: int, found: int, groups: Groups) -> bool:
    """Whether user i still has a common neighbour with each of those it lost: then nothing has come apart."""
    server = groups.server_of[i]
    count = groups.start[server + 1] - groups.start[server]
    mine = groups.edges_at[server] + groups.place[i] * count
    for k in range(found):
        theirs = groups.edges_at[server] + groups.dropped[k] * count
        linked = False
        for other in range(count):
            if groups.edges[mine + other] and groups.edges[theirs + other]:
                linked = True
                break
        if not linked:
            return False
    return True


@compiled_lean
def leaves(i: int, own: Array, groups: Groups, law: Law, d: int) -> bool:
    """Whether user i does not belong to its set (SCLUB, Alg. 2)."""
    r = groups.row_of[i]
    if groups.size[r] == 1:
        return False
    if differ(theta_of(own[i], d), own[i, N], groups.pivot[r], groups.pivot_n[r], law.split):
        return True
    server = groups.server_of[i]
    served = groups.served[server]
    limit = 2 * law.frequency * radius(served) + TIE
    for k in range(groups.start[server], groups.start[server + 1]):
        j = groups.members[k]
        if groups.row_of[j] == r and abs(own[i, N] - own[j, N]) / served > limit:
            return True
    return False


@compiled_lean
def can_merge(p: int, q: int, rows: Array, groups: Groups, law: Law, d: int) -> bool:
    """Whether the sets in rows p and q, all of whose users are checked, can merge (SCLUB, Alg. 3)."""
    served = groups.served[groups.server_of[p]]
    apart = abs(rows[p, N] / groups.size[p] - rows[q, N] / groups.size[q]) / served
    if apart >= law.frequency * radius(served) - TIE:
        return False
    return alike(theta_of(rows[p], d), rows[p, N], theta_of(rows[q], d), rows[q, N], law.merge)


@compiled_lean
def mergeable(server: int, rows: Array, groups: Groups, law: Law, d: int, pair: Ints) -> bool:
    """The first pair of sets of a server that can merge is left in `pair`; whether there is one."""
    for k in range(groups.start[server], groups.start[server + 1]):
        p = groups.members[k]
        if groups.row_of[p] != p or groups.waiting[p] > 0:
            continue
        for m in range(k + 1, groups.start[server + 1]):
            q = groups.members[m]
            if groups.row_of[q] == q and groups.waiting[q] == 0 and can_merge(p, q, rows, groups, law, d):
                pair[0] = p
                pair[1] = q
                return True
    return False


@compiled_lean
def check_off(i: int, groups: Groups) -> None:
    """User i has acted in this phase."""
    if not groups.checked[i]:
        groups.checked[i] = True
        groups.waiting[groups.row_of[i]] -= 1


@compiled_lean
def end_phase(server: int, rows: Array, groups: Groups, d: int) -> None:
    """If a phase of the server's sets is over (phase s has 2^s interactions), begin the next."""
    served = groups.served[server]
    if (served + 2) & (served + 1):
        return
    for k in range(groups.start[server], groups.start[server + 1]):
        p = groups.members[k]
        groups.checked[p] = False
        if groups.row_of[p] == p:
            groups.waiting[p] = groups.size[p]
            copy(theta_of(rows[p], d), groups.pivot[p])
            groups.pivot_n[p] = rows[p, N]


@compiled_lean
def sum_up(r: int, own: Array, rows: Array, groups: Groups, blank: Array, ridge: float, scratch: Array) -> None:
    """Make row r anew from the own statistics of its users."""
    d = scratch.shape[1]
    row = rows[r]
    copy(blank, row)
    server = groups.server_of[r]
    for k in range(groups.start[server], groups.start[server + 1]):
        i = groups.members[k]
        if groups.row_of[i] == r:
            add_pending(own[i], d, base_of(row, d))
            add(b_of(own[i], d), b_of(row, d))
            row[N] += own[i, N]
    row[N_OWN] = row[N]
    refresh(row, d, ridge, scratch)
    row[BASE_LOGDET] = row[LOGDET]


@compiled_lean
def add_own(own: Array, into: Ints, V: Array, b: Array, n: Array) -> None:
    """V, b, n [into[i]] += the own statistics of user i."""
    d = b.shape[1]
    for i in range(own.shape[0]):
        k = into[i]
        add_pending(own[i], d, V[k])
        add(b_of(own[i], d), b[k])
        n[k] += own[i, N]


@compiled_lean
def run_clusters(
    start: int,
    stop: int,
    before: int,
    block: Block,
    own: Array,
    rows: Array,
    shared: Array,
    groups: Groups,
    hub: Hub,
    late: Late,
    plan: PolicyPlan,
    rules: Rules,
    law: Law,
    work: Scratch,
    pair: Ints,
    out: Outcome,
) -> Pause:
    """Interactions start, …, stop − 1 of a block that `before` interactions precede, until Python is needed."""
    ring = late.first.shape[0]
    delayed = block.delays.shape[0] > 0
    d = block.X.shape[1]
    s = start
    while s < stop:
        if rules.speaks and not has_room(hub):
            return Pause(s, HUB_FULL, -1, s)
        now = before + s
        entry = late.first[now % ring] if delayed else -1
        acting = entry < 0
        user = block.clients[s] if acting else late.row[entry]
        r = groups.row_of[user]
        row = rows[r]
        scorer = row
        if rules.speaks:
            version = row[VERSION]
            catch_up(hub, r, row, d, rules.ridge, work.M)
            if not law.fresh:
                scorer = shared[r]
                if row[VERSION] != version:
                    copy(hub.snapshots[hub.cohorts[current_cohort(hub, r), SNAPSHOT]], scorer)

        if acting:
            offered = block.arms[s, : block.counts[s]]
            scorer[STEPS] = own[user, STEPS]  # the random stream is the user's: clusters come and go
            a = choose(plan, scorer, user, block.X, offered, work)
            own[user, STEPS] = scorer[STEPS]
            x = block.X[offered[a]]
            y = draw_reward(block, s, a)
            best = block.means[s, 0]
            for k in range(1, offered.shape[0]):
                best = max(best, block.means[s, k])
            out.arms[s] = a
            out.reward[s] = y
            out.regret[s] = best - block.means[s, a]
            s += 1
            if delayed and block.delays[s - 1] > 0:
                send_later(late, now, block.delays[s - 1], user, x, y)
                continue
        else:
            late.first[now % ring] = late.following[entry]
            x = late.x[entry]
            y = late.y[entry]
        if not acting or not law.fresh:
            multiply(inverse_of(row, d), x, work.best_u)

        if rules.perturbed:
            y = learnt(rules.rewards, y, user, int(own[user, N]))
            if math.isnan(y):
                return Pause(s, REFUSED, r, s - 1 if acting else s)
        observe(row, x, y, work.best_u, rules.ridge, work.M)
        if law.rule >= PRUNING:
            multiply(inverse_of(own[user], d), x, work.u)
            observe(own[user], x, y, work.u, rules.ridge, work.M)
        else:
            note(own[user], x, y)
        at = s - 1 if acting else s
        if law.rule == PRUNING:
            found = prune(user, own, groups, law.split, d)
            if found > 0 and not still_together(user, found, groups):
                return Pause(s, TORN, user, at)
        elif law.rule == SETS:
            server = groups.server_of[user]
            groups.served[server] += 1
            if leaves(user, own, groups, law, d):
                return Pause(s, LEAVES, user, at)
            check_off(user, groups)
            if mergeable(server, rows, groups, law, d, pair):
                return Pause(s, MEETING, user, at)
            end_phase(server, rows, groups, d)
        if rules.speaks and triggered(rules.kind, rules.thresholds[r], rules.batch, row):
            if not rules.fused:
                return Pause(s, EVENT, r, at)
            out.uploads[at] += 1
            out.downloads[at] += upload_row(hub, r, row, d, rules.ridge, rules.counting, work.M)
            if not law.fresh:
                copy(row, shared[r])
    return Pause(stop, DONE, -1, stop)
