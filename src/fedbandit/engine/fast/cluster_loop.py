"""The common case with clusters, compiled: the loop of `loop.py` in which users of a local cluster share a row.

Beside the row of its cluster, each user has a row of its own statistics, by which clusters are found. The loop comes
back when clusters may have changed; what they become is worked out in Python (`regrouping.py`).
"""

from __future__ import annotations

import math
from enum import IntEnum

from fedbandit.engine.fast.algebra import add_scaled, copy
from fedbandit.engine.fast.choose import Scratch, choose
from fedbandit.engine.fast.cohorts import SNAPSHOT, Hub, current_cohort, has_room
from fedbandit.engine.fast.groups import (
    ClusterRule,
    ClusterRuleKind,
    Groups,
    check_off,
    end_phase,
    leaves,
    mergeable,
    prune,
    still_together,
)
from fedbandit.engine.fast.hub import catch_up, upload_row
from fedbandit.engine.fast.jit import compiled_free, compiled_lean
from fedbandit.engine.fast.packed import multiply_packed
from fedbandit.engine.fast.plan import PolicyPlan
from fedbandit.engine.fast.rewards import Late, learnt, pull, send_later
from fedbandit.engine.fast.row import STEPS, VERSION, N, inverse_of, pending_b_of
from fedbandit.engine.fast.rules import DONE, EVENT, HUB_FULL, REFUSED, LoopRules, Pause, triggered
from fedbandit.engine.fast.statistics import keep_pending, observe
from fedbandit.engine.learner import Outcome
from fedbandit.environments.block import Block
from fedbandit.types import Array, Ints

PRUNING, SETS = int(ClusterRuleKind.PRUNING), int(ClusterRuleKind.SETS)


class News(IntEnum):
    """Why the loop came back, beside `rules.Status`."""

    TORN = 10  # edges of a user are gone, and its cluster may have come apart
    LEAVES = 11  # a user does not belong to its set
    MEETING = 12  # two sets of a server can merge


TORN, LEAVES, MEETING = (int(news) for news in News)


@compiled_lean
def note(row: Array, x: Array, y: float) -> None:
    """Add the observation (x, y) to the sums of a row whose estimate nobody needs before its next `recompute`."""
    d = x.shape[0]
    keep_pending(row, d, x)
    add_scaled(x, y, pending_b_of(row, d))
    row[N] += 1


@compiled_free
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
    rules: LoopRules,
    clustering: ClusterRule,
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
            if not clustering.fresh:
                scorer = shared[r]
                if row[VERSION] != version:
                    given = hub.snapshots[hub.cohorts[current_cohort(hub, r), SNAPSHOT]]
                    copy(given, scorer[: given.shape[0]])

        if acting:
            offered = block.arms[s, : block.counts[s]]
            scorer[STEPS] = own[user, STEPS]  # the random stream is the user's: clusters come and go
            a = choose(plan, scorer, user, block.X, offered, work)
            own[user, STEPS] = scorer[STEPS]
            x = block.X[offered[a]]
            y = pull(block, s, a, out)
            s += 1
            if delayed and block.delays[s - 1] > 0:
                send_later(late, now, block.delays[s - 1], user, x, y)
                continue
        else:
            late.first[now % ring] = late.following[entry]
            x = late.x[entry]
            y = late.y[entry]
        if not acting or not clustering.fresh:
            multiply_packed(inverse_of(row, d), x, work.best_u)

        if rules.perturbed:
            y = learnt(rules.rewards, y, user, int(own[user, N]))
            if math.isnan(y):
                return Pause(s, REFUSED, r, s - 1 if acting else s)
        observe(row, x, y, work.best_u, rules.ridge, work.M)
        if clustering.kind >= PRUNING:
            multiply_packed(inverse_of(own[user], d), x, work.u)
            observe(own[user], x, y, work.u, rules.ridge, work.M)
        else:
            note(own[user], x, y)
        at = s - 1 if acting else s
        if clustering.kind == PRUNING:
            found = prune(user, own, groups, clustering.split, d)
            if found > 0 and not still_together(user, found, groups):
                return Pause(s, TORN, user, at)
        elif clustering.kind == SETS:
            server = groups.server_of[user]
            groups.served[server] += 1
            if leaves(user, own, groups, clustering, d):
                return Pause(s, LEAVES, user, at)
            check_off(user, groups)
            if mergeable(server, rows, groups, clustering, d, pair):
                return Pause(s, MEETING, user, at)
            end_phase(server, rows, groups, d)
        if rules.speaks and triggered(rules.kind, rules.thresholds[r], rules.batch, row):
            if not rules.fused:
                return Pause(s, EVENT, r, at)
            out.uploads[at] += 1
            out.downloads[at] += upload_row(hub, r, row, d, rules.ridge, rules.counting, work.M)
            if not clustering.fresh:
                copy(row, shared[r])
    return Pause(stop, DONE, -1, stop)
