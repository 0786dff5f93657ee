"""Local servers whose users are all taken to be alike."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedbandit.sharing import NEVER
from fedbandit.state import State
from fedbandit.structures.clustering import FederatedClustering
from fedbandit.structures.serving import FederatedServing
from fedbandit.sums import Sums, zero_sums
from fedbandit.types import Array, Ints
from fedbandit.world import World


@dataclass(frozen=True)
class Servers(FederatedClustering):
    """One model for each local server, and all servers share with one another: no clustering at all.

    `n_servers` blocks of consecutive users; None for the servers of the environment, or a server for each client
    where it has none.

    Reference: the baselines Homo and Homo-DC of FCLUB (Liu et al. 2022, §5).
    """

    n_servers: int | None = None

    def local_clusters(self, world: World, users: Ints, ridge: float) -> FederatedServing:  # noqa: ARG002
        """All users of a server."""
        return OneCluster(users, world.dim)

    def next_phase(self, done: int) -> int:  # noqa: ARG002
        """Never."""
        return NEVER

    def merge(self, V: Array, b: Array, n: Array, server: Ints, ridge: float) -> Ints:  # noqa: ARG002
        """All together."""
        return np.zeros(n.size, dtype=np.int64)


class OneCluster(FederatedServing):
    """All users of one server. Nothing ever changes, so nothing has to be known of single users."""

    def __init__(self, users: Ints, dim: int) -> None:
        self._groups = [users.tolist()]
        self._dim = dim

    def cluster_of(self, user: int) -> int:  # noqa: ARG002
        """The one there is."""
        return self._groups[0][0]

    def observe(self, user: int, x: Array, y: float) -> None:
        """Nothing."""

    def groups(self) -> list[list[int]]:
        """One."""
        return self._groups

    def regroup(self) -> None:
        """Nothing."""

    def sums(self) -> dict[int, Sums]:
        """Nothing was observed when it is asked: there is only the first phase."""
        return {self._groups[0][0]: zero_sums(self._dim)}

    def state(self) -> State:
        """Nothing."""
        return State({}, {})

    def restore(self, state: State) -> None:
        """Nothing."""
