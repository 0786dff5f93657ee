"""Who is in which cluster, the rules of clustering, and their compiled tests.

The tests are those of `structures.clustering`, on users' own statistics and clusters' rows.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.engine.fast.algebra import add, copy
from fedbandit.engine.fast.jit import compiled_lean
from fedbandit.engine.fast.row import BASE_LOGDET, LOGDET, N_OWN, N, base_b_of, base_of, pending_b_of, theta_of
from fedbandit.engine.fast.statistics import add_pending, add_pending_unpacked, refresh
from fedbandit.errors import FedbanditError
from fedbandit.model import TIE
from fedbandit.structures import PhasedClusters, PrunedGraph, Servers, SplitAndMerge, Structure
from fedbandit.types import Array, Ints


class ClusterRuleKind(IntEnum):
    """When clusters change."""

    FIXED = 0  # never
    PHASES = 1  # between phases: edges are deleted on each server, then clusters of different servers merge
    PRUNING = 2  # at every observation: edges of the user who acted
    SETS = 3  # at every observation: the user who acted leaves its cluster, or two clusters merge


class ClusterRule(NamedTuple):
    """A clustering rule in numbers."""

    kind: int
    split: float  # α of the test that parts users
    merge: float  # α of the test that joins clusters
    frequency: float  # α of the test on how often users act
    fresh: bool  # arms are scored with pending observations too
    within: bool  # clusters of one server may merge too


def cluster_rule_of(structure: Structure) -> ClusterRule:
    """The rule of a structure that the compiled loop knows."""
    match structure:
        case Servers():
            return ClusterRule(int(ClusterRuleKind.FIXED), 0.0, 0.0, 0.0, True, False)
        case PhasedClusters(split, merge, fresh, within):
            return ClusterRule(int(ClusterRuleKind.PHASES), split, merge, 0.0, fresh, within)
        case PrunedGraph(split):
            return ClusterRule(int(ClusterRuleKind.PRUNING), split, 0.0, 0.0, True, False)
        case SplitAndMerge(split, merge, frequency):
            return ClusterRule(int(ClusterRuleKind.SETS), split, merge, frequency, True, False)
    raise TypeError(f"the compiled loop has no rule for {structure!r}")


@compiled_lean
def radius(n: float) -> float:
    """F(n)."""
    return math.sqrt((1.0 + math.log(1.0 + n)) / (1.0 + n))


@compiled_lean
def distance(x: Array, y: Array) -> float:
    """‖x − y‖."""
    total = 0.0
    for k in range(x.shape[0]):
        total += (x[k] - y[k]) * (x[k] - y[k])
    return math.sqrt(total)


@compiled_lean
def differ(x: Array, n: float, y: Array, m: float, alpha: float) -> bool:
    """‖x − y‖ > α (F(n) + F(m)): estimates from n and m observations belong to different parameters."""
    return distance(x, y) > alpha * (radius(n) + radius(m)) + TIE


@compiled_lean
def alike(x: Array, n: float, y: Array, m: float, alpha: float) -> bool:
    """‖x − y‖ < α (F(n) + F(m)): estimates from n and m observations may be of one parameter."""
    return distance(x, y) < alpha * (radius(n) + radius(m)) - TIE


MOST_EDGES = 2**31
"""Pairs of users of one server, over all servers: a byte each."""


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


def groups_of(server_of: Ints, dim: int, *, graphs: bool) -> Groups:
    """One local cluster for each server, and complete graphs if graphs are needed."""
    n = server_of.size
    members = np.argsort(server_of, kind="stable")
    start = np.searchsorted(server_of[members], np.arange(server_of.max() + 2))
    sizes = np.diff(start)
    edges_at = np.concatenate([[0], np.cumsum(sizes**2)]) if graphs else np.zeros(sizes.size + 1, dtype=np.int64)
    if edges_at[-1] > MOST_EDGES:
        raise FedbanditError(
            f"The largest local server has {sizes.max():,} users, whose graph has too many edges; spread them over "
            "more servers, or use sclub, which keeps no graph."
        )
    place = np.empty(n, dtype=np.int64)
    place[members] = np.arange(n) - start[server_of[members]]
    size = np.zeros(n, dtype=np.int64)
    size[members[start[:-1]]] = sizes
    return Groups(
        row_of=members[start[server_of]],
        server_of=server_of,
        members=members,
        start=start,
        place=place,
        edges=np.ones(edges_at[-1], dtype=np.bool_),
        edges_at=edges_at,
        size=size,
        waiting=size.copy(),
        checked=np.zeros(n, dtype=np.bool_),
        served=np.zeros(sizes.size, dtype=np.int64),
        pivot=np.zeros((n, dim)),
        pivot_n=np.zeros(n),
        dropped=np.zeros(n, dtype=np.int64),
    )


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
def leaves(i: int, own: Array, groups: Groups, clustering: ClusterRule, d: int) -> bool:
    """Whether user i does not belong to its set (SCLUB, Alg. 2)."""
    r = groups.row_of[i]
    if groups.size[r] == 1:
        return False
    if differ(theta_of(own[i], d), own[i, N], groups.pivot[r], groups.pivot_n[r], clustering.split):
        return True
    server = groups.server_of[i]
    served = groups.served[server]
    limit = 2 * clustering.frequency * radius(served) + TIE
    for k in range(groups.start[server], groups.start[server + 1]):
        j = groups.members[k]
        if groups.row_of[j] == r and abs(own[i, N] - own[j, N]) / served > limit:
            return True
    return False


@compiled_lean
def can_merge(p: int, q: int, rows: Array, groups: Groups, clustering: ClusterRule, d: int) -> bool:
    """Whether the sets in rows p and q, all of whose users are checked, can merge (SCLUB, Alg. 3)."""
    served = groups.served[groups.server_of[p]]
    apart = abs(rows[p, N] / groups.size[p] - rows[q, N] / groups.size[q]) / served
    if apart >= clustering.frequency * radius(served) - TIE:
        return False
    return alike(theta_of(rows[p], d), rows[p, N], theta_of(rows[q], d), rows[q, N], clustering.merge)


@compiled_lean
def mergeable(server: int, rows: Array, groups: Groups, clustering: ClusterRule, d: int, pair: Ints) -> bool:
    """The first pair of sets of a server that can merge is left in `pair`; whether there is one."""
    for k in range(groups.start[server], groups.start[server + 1]):
        p = groups.members[k]
        if groups.row_of[p] != p or groups.waiting[p] > 0:
            continue
        for m in range(k + 1, groups.start[server + 1]):
            q = groups.members[m]
            if groups.row_of[q] == q and groups.waiting[q] == 0 and can_merge(p, q, rows, groups, clustering, d):
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
            add(pending_b_of(own[i], d), base_b_of(row, d))
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
        add_pending_unpacked(own[i], d, V[k])
        add(pending_b_of(own[i], d), b[k])
        n[k] += own[i, N]
