"""How likely are the data of clusters, with θ ~ N(0, I/d) in each, and those of a client, given a cluster's?

With A, c the members' weighted statistics (`homogeneity`) summed, M = (A + dI)⁻¹ and θ̂ = Mc,

    log p(G) = ½ cᵀMc − ½ log det(I + A/d) + constants that do not depend on the partition.

A client with few observations, A_i = F Fᵀ and c_i = F z, has as many data z = Fᵀθ + N(0, I). With S = FᵀMF and
e = z − Fᵀθ̂ they are likely, given those of a cluster without it, as

    log p(i | G) = ½ zᵀz − ½ eᵀ(I + S)⁻¹e − ½ log det(I + S),

and what they add to M, θ̂ is of their rank: M −= HHᵀ, θ̂ += Hu with H = MF L⁻ᵀ, u = L⁻¹e and LLᵀ = I + S (Woodbury).
If G has the client, I − S stands for I + S, and what is added is taken away.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fedbandit.structures.homogeneity import Factor, Weighted, batches, eliminate, factor
from fedbandit.types import Array, Ints

MOST_ALIKE = 64
"""Clients whose factors are stored together."""

MOST_INFORMATION = 1e4
"""tr A_i/d beyond which updates of M would lose too many digits."""


class Evidence:
    """Clusters of clients, at first each with one of its own, by sums over their members."""

    def __init__(self, data: Weighted) -> None:
        self.data = data
        self.members = [[i] for i in range(len(data.c))]
        self.A, self.c = data.A.copy(), data.c.copy()
        self.order = np.arange(len(data.c))  # in which clients are best compared with all that follow
        self._log_p: dict[int, float] = {}

    def alone(self) -> Array:
        """log p of each client's data."""
        return np.array([self.log_p(i) for i in range(len(self.members))])

    def log_p(self, k: int) -> float:
        """log p of cluster k."""
        if k not in self._log_p:
            self._log_p[k] = float(log_p(self.A[[k]], self.c[[k]])[0])
        return self._log_p[k]

    def together(self, k: int, others: Ints) -> Array:
        """How much likelier cluster k and each of the others are as one cluster than as two, as a logarithm."""
        apart = [self.log_p(k) + self.log_p(j) for j in others.tolist()]
        found = np.zeros(others.size)
        for part in batches(np.arange(others.size), self.c.shape[1]):
            found[part] = log_p(self.A[k] + self.A[others[part]], self.c[k] + self.c[others[part]])
        return found - np.array(apart)

    def given(self, k: int, who: Ints) -> Array:
        """log p of each of these clients' data, given those of the other members of cluster k."""
        found = np.zeros(who.size)
        sign = np.where(np.isin(who, self.members[k]), -1.0, 1.0)
        for part in batches(np.arange(who.size), self.c.shape[1]):
            i, s = who[part], sign[part, None]
            found[part] = log_p(self.A[k] + s[:, :, None] * self.data.A[i], self.c[k] + s * self.data.c[i])
        return sign * (found - self.log_p(k))

    def merge(self, k: int, j: int, gain: float) -> None:
        """Cluster j becomes part of cluster k, with which it is likelier by this logarithm."""
        self._log_p[k] = self.log_p(k) + self.log_p(j) + gain
        self.A[k] += self.A[j]
        self.c[k] += self.c[j]
        self.members[k] += self.members[j]
        self.members[j] = []

    def move(self, i: int, here: int, there: int) -> int:
        """Client i goes to another cluster, or begins one; its number."""
        if not self.members[there]:
            self.A[there], self.c[there] = 0.0, 0.0
        self.members[here].remove(i)
        self.members[there].append(i)
        for k, sign in ((here, -1.0), (there, 1.0)):
            self.A[k] += sign * self.data.A[i]
            self.c[k] += sign * self.data.c[i]
            self._log_p.pop(k, None)
        return there


def log_p(A: Array, c: Array) -> Array:
    """log p of clusters with these sums."""
    d = c.shape[1]
    form, _, logdet = eliminate(A, c, float(d))
    return 0.5 * (form - logdet + d * math.log(d))


