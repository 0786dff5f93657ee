"""Whom a server with a queue has served, when, and how long they had waited."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fedbandit.protocols import QueueCoordinator
from fedbandit.state import StateError


class Service(NamedTuple):
    """A cluster was served at the end of this round, and had waited for so many rounds."""

    round: int
    cluster: tuple[int, ...]
    waited: int


class Services:
    """All services of a run in the order of time, and who waits since when."""

    def __init__(self) -> None:
        self.done: list[Service] = []
        self._since: dict[tuple[int, ...], int] = {}
        self._times = 0

    def look(self, machine: QueueCoordinator, round_number: int) -> None:
        """See in this round what the server has done, and who waits."""
        if machine.times_served != self._times:
            self._times = machine.times_served
            cluster = tuple(machine.last_served)
            self.done.append(Service(round_number, cluster, round_number - self._since.pop(cluster, round_number)))
        self._since = {cluster: self._since.get(cluster, round_number) for cluster in (tuple(c) for c in machine.queue)}

    def arrays(self) -> dict[str, Any]:
        """As arrays, for files; those who wait have a round of −1, and when they began."""
        rows = [*self.done, *(Service(-1, cluster, since) for cluster, since in self._since.items())]
        return {
            "served.rounds": np.array([row.round for row in rows], dtype=np.int64),
            "served.waits": np.array([row.waited for row in rows], dtype=np.int64),
            "served.sizes": np.array([len(row.cluster) for row in rows], dtype=np.int64),
            "served.clients": np.array([i for row in rows for i in row.cluster], dtype=np.int64),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Services:
        """Read what `arrays` gave."""
        rounds, waits, sizes, clients = (arrays[f"served.{k}"] for k in ("rounds", "waits", "sizes", "clients"))
        if not len(rounds) == len(waits) == len(sizes) or sizes.sum() != len(clients):
            raise StateError(f"The stored services are {len(rounds)}, of {len(clients)} clients, which does not fit.")
        loaded = cls()
        clusters = np.split(clients, np.cumsum(sizes)[:-1]) if len(sizes) else []
        for round_number, waited, cluster in zip(rounds.tolist(), waits.tolist(), clusters, strict=True):
            members = tuple(cluster.tolist())
            if round_number < 0:
                loaded._since[members] = waited
            else:
                loaded.done.append(Service(round_number, members, waited))
        return loaded
