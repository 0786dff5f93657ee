"""FCLUB: each server clusters its own users, a coordinator merges clusters of different servers, in phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbandit.model import Part, RidgeModel
from fedbandit.state import State, stored
from fedbandit.structures.clustering import (
    Clusters,
    FederatedClustering,
    SimilarityGraph,
    UserStatistics,
    alike,
    check_alpha,
    components,
)
from fedbandit.structures.serving import FederatedServing
from fedbandit.sums import EXACT, Slack, Sums
from fedbandit.types import Array, Ints
from fedbandit.world import World


@dataclass(frozen=True)
class PhasedClusters(FederatedClustering):
    """Clusters of users on each local server, joined across servers, found anew in phases that double (FCLUB).

    Phase s begins after 2^s − 2 rounds and has 2^s. At its beginning

    1. each server deletes the edges of its graph of users (at first complete) for which

           ‖θ̂_i − θ̂_j‖ > α₁ (F(n_i) + F(n_j)),   θ̂_i = (V_i + λI)⁻¹ b_i,   F(n) = √((1 + ln(1 + n))/(1 + n))   (Eq. 3)

       and the connected components are its local clusters;
    2. each local cluster uploads its V, b and n, and the coordinator joins local clusters of different servers with

           ‖θ̂_j − θ̂_k‖ < α₂ (F(n_j) + F(n_k))                                                                   (Eq. 4)

       The connected components are the global clusters;
    3. if these are not those of the last phase, everything is renewed: each global cluster has the sum of its local
       clusters' statistics, and each of these downloads it.

    Within a phase the local clusters of a global cluster share by the system's protocol (Alg. 3–4 are
    `EventTriggered` with γ_U = U, γ_D = D). Raw statistics of users stay on their server.

    alpha_split, alpha_merge: α₁ and α₂.
    fresh: whether a local cluster scores arms with its own pending observations too. False is Alg. 1 line 12, which
        uses what was last shared only.
    within: whether local clusters of one server may join too, as in the authors' code.
    n_servers: blocks of consecutive users; None for the servers of the environment, or a server for each client
        where it has none.

    Reference: Liu et al., Federated Online Clustering of Bandits (FCLUB), 2022: Alg. 1 and 2, without noise.

    Deviations:
        D1. `fresh=True` by default: the data are the cluster's own (and the authors' code uses them).
        D2. Nothing is sent at the beginning of phase 1, where nothing has been observed, or after the last round.
        D3. Triggers fire strictly above their threshold (Eqs. 5 and 6 have ≥), as everywhere in fedbandit.
        D4. Every pair of local clusters of different servers is tested (the authors' code never tries the last
            one); two of one server can still meet through one of another server.
        D5. α₁ = 2.5 and α₂ = 1.5 by default. The authors' code has 1.5 and 2: at that α₁ chance tears true clusters
            apart, and at that α₂ different servers learn together for longer before they part. A larger α₂ finds
            clusters that are spread over servers more surely.
        D6. In rounds in which all clients act, phases are counted in those rounds.
    """

    alpha_split: float = 2.5
    alpha_merge: float = 1.5
    fresh: bool = True
    within: bool = False
    n_servers: int | None = None

    def __post_init__(self) -> None:
        """Check the factors."""
        object.__setattr__(self, "alpha_split", check_alpha("alpha_split", self.alpha_split))
        object.__setattr__(self, "alpha_merge", check_alpha("alpha_merge", self.alpha_merge))

    def model(self, world: World, member: int, ridge: float) -> RidgeModel:  # noqa: ARG002 - all are alike
        """What a local cluster chooses with and learns."""
        return (RidgeModel if self.fresh else LaggingModel)(world.dim, ridge)

    def local_clusters(self, world: World, users: Ints, ridge: float) -> FederatedServing:
        """All users of a server in one cluster, with a complete graph."""
        return PhasedServing(users, world.dim, ridge, self.alpha_split)

    def next_phase(self, done: int) -> int:
        """2, 6, 14, …"""
        return next_phase(done)

    def merge(self, V: Array, b: Array, n: Array, server: Ints, ridge: float) -> Ints:
        """Eq. (4)."""
        return merge_clusters(V, b, n, server, ridge, self.alpha_merge, within=self.within)


def next_phase(done: int) -> int:
    """The number of rounds after which the first phase begins that has not begun after `done` rounds.

    >>> [next_phase(done) for done in (0, 1, 2, 5, 6)]
    [2, 2, 6, 6, 14]
    """
    return 2 ** ((done + 2).bit_length()) - 2


def merge_clusters(
    V: Array, b: Array, n: Array, server: Ints, ridge: float, alpha: float, *, within: bool = False
) -> Ints:
    """The global cluster of each local cluster, numbered from 0 (Alg. 2, lines 6–9).

    V (C, d, d), b (C, d) and n (C,) are sums without ridge; `server` (C,) says where each local cluster is.
    With `within`, local clusters of one server may join as well.

    >>> eye = np.stack([100 * np.eye(2)] * 3)
    >>> b = np.array([[100.0, 0.0], [0.0, 100.0], [99.0, 0.0]])
    >>> merge_clusters(eye, b, np.full(3, 200.0), np.array([0, 0, 1]), ridge=1.0, alpha=1.0).tolist()
    [0, 1, 0]
    """
    theta = np.linalg.solve(V + ridge * np.eye(b.shape[1]), b[:, :, None])[:, :, 0].astype(np.float64)
    edges = np.zeros((n.size, n.size), dtype=np.bool_)
    for j in range(1, n.size):
        k = np.arange(j)
        edges[j, :j] = alike(theta, n, np.full(j, j), k, alpha) & (within | (server[j] != server[:j]))
    return components(edges | edges.T)


class LaggingModel(RidgeModel):
    """A model whose arms are scored with what was last shared, while its trigger sees pending observations too."""

    def __init__(self, dim: int, ridge: float) -> None:
        super().__init__(dim, ridge)
        self._scorer = RidgeModel(dim, ridge, fresh=False)

    def parts(self, contexts: Array) -> Sequence[tuple[Part, Array]]:
        """What was last shared."""
        return self._scorer.parts(contexts)

    def means(self, X: Array) -> Array:
        """By what was last shared."""
        return self._scorer.means(X)

    def mark_sent(self) -> None:
        """What was pending is shared."""
        super().mark_sent()
        self._share()

    def adopt(self, sums: Sums, slack: Slack = EXACT, version: int = 0) -> None:
        """The rest is still pending."""
        super().adopt(sums, slack, version)
        self._share()

    def load(self, numbers: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Go on from what `dump` gave."""
        super().load(numbers, arrays)
        self._share()

    def _share(self) -> None:
        self._scorer.adopt(self.in_common(), self.slack, self.version)


