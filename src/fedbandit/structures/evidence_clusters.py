"""Clients learn together if their data are more likely under one parameter than under several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit.errors import number
from fedbandit.model import TIE
from fedbandit.schedule import next_growth
from fedbandit.sharing import NEVER, FoundGroups, Members, Noise
from fedbandit.structures.homogeneity import LEAST_NOISE, Weighted, batches, eliminate, factor, weighted
from fedbandit.structures.structure import Structure
from fedbandit.types import Array, Ints
from fedbandit.world import World

MOST_SWEEPS = 10


@dataclass(frozen=True)
class EvidenceClusters(Structure):
    """The partition with the largest evidence: Σ over clusters G of log p(data of G) − odds · (number of clusters).

    With θ ~ N(0, I/d) for each cluster, and A, c the members' weighted statistics (`homogeneity`) summed,

        log p(G) = ½ cᵀ(A + dI)⁻¹c − ½ log det(I + A/d) + constants that do not depend on the partition.

    It is looked for by merging the two clusters that gain most while any two gain, then by moving single clients while
    that gains. `odds` says how many times e^odds likelier one cluster is than two before there are data.

    recluster: the factor by which the rounds grow between one look at everybody's statistics and the next, or None if
        the protocol decides that.

    Compared with tests of pairs: a client is compared with *all* members of a cluster together, so that clusters are
    found when each client has fewer observations than there are dimensions; and clusters never overlap.

    Reference: a design of this project; merging by evidence is Bayesian hierarchical clustering (Heller and
    Ghahramani 2005) for regressions.
    """

    odds: float = 3.0
    recluster: float | None = None
    noise: float | None = None

    by_member: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check every parameter."""
        number(self.odds, "odds", "a finite number")
        if self.recluster is not None:
            number(self.recluster, "recluster", "a finite number ≥ 1, or None", at_least=1.0)
        if self.noise is not None:
            number(self.noise, "noise", "a finite number ≥ 0, or None", at_least=0.0)

    def sharing(self, world: World, ridge: float) -> Partition:  # noqa: ARG002 - the prior has its own
        """Everybody alone."""
        return Partition(self, world)


class Partition(FoundGroups):
    """The clusters at a time, at the coordinator."""

    def __init__(self, structure: EvidenceClusters, world: World) -> None:
        super().__init__(world.n_clients)
        self.structure = structure
        self.world = world
        self.sigma = max(world.noise if structure.noise is None else structure.noise, LEAST_NOISE)

    def next_wake(self, done: int) -> int:
        """By growth, or never."""
        factor = self.structure.recluster
        return NEVER if factor is None else next_growth(done, 1, factor, 1, self.world)

    def find(self, members: Members, done: int, noise: Noise | None) -> list[list[int]]:  # noqa: ARG002
        """The likeliest partition."""
        return likeliest(weighted(members, self.sigma, noise), self.structure.odds)


def likeliest(data: Weighted, odds: float) -> list[list[int]]:
    """The partition found by merging and moving, sorted."""
    clusters = _Clusters(data)
    clusters.merge(odds)
    clusters.move(odds)
    return sorted(sorted(members) for members in clusters.members if members)


