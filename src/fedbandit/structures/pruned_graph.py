"""CLUB: a graph of users on each server that loses edges while users act."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedbandit.state import State, stored
from fedbandit.structures.clustering import Clustering, ServedClusters, SimilarityGraph, check_alpha
from fedbandit.structures.serving import NoiseOnGraph, Serving
from fedbandit.types import Ints
from fedbandit.world import World


@dataclass(frozen=True)
class PrunedGraph(Clustering):
    """Clusters of users on each local server: a graph of its users that loses edges (CLUB).

    Each server keeps a graph of its users, at first complete. After an observation of user i it deletes the edges

        (i, j) with ‖θ̂_i − θ̂_j‖ > α (F(n_i) + F(n_j)),   F(n) = √((1 + ln(1 + n))/(1 + n))

    and the users of a connected component share one model: V = Σ V_i, b = Σ b_i.

    `n_servers`: blocks of consecutive users, each with a CLUB of its own; None for the servers of the environment, or
    one server for all where it has none.

    Reference: Gentile et al., Online Clustering of Bandits, 2014: Fig. 1; per local server as in FCLUB §5.

    Deviations:
        D1. The graph begins complete (CLUB may begin with a sparse random one to save time).
        D2. The ridge λ of users and of clusters is the system's, and α = 2.5 (FCLUB's authors run CLUB with 0.25,
            which soon tears true clusters apart).
    """

    alpha_split: float = 2.5
    n_servers: int | None = None

    def __post_init__(self) -> None:
        """Check the factor."""
        object.__setattr__(self, "alpha_split", check_alpha("alpha_split", self.alpha_split))

    def serve(self, world: World, users: Ints, ridge: float, noise: NoiseOnGraph | None = None) -> Serving:  # noqa: ARG002
        """One cluster of all users, and a complete graph."""
        return PrunedClusters(users, world.dim, ridge, self.alpha_split)


class PrunedClusters(ServedClusters):
    """The connected components of a server's graph."""

    def __init__(self, users: Ints, dim: int, ridge: float, alpha: float) -> None:
        super().__init__(users, dim, ridge)
        self.alpha = alpha
        self.graph = SimilarityGraph(users.size)

    def rearrange(self, i: int) -> None:
        """Delete edges of the user who acted; its cluster may have come apart."""
        lost = self.graph.prune(i, self.own, self.alpha)
        if lost.size and not self.graph.still_together(i, lost):
            self.regroup(self.graph.clusters())

    def state(self) -> State:
        """Also the graph."""
        header, arrays = super().state()
        return State(header, {**arrays, "edges": self.graph.edges.astype(np.uint8)})

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        super().restore(state)
        self.graph.edges = stored(state, "edges", self.graph.edges.shape).astype(np.bool_)