class PhasedServing(FederatedServing):
    """The local clusters of one server: the connected components of its graph of users when the phase began."""

    def __init__(self, users: Ints, dim: int, ridge: float, alpha: float) -> None:
        self.alpha = alpha
        self.own = UserStatistics(users.size, dim, ridge, follow=False)
        self.graph = SimilarityGraph(users.size)
        self.clusters = Clusters(users)

    def cluster_of(self, user: int) -> int:
        """The smallest user of its cluster."""
        return int(self.clusters.users[self.clusters.home[self.clusters.place[user]]])

    def observe(self, user: int, x: Array, y: float) -> None:
        """Add to its sums; its estimate is needed when the next phase begins."""
        self.own.observe(self.clusters.place[user], x, y)

    def groups(self) -> list[list[int]]:
        """The local clusters."""
        return self.clusters.groups()

    def regroup(self) -> None:
        """Delete edges by all estimates (Eq. 3); what is still connected is a local cluster (Alg. 2, lines 2–4)."""
        self.own.estimate()
        for i in range(self.clusters.users.size):
            self.graph.prune(i, self.own, self.alpha)
        self.clusters.assign(self.graph.clusters())

    def sums(self) -> dict[int, Sums]:
        """Of each local cluster."""
        numbers, leaders = self.clusters.users, self.clusters.leaders()
        return {int(numbers[r]): self.own.sums(self.clusters.members(r)) for r in leaders}

    def state(self) -> State:
        """Users' statistics, the graph, and the clusters."""
        edges = self.graph.edges.astype(np.uint8)
        return State({}, {**self.own.arrays(), "edges": edges, "home": self.clusters.home})

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        self.own.restore(state)
        self.graph.edges = stored(state, "edges", self.graph.edges.shape).astype(np.bool_)
        self.clusters.assign(stored(state, "home", self.clusters.home.shape).copy())
