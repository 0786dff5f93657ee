"""CLUB: a graph of users on each server that loses edges while users act."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedbandit.structures.clustering import Law, Rule, check_alpha, servers_of
from fedbandit.structures.structure import Structure
from fedbandit.types import Ints
from fedbandit.world import World


@dataclass(frozen=True)
class PrunedGraph(Structure):
    """Each server keeps a graph of its users, at first complete. After an observation of user i it deletes the edges

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

    separate: ClassVar[bool] = False
    federated: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the factor."""
        object.__setattr__(self, "alpha_split", check_alpha("alpha_split", self.alpha_split))

    def law(self) -> Law:
        """The test."""
        return Law(int(Rule.PRUNING), self.alpha_split, 0.0, 0.0, True, False)

    def servers(self, world: World) -> Ints:
        """The local server of each user."""
        return servers_of(world, self.n_servers, 1)
