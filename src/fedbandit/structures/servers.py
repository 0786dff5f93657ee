"""Local servers whose users are all taken to be alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedbandit.structures.clustering import Law, Rule, servers_of
from fedbandit.structures.structure import Structure
from fedbandit.types import Ints
from fedbandit.world import World


@dataclass(frozen=True)
class Servers(Structure):
    """One model row for each local server, and all servers share with one another: no clustering at all.

    `n_servers` blocks of consecutive users; None for the servers of the environment, or a server for each client
    where it has none.

    Reference: the baselines Homo and Homo-DC of FCLUB (Liu et al. 2022, §5).
    """

    n_servers: int | None = None

    separate: ClassVar[bool] = False
    federated: ClassVar[bool] = True

    def law(self) -> Law:
        """Nothing ever changes."""
        return Law(int(Rule.FIXED), 0.0, 0.0, 0.0, True, False)

    def servers(self, world: World) -> Ints:
        """The local server of each user."""
        return servers_of(world, self.n_servers, world.n_clients)