def evidence(data: Weighted) -> Evidence:
    """By updates if all clients have few observations, else by sums."""
    d = data.c.shape[1]
    if np.einsum("mkk->m", data.A).max(initial=0.0) <= MOST_INFORMATION * d:
        found = factor(data.A, data.c, d // 2 + 1)
        if 2 * found.z.shape[1] <= d:
            return LowRankEvidence(data, found)
    return Evidence(data)


class LowRankEvidence(Evidence):
    """The same, by updates: a client of rank r more or less takes O(dr²) for each client, instead of O(d³)."""

    def __init__(self, data: Weighted, found: Factor) -> None:
        super().__init__(data)
        self.rank = (found.pivots > 0).sum(axis=1)
        self.order = np.argsort(self.rank, kind="stable")
        self.blocks: list[EvidenceBlock] = []
        self.place: dict[int, tuple[int, int]] = {}  # block, and where in it
        for clients in alike(self.order, self.rank):
            r = self.rank[clients[-1]]
            F = np.ascontiguousarray(found.F[clients, :, :r].transpose(0, 2, 1))
            self.place |= {i: (len(self.blocks), at) for at, i in enumerate(clients.tolist())}
            self.blocks.append(EvidenceBlock(clients, F, found.z[clients, :r]))
        self._views: dict[int, View] = {}

    def alone(self) -> Array:
        """log p of each client's data."""
        view, found = View(self.blocks), np.zeros(self.rank.size)
        for g, block in enumerate(self.blocks):
            found[block.clients] = likelihood(block.z, *view.of(g), np.ones(len(block.z)))
        self._log_p = dict(enumerate(found.tolist()))
        return found

    def view(self, k: int) -> View:
        """What cluster k knows; it is kept if there are several members."""
        if k in self._views:
            return self._views[k]
        view = View(self.blocks)
        for i in self.members[k]:
            self._change(view, i, 1)
        if len(self.members[k]) > 1:
            self._views[k] = view
        return view

    def given(self, k: int, who: Ints) -> Array:
        """log p of each of these clients' data, given those of the other members of cluster k."""
        asked, sign = np.zeros(self.rank.size, dtype=np.bool_), np.ones(self.rank.size)
        asked[who] = True
        sign[self.members[k]] = -1.0
        view, found = self.view(k), np.zeros(self.rank.size)
        for g, (clients, _, z) in enumerate(self.blocks):
            part = np.flatnonzero(asked[clients])
            if part.size:
                S, e = view.of(g)
                found[clients[part]] = likelihood(z[part], S[part], e[part], sign[clients[part]])
        return found[who]

    def merge(self, k: int, j: int, gain: float) -> None:
        """Cluster j becomes part of cluster k, with which it is likelier by this logarithm."""
        large, small = (k, j) if len(self.members[k]) >= len(self.members[j]) else (j, k)
        view = self.view(large)
        for i in self.members[small]:
            self._change(view, i, 1)
        self._views.pop(j, None)
        self._views[k] = view
        super().merge(k, j, gain)

    def move(self, i: int, here: int, there: int) -> int:
        """Client i goes to another cluster, or begins one; its number."""
        for k, sign in ((here, -1), (there, 1)):
            if k in self._views:
                self._change(self._views[k], i, sign)
        super().move(i, here, there)
        if len(self.members[here]) == 1:
            self._views.pop(here, None)
        return there

    def _change(self, view: View, i: int, sign: int) -> None:
        (g, at), r = self.place[i], self.rank[i]
        view.change(self.blocks[g].F[at, :r], self.blocks[g].z[at, :r], sign)


class EvidenceBlock(NamedTuple):
    """Fᵀ and z of clients of similar rank."""

    clients: Ints
    F: Array  # (m, r, d)
    z: Array  # (m, r)


def alike(order: Ints, rank: Ints) -> Iterator[Ints]:
    """Clients in the order of their ranks, cut where these have grown by a quarter."""
    start = 0
    while start < order.size:
        end = np.searchsorted(rank[order], 1.25 * rank[order[start]] + 2, side="right")
        end = min(int(end), start + MOST_ALIKE)
        yield order[start:end]
        start = end


def likelihood(z: Array, S: Array, e: Array, sign: Array) -> Array:
    """log p(i | G) of clients that are not in G (sign 1), and of members, given the others (sign −1)."""
    form, _, logdet = eliminate(sign[:, None, None] * S, e, 1.0)
    return 0.5 * ((z**2).sum(axis=1) - form - sign * logdet)


class View:
    """What one cluster knows: M and θ̂ as before its last change, and S and e of all clients.

    Blocks of S and e follow the changes only when somebody asks for them.
    """

    def __init__(self, blocks: Sequence[EvidenceBlock]) -> None:
        d = blocks[0].F.shape[2]
        self.blocks = blocks
        self.M, self.theta = np.eye(d) / d, np.zeros(d)
        self.changes: list[tuple[Array, Array, int]] = []  # Hᵀ, u, and whether they were added or taken away
        self._known: dict[int, tuple[int, Array, Array]] = {}  # by block: changes that it has followed, S, e

    def change(self, F: Array, z: Array, sign: int) -> None:
        """Add a client's data, or take them away."""
        if self.changes:
            H, u, before = self.changes[-1]
            self.M -= before * (H.T @ H)
            self.theta += before * (u @ H)
        G = F @ self.M
        L = np.linalg.cholesky(np.eye(z.size) + sign * (G @ F.T))
        W = np.linalg.solve(L, np.column_stack((G, z - F @ self.theta)))
        self.changes.append((W[:, :-1], W[:, -1], sign))

    def of(self, g: int) -> tuple[Array, Array]:
        """S and e of the clients of block g."""
        _, F, z = self.blocks[g]
        m, r, d = F.shape
        if g not in self._known:
            self._known[g] = 0, F @ F.transpose(0, 2, 1) / d, z.copy()
        known, S, e = self._known[g]
        for H, u, sign in self.changes[known:]:
            P = (F.reshape(m * r, d) @ H.T).reshape(m, r, u.size)
            S -= sign * (P @ P.transpose(0, 2, 1))
            e -= sign * (P @ u)
        self._known[g] = len(self.changes), S, e
        return S, e
