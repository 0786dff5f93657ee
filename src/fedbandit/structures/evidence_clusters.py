"""Clients learn together if their data are more likely under one parameter than under several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit.errors import number
from fedbandit.model import TIE
from fedbandit.schedule import next_growth
from fedbandit.sharing import NEVER, FoundGroups, Members, Noise
from fedbandit.structures.evidence import Evidence, evidence
from fedbandit.structures.homogeneity import LEAST_NOISE, Weighted, weighted
from fedbandit.structures.structure import Structure
from fedbandit.types import Array
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
        the protocol decides that: Scheduled, or a ServerQueue that reclusters. Other protocols need a number.

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

    @property
    def asks_to_regroup(self) -> bool:
        """With `recluster`."""
        return self.recluster is not None

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
        return NEVER if factor is None else next_growth(done, first=1, growth=factor, batch=1, world=self.world)

    def find(self, members: Members, done: int, noise: Noise | None) -> list[list[int]]:  # noqa: ARG002
        """The likeliest partition."""
        return likeliest(weighted(members, self.sigma, noise), self.structure.odds)


def likeliest(data: Weighted, odds: float) -> list[list[int]]:
    """The partition found by merging and moving, sorted."""
    clusters = evidence(data)
    alone = clusters.alone()
    merge(clusters, alone, odds)
    move(clusters, alone, odds)
    return sorted(sorted(members) for members in clusters.members if members)


def merge(clusters: Evidence, alone: Array, odds: float) -> None:
    """Merge the two clusters that gain most while two gain (by more than rounding)."""
    n = alone.size
    gain = np.full((n, n), -np.inf)
    for place, i in enumerate(clusters.order.tolist()):
        others = clusters.order[place + 1 :]
        gain[i, others] = gain[others, i] = clusters.given(i, others) - alone[others]
    while True:
        i = first_best(gain.max(axis=1, initial=-np.inf))
        j = first_best(gain[i])
        if gain[i, j] + odds <= TIE:
            return
        clusters.merge(i, j, float(gain[i, j]))
        gain[j], gain[:, j] = -np.inf, -np.inf
        size = np.array([len(members) for members in clusters.members])
        size[i] = 0
        single, several = np.flatnonzero(size == 1), np.flatnonzero(size > 1)
        gain[i, single] = clusters.given(i, single) - alone[single]  # cluster k is client k still
        gain[i, several] = clusters.together(i, several)
        gain[:, i] = gain[i]


def move(clusters: Evidence, alone: Array, odds: float) -> None:
    """Move single clients to where their data are likeliest, until nobody moves; to be alone costs the odds."""
    n = alone.size
    given = np.full((n, n + 1), -np.inf)  # log p of each client's data by cluster, and alone
    given[:, n] = alone - odds
    home = np.zeros(n, dtype=np.int64)
    looked, changes = np.full((n, n), -1), np.zeros(n, dtype=np.int64)  # when that was, by cluster
    for k, members in enumerate(clusters.members):
        home[members] = k
    for _ in range(MOST_SWEEPS):
        before = home.copy()
        for i in range(n):
            here, coming = int(home[i]), np.arange(i, n)
            for k in np.flatnonzero(looked[i] != changes).tolist():
                given[i:, k] = clusters.given(k, coming) if clusters.members[k] else -np.inf
                looked[i:, k] = changes[k]
            stays = given[i, n if len(clusters.members[here]) == 1 else here]
            offers = given[i].copy()
            offers[here] = -np.inf
            best = first_best(offers)
            if offers[best] > stays + TIE:
                home[i] = clusters.move(i, here, best if best < n else clusters.members.index([]))
                changes[[here, home[i]]] += 1
        if (before == home).all():
            return


def first_best(gain: Array) -> int:
    """The lowest index within TIE of the largest gain: clients without data gain nothing anywhere."""
    return int(np.argmax(gain >= gain.max() - TIE))
