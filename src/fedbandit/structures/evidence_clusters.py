"""Clients learn together if their data are more likely under one parameter than under several."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit.errors import number
from fedbandit.schedule import next_growth
from fedbandit.sharing import NEVER, FoundGroups, Members, Noise
from fedbandit.structures.homogeneity import LEAST_NOISE, Weighted, weighted
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
    A, c = data.A.copy(), data.c.copy()  # of clusters
    label = _merge(A, c, odds)
    _move(data, A, c, label, odds)
    return sorted(np.flatnonzero(label == g).tolist() for g in np.unique(label))


def _merge(A: Array, c: Array, odds: float) -> Ints:
    """Merge clusters while two gain; cluster sums in A, c are kept up to date. Returns the cluster of each client."""
    n = len(A)
    everyone = np.arange(n)
    label, alive = everyone.copy(), np.ones(n, dtype=np.bool_)
    alone, gain = evidence(A, c), np.full((n, n), -np.inf)
    for i in range(n):
        gain[i, i + 1 :] = _gains(i, everyone[i + 1 :], A, c, alone)
        gain[i + 1 :, i] = gain[i, i + 1 :]
    best = gain.max(axis=1, initial=-np.inf)
    while True:
        i = int(best.argmax())
        if best[i] + odds <= 0:
            return label
        j = int(gain[i].argmax())
        A[i] += A[j]
        c[i] += c[j]
        A[j], c[j] = 0.0, 0.0
        label[label == j] = i
        alive[j] = False
        gain[j], gain[:, j] = -np.inf, -np.inf
        alone[i] = evidence(A[i : i + 1], c[i : i + 1])[0]
        others = np.flatnonzero(alive & (everyone != i))
        gain[i, others] = gain[others, i] = _gains(i, others, A, c, alone)
        best = gain.max(axis=1, initial=-np.inf)


def _gains(i: int, others: Ints, A: Array, c: Array, alone: Array) -> Array:
    return evidence(A[others] + A[i], c[others] + c[i]) - alone[i] - alone[others]


def _move(data: Weighted, A: Array, c: Array, label: Ints, odds: float) -> None:
    """Move single clients to where they gain most, until nobody moves."""
    n = label.size
    for _ in range(MOST_SWEEPS):
        moved = False
        for i in range(n):
            home = label[i]
            A[home] -= data.A[i]
            c[home] -= data.c[i]
            places = np.unique(label[np.arange(n) != i])
            free = np.setdiff1d(np.arange(n), places)[:1]  # an empty cluster: to be alone costs the odds
            places = np.concatenate([places, free])
            A[free], c[free] = 0.0, 0.0  # without what rounding has left there
            gain = evidence(A[places] + data.A[i], c[places] + data.c[i]) - evidence(A[places], c[places])
            gain[-1] -= odds * free.size
            here = int(np.flatnonzero(places == home)[0]) if home in places else places.size - 1
            to = int(gain.argmax())
            if gain[to] <= gain[here] + 1e-9:
                to = here
            label[i] = places[to]
            moved = moved or to != here
            A[label[i]] += data.A[i]
            c[label[i]] += data.c[i]
        if not moved:
            return


def evidence(A: Array, c: Array) -> Array:
    """Log p of clusters with the sums A (m, d, d) and c (m, d): ½ (cᵀ(A + dI)⁻¹c − log det (A + dI)/det dI)."""
    d = c.shape[1]
    prior = A + d * np.eye(d)
    form = (c * np.linalg.solve(prior, c[:, :, None])[:, :, 0]).sum(axis=1)
    return np.asarray(0.5 * (form - np.linalg.slogdet(prior)[1] + d * math.log(d)))