class _Clusters:
    """Clusters while the likeliest ones are looked for, as many as clients: at first each has one of its own."""

    def __init__(self, data: Weighted) -> None:
        n, d = data.c.shape
        self.data = data
        self.members = [[i] for i in range(n)]
        self.A, self.c = data.A.copy(), data.c.copy()  # sums over members
        F, self.z, _ = factor(data.A, data.c)
        columns = F.transpose(0, 2, 1).reshape(-1, d)
        self.K = (columns @ columns.T).reshape(n, F.shape[2], n, F.shape[2]).transpose(0, 2, 1, 3)  # F_iᵀF_j
        self.log_p = self.evidence(np.arange(n))
        self.alone = self.log_p.copy()

    def evidence(self, places: Ints, more: Sequence[int] = (), B: Array | float = 0.0, e: Array | float = 0.0) -> Array:
        """log p of these clusters, each together with clients `more`, whose sums are B and e.

        With A_i = F_i F_iᵀ and c_i = F_i z_i, F = (F_i, …) and z = (z_i, …) of the members, K = FᵀF: log det(A + dI) is
        log det(K + dI) but for a constant, and cᵀ(A + dI)⁻¹c = zᵀz − d zᵀ(K + dI)⁻¹z. K is smaller than A as long
        as members have few observations.
        """
        d, r = self.c.shape[1], self.z.shape[1]
        found = np.zeros(places.size)
        if r == 0:
            return found
        sizes = np.array([min((len(self.members[k]) + len(more)) * r, d) for k in places], dtype=np.int64)
        for size in np.unique(sizes).tolist():
            for part in batches(np.flatnonzero(sizes == size), size):
                k = places[part]
                if size < d:
                    G = np.array([[*self.members[g], *more] for g in k], dtype=np.int64)
                    K = self.K[G[:, :, None], G[:, None, :]].transpose(0, 1, 3, 2, 4).reshape(k.size, size, size)
                    z = self.z[G].reshape(k.size, size)
                    form, _, logdet = eliminate(K + d * np.eye(size), z)
                    form = (z**2).sum(axis=1) - d * form
                else:
                    form, _, logdet = eliminate(self.A[k] + (B + d * np.eye(d)), self.c[k] + e)
                found[part] = 0.5 * (form - logdet + size * math.log(d))
        return found

    def merge(self, odds: float) -> None:
        """Merge the two clusters that gain most while two gain."""
        everyone = np.arange(len(self.members))
        gain = np.full((everyone.size, everyone.size), -np.inf)
        for k in range(everyone.size):
            self._compare(k, everyone[k + 1 :], gain)
        while True:
            i = first_best(gain.max(axis=1, initial=-np.inf))
            j = first_best(gain[i])
            if gain[i, j] + odds <= 0:
                return
            self.A[i] += self.A[j]
            self.c[i] += self.c[j]
            self.members[i] += self.members[j]
            self.members[j] = []
            gain[j], gain[:, j] = -np.inf, -np.inf
            self.log_p[i] = self.evidence(everyone[i : i + 1])[0]
            self._compare(i, np.array([k for k in everyone if self.members[k] and k != i], dtype=np.int64), gain)

    def _compare(self, i: int, others: Ints, gain: Array) -> None:
        together = self.evidence(others, self.members[i], self.A[i], self.c[i])
        gain[i, others] = gain[others, i] = together - self.log_p[i] - self.log_p[others]

    def move(self, odds: float) -> None:
        """Move single clients to where they gain most, until nobody moves."""
        n = len(self.members)
        self.other = np.zeros((n, n))  # log p of clusters with a client that is not in them, or without one that is
        self.looked, self.changes = np.full((n, n), -1), np.zeros(n, dtype=np.int64)  # when that was, by cluster
        home = {i: k for k, members in enumerate(self.members) for i in members}
        for _ in range(MOST_SWEEPS):
            moved = [self._move(i, home, odds) for i in range(n)]
            if not any(moved):
                return

    def _move(self, i: int, home: dict[int, int], odds: float) -> bool:
        """Move client i if that gains; to be alone costs the odds."""
        here = home[i]
        places = np.array([k for k, members in enumerate(self.members) if members and k != here], dtype=np.int64)
        new = places[self.looked[i, places] != self.changes[places]]
        self.other[i, new] = self.evidence(new, [i], self.data.A[i], self.data.c[i])
        if self.looked[i, here] != self.changes[here]:
            self._change(here, i, -1)
            self.other[i, here] = self.evidence(np.array([here]))[0]
            self._change(here, i, 1)
        self.looked[i] = self.changes
        gain = np.append(self.other[i, places] - self.log_p[places], self.alone[i] - odds)
        best = first_best(gain)
        stays = gain[-1] if len(self.members[here]) == 1 else self.log_p[here] - self.other[i, here]
        if gain[best] <= stays + TIE:
            return False
        self._change(here, i, -1)
        to = int(places[best]) if best < places.size else self.members.index([])
        self.log_p[here] = self.other[i, here]
        self.log_p[to] = self.other[i, to] if best < places.size else self.alone[i]
        if not self.members[to]:
            self.A[to], self.c[to] = 0.0, 0.0  # without what rounding has left there
        self._change(to, i, 1)
        self.changes[[here, to]] += 1
        home[i] = to
        return True

    def _change(self, k: int, i: int, sign: int) -> None:
        """Client i joins cluster k, or leaves it."""
        self.A[k] += sign * self.data.A[i]
        self.c[k] += sign * self.data.c[i]
        if sign > 0:
            self.members[k].append(i)
        else:
            self.members[k].remove(i)


def first_best(gain: Array) -> int:
    """The lowest index within TIE of the largest gain: clients without data gain nothing anywhere."""
    return int(np.argmax(gain >= gain.max() - TIE))
