"""Local clusters in a federation: the coordinator's side, and what is said when a phase begins (FCLUB, Alg. 2).

Every local cluster is a member with the number of its smallest user. Within a phase it exchanges statistics by the
system's protocol, exactly like a client. When a phase begins,

| who              | gets                 | does                                                                  |
|------------------|----------------------|-----------------------------------------------------------------------|
| server           | the time             | finds its local clusters anew and reports all statistics of each      |
| coordinator      | a report of each one | merges local clusters into global ones                                |
| – if any changed |                      | begins anew: a global cluster has the sum of its local ones           |
| server           | a renewal            | begins anew: each of its local clusters downloads that; or, if the    |
|                  |                      | renewal is empty, goes on as if nothing had happened                  |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fedbandit.errors import FedbanditError
from fedbandit.messages import Download, Message
from fedbandit.protocols import Coordinator, MessageProtocol
from fedbandit.sharing import Groups
from fedbandit.state import State, joined, parts_of
from fedbandit.structures import FederatedClustering
from fedbandit.sums import Sums, zero_sums
from fedbandit.system import System
from fedbandit.types import Ints
from fedbandit.world import World


@dataclass(frozen=True)
class Report:
    """Server → coordinator: my local clusters, with all that was observed in each, noised if there is a mechanism."""

    server: int
    phase: int
    clusters: Mapping[int, Sums]
    absent: bool = False
    """Whether the server has not reported: this is what it had uploaded, and its local clusters go on as they are."""


@dataclass(frozen=True)
class Renewal:
    """Coordinator → server: begin anew with these downloads, one a local cluster; or go on, if there are none."""

    server: int
    phase: int
    downloads: tuple[Download, ...]


class ClusterCoordinator:
    """The coordinator of local clusters: within a phase the protocol's, whose members they are.

    If it `keeps` each local cluster's sums apart, a phase can begin without a server that does not report (`stand_in`).
    """

    def __init__(self, system: System, world: World, *, keeps: bool = False) -> None:
        assert isinstance(system.structure, FederatedClustering)
        refuse_thresholds_by_client(system.protocol)
        self._system, self._world, self._rule = system, world, system.structure
        self._noise = system.pool_noise()
        self._keeps = keeps
        self._server_of = system.structure.servers(world)
        self._reports: dict[int, Report] = {}
        nothing = {int(i): zero_sums(world.dim) for i in np.unique(self._server_of, return_index=True)[1]}
        self._label = dict.fromkeys(nothing, 0)
        self.within: Coordinator = self._new_phase()
        """The coordinator within a phase."""
        self.within.begin(nothing)
        self.within.sent[:] = 0  # there is nothing to send

    def _new_phase(self) -> Coordinator:
        group_of = np.full(self._world.n_clients, -1)
        group_of[list(self._label)] = list(self._label.values())
        system, dim = self._system, self._system.structure.shared_dim(self._world)
        sharing = Groups(group_of, self._world.n_clients)
        machine = system.protocol.coordinator(sharing, self._world, dim, system.ridge, self._noise)
        if machine is None:
            raise FedbanditError(
                f"{type(system.structure).__name__} with {type(system.protocol).__name__} is refused: this protocol "
                "has no coordinator, but local clusters of different servers share through one."
            )
        if self._keeps:
            machine.keep_contributions()
        return machine

    def groups(self) -> list[list[int]]:
        """The local clusters of each global one."""
        return self.within.sharing.groups()

    def next_phase(self, done: int) -> int:
        """After how many rounds the next phase begins, if `done` are over."""
        return self._rule.next_phase(done)

    def receive(self, message: Message) -> list[Message]:
        """Within a phase: apply a message of a local cluster, and say what to send."""
        return self.within.receive(message)

    def receive_report(self, report: Report) -> list[Renewal]:
        """A phase begins: when the last server has reported, merge local clusters into global ones."""
        self._reports[report.server] = report
        if len(self._reports) <= self._server_of.max():
            return []
        reports = [self._reports[server] for server in sorted(self._reports)]
        self._reports = {}
        clusters = dict(sorted(item for each in reports for item in each.clusters.items()))
        label = dict(zip(clusters, self._merge(clusters).tolist(), strict=True))
        if label == self._label:  # local clusters only ever come apart, so their numbers say who is in them
            return [Renewal(each.server, each.phase, ()) for each in reports]
        self._label, before = label, self.within
        self.within = self._new_phase()
        self.within.version = before.version  # local clusters of a server that is absent know those
        goes_on = [r for each in reports if each.absent for r in each.clusters]
        self.within.ahead.by_member = {r: beyond for r, beyond in before.ahead.by_member.items() if r in goes_on}
        self.within.applied = {r: n for r, n in before.applied.items() if r in goes_on}
        downloads: dict[int, list[Download]] = {each.server: [] for each in reports}
        for message in self.within.begin(clusters):
            assert isinstance(message, Download)
            downloads[int(self._server_of[message.member])].append(message)
        return [Renewal(each.server, each.phase, tuple(downloads[each.server])) for each in reports]

    def clusters_of(self, server: int) -> list[int]:
        """The local clusters of a server."""
        return [r for r in self._label if self._server_of[r] == server]

    def stand_in(self, server: int, phase: int) -> Report:
        """For a server that does not report: what its local clusters have uploaded, unless it is set aside."""
        kept = self.within.contributions
        assert kept is not None, "a phase waits for all servers, unless each local cluster's sums are kept"
        nothing = zero_sums(self._world.dim)
        clusters = {r: nothing if kept.aside[r] else kept.sums_of(r) for r in self.clusters_of(server)}
        return Report(server, phase, clusters, absent=True)

    def _merge(self, clusters: Mapping[int, Sums]) -> Ints:
        """The global cluster of each local one; noisy sums are made usable first."""
        V, ridge = np.array([sums.V for sums in clusters.values()]), self._system.ridge
        if self._noise is not None:
            for k, (r, sums) in enumerate(clusters.items()):
                V[k] = self._noise.repair(sums.V, {r: 1}, ridge)[0] if sums.n > 0 else sums.V
        b, n = np.array([sums.b for sums in clusters.values()]), np.array([float(sums.n) for sums in clusters.values()])
        return self._rule.merge(V, b, n, self._server_of[list(clusters)], ridge)

    def state(self) -> State:
        """Who is in which global cluster, and the coordinator within the phase. Reports come all at once."""
        header: dict[str, Any] = {"label": {str(r): g for r, g in self._label.items()}}
        return joined(header, {"within": self.within.state()})

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        self._label = {int(r): g for r, g in state.header["label"].items()}
        self.within = self._new_phase()
        self.within.restore(parts_of(state)["within"])


def refuse_thresholds_by_client(protocol: MessageProtocol) -> None:
    """Local clusters come and go: there is nobody to give a threshold of its own."""
    if any(np.size(getattr(protocol, parameter.name)) > 1 for parameter in fields(protocol)):  # type: ignore[arg-type]
        raise FedbanditError(
            "One threshold for each client was given, but it is local clusters that communicate here: give one number "
            "for all."
        )
