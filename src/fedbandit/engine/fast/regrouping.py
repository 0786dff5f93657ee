"""New clusters, worked out in Python when the loop comes back: rows are made anew from users' own statistics."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedbandit.engine.fast.groups import ClusterRule, Groups, add_own, check_off, end_phase, mergeable, sum_up
from fedbandit.engine.fast.row import N, theta_of
from fedbandit.structures.clustering import components
from fedbandit.types import Array, Ints


class Models(NamedTuple):
    """What a local server has: its users' own statistics, its clusters' rows, and who is where."""

    own: Array  # (N, row)
    rows: Array  # (N, row)
    groups: Groups
    blank: Array
    ridge: float
    scratch: Array

    @property
    def dim(self) -> int:
        """The length of a context."""
        return int(self.scratch.shape[1])

    def make_row(self, r: int) -> None:
        """Make row r anew from its users' statistics."""
        sum_up(r, self.own, self.rows, self.groups, self.blank, self.ridge, self.scratch)

    def take_pivot(self, r: int) -> None:
        """θ̃ and ñ of the set in row r are those of now."""
        self.groups.pivot[r] = theta_of(self.rows[r], self.dim)
        self.groups.pivot_n[r] = self.rows[r, N]


def leaders_of(groups: Groups) -> Ints:
    """The rows in use: the smallest user of each local cluster."""
    return np.flatnonzero(groups.row_of == np.arange(groups.row_of.size))


def local_sums(models: Models, leaders: Ints) -> tuple[Array, Array, Array]:
    """V (C, d, d), b (C, d) and n (C,) of the local clusters: what they upload when a phase begins."""
    d, count = models.dim, leaders.size
    V, b, n = np.zeros((count, d, d)), np.zeros((count, d)), np.zeros(count)
    add_own(models.own, np.searchsorted(leaders, models.groups.row_of), V, b, n)
    return V, b, n


def connect(groups: Groups, server: int) -> Ints:
    """Make the connected components of a server's graph its local clusters; the rows that are new or smaller."""
    users = groups.members[groups.start[server] : groups.start[server + 1]]
    edges = groups.edges[groups.edges_at[server] : groups.edges_at[server + 1]]
    label = components(edges.reshape(users.size, users.size))
    first = users[np.unique(label, return_index=True)[1]]
    before, after = groups.row_of[users], first[label]
    groups.row_of[users] = after
    groups.size[users] = 0
    groups.size[first] = np.bincount(label)
    return np.unique(after[np.isin(before, before[before != after])])


def tear(models: Models, server: int) -> None:
    """Edges of a server's graph are gone: rows for what has come apart (CLUB)."""
    for r in connect(models.groups, server):
        models.make_row(int(r))


def rearrange_sets(models: Models, clustering: ClusterRule, i: int, *, leaving: bool) -> None:
    """User i has acted: it leaves its set if it must, then sets merge while they can (SCLUB, Alg. 1)."""
    groups, server = models.groups, int(models.groups.server_of[i])
    if leaving:
        part(models, i)
    check_off(i, groups)
    pair = np.zeros(2, dtype=np.int64)
    while mergeable(server, models.rows, groups, clustering, models.dim, pair):
        p, q = pair.tolist()
        groups.row_of[groups.row_of == q] = p
        groups.size[p] += groups.size[q]
        groups.size[q] = 0
        models.make_row(p)
        models.take_pivot(p)
    end_phase(server, models.rows, groups, models.dim)


def part(models: Models, i: int) -> None:
    """User i leaves its set; what remains keeps θ̃ and ñ, under another number if i was its smallest user."""
    groups, r = models.groups, int(models.groups.row_of[i])
    rest = np.flatnonzero(groups.row_of == r)
    rest = rest[rest != i]
    q = int(rest[0])
    groups.row_of[rest] = q
    groups.pivot[q], groups.pivot_n[q] = groups.pivot[r], groups.pivot_n[r]
    groups.size[r] = 0
    groups.row_of[i] = i
    for row, users in ((q, rest), (i, np.array([i]))):
        groups.size[row] = users.size
        groups.waiting[row] = users.size - groups.checked[users].sum()
        models.make_row(row)
    models.take_pivot(i)
