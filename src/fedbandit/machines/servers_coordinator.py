"""The coordinator of local servers on a network: messages in, messages out; no I/O, no clock.

Its members are servers. What their models say to each other's coordinator (`ClusterCoordinator`, or of servers whose
users are members the protocol's own) travels inside the servers' messages (`server_messages`).

| it gets                        | it does                                                                       |
|--------------------------------|-------------------------------------------------------------------------------|
| FromServer, numbered           | once, the upload inside; but not one made before a phase that the server took |
|                                | part in: its report had all of that                                           |
| FromServer, a report           | when all have reported, or are excused: the phase begins                      |
| FromServer, Joins              | each model is sent what it missed; a server that missed a renewal, that       |
| the end of a round             | calls every server to report, if a phase is due                               |

A server that does not report in time takes part by what it has uploaded: its local clusters are as they were, and a
report that comes after all is answered by an empty renewal. So a phase waits for nobody who is gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError
from fedbandit.machines.phases import ClusterCoordinator, Report
from fedbandit.messages import Join, Message, Receipt, Upload
from fedbandit.protocols import Coordinator
from fedbandit.protocols.coordinator import not_taken
from fedbandit.server_messages import FromServer, ToServer
from fedbandit.sharing import NEVER, Groups
from fedbandit.state import State, joined, parts_of, require_like
from fedbandit.structures import FederatedClustering, ReleasedPhases
from fedbandit.sums import Sums
from fedbandit.system import System
from fedbandit.types import Ints
from fedbandit.world import World


def local_servers(system: System, world: World) -> Ints | None:
    """The local server of each user, if it is local servers that take part in a federation of this system.

    >>> import fedbandit as fb
    >>> local_servers(fb.fclub_dc(n_servers=2), World(n_clients=4, dim=2, horizon=9)).tolist()
    [0, 0, 1, 1]
    """
    structure = system.structure
    if isinstance(structure, FederatedClustering):
        return structure.servers(world)
    if isinstance(structure, ReleasedPhases) and world.server_of:
        return np.array(world.server_of, dtype=np.int64)
    return None


class ServersCoordinator(Coordinator):
    """A coordinator whose members are local servers with models of their own numbers. See the table above."""

    retracts: ClassVar[bool] = False

    def __init__(self, system: System, world: World, server_of: Ints) -> None:
        self.server_of = server_of
        nodes = replace(world, n_clients=int(server_of.max()) + 1, server_of=())
        super().__init__(Groups(np.zeros(1, dtype=np.int64), nodes.n_clients), nodes, world.dim, system.ridge)
        self._world = world
        self.phases: ClusterCoordinator | None = None
        if isinstance(system.structure, FederatedClustering):
            self.phases = ClusterCoordinator(system, world, keeps=True)
        else:
            inner = system.coordinator(world)
            assert inner is not None
            inner.keep_contributions()
            self._inner = inner
        self.begun = np.zeros(nodes.n_clients, dtype=np.int64)
        """The last phase that changed anything in which each server took part."""
        self.reported = np.zeros(nodes.n_clients, dtype=np.int64)
        """The last phase in which each has reported."""
        self._phase = 0
        self._reports: dict[int, Report] = {}

    @property
    def inner(self) -> Coordinator:
        """The coordinator of the servers' models."""
        return self._inner if self.phases is None else self.phases.within

    def models_of(self, server: int) -> list[int]:
        """The members of `inner` that are models of a server."""
        if self.phases is not None:
            return self.phases.clusters_of(server)
        return np.flatnonzero(self.server_of == server).tolist()

    # What comes

    def receive(self, message: Message) -> list[Message]:
        """Apply one message and say what to send."""
        if isinstance(message, Join):
            return self.welcome(message)
        if not isinstance(message, FromServer):
            raise not_taken(message)
        self.check_member(message.member)
        self._check(message)
        if message.report:
            return self._take_report(message)
        if message.sequence == 0:
            return self._ask(message)
        if self._is_new(message) and message.phase == self.begun[message.member]:
            answers = self._to_servers(self.inner.receive(message.messages[0]))
            self._count(message.member)
        else:
            answers = []
        self.applied[message.member] = max(message.sequence, self.applied.get(message.member, 0))
        return [Receipt(message.member, message.sequence), *answers]

    def newcomer(self, member: int) -> list[Message]:
        """With a server its users join, before they upload anything; local clusters have joined with their phase."""
        if self.phases is not None:
            return []
        return self._to_servers(answer for i in self.models_of(member) for answer in self._inner.receive(Join(i)))

    def _check(self, message: FromServer) -> None:
        """Refuse what no server says, before anything has changed."""
        server, phase = message.member, message.phase
        for inner in message.messages:
            if not 0 <= inner.member < self.server_of.size or self.server_of[inner.member] != server:
                raise FedbanditError(f"Server {server} speaks for model {inner.member}, which is none of its own.")
            if isinstance(inner, Upload) == (message.sequence == 0):
                raise FedbanditError(f"Server {server} sent a {type(inner).__name__} as number {message.sequence}.")
        if message.report:
            numbers = [inner.member for inner in message.messages]
            if self.phases is None or phase > self._phase or message.sequence == 0:
                raise FedbanditError(f"Server {server} reports in phase {phase}, but was not called to.")
            if not numbers or numbers != sorted(set(numbers)):
                raise FedbanditError(f"Server {server} reports the local clusters {numbers}, each once in order.")
        elif message.sequence > 0 and len(message.messages) != 1:
            raise FedbanditError(f"Server {server} sent {len(message.messages)} uploads as number {message.sequence}.")
        if phase > max(self.begun[server], self._phase if message.report else 0):
            raise FedbanditError(f"Server {server} is in phase {phase}, but has begun {self.begun[server]}.")

    def _is_new(self, message: FromServer) -> bool:
        applied = self.applied.get(message.member, 0)
        if message.sequence > applied + 1:
            raise FedbanditError(f"Server {message.member} sent {message.sequence}, but {applied + 1} is the next one.")
        return message.sequence > applied

    def _ask(self, message: FromServer) -> list[Message]:
        """Models say what they have, or ask for something; a server that has missed a renewal is sent it again."""
        server = message.member
        begun, reported = int(self.begun[server]), int(self.reported[server])
        call: list[Message] = [self._call(server)] if self.is_asked(server) else []
        said: list[Message] = [Receipt(server, self.applied.get(server, 0))]
        if begun > message.phase:  # it has missed the renewal
            downloads = self.inner.send_shares(self.models_of(server))
            return [*said, ToServer(server, begun, tuple(downloads), renewal=True), *call]  # type: ignore[arg-type]
        if reported > begun and reported not in self.calls:  # it may not know that nothing came of its report
            said.append(ToServer(server, reported, (), renewal=True))
        answers = [answer for inner in message.messages for answer in self.inner.receive(inner)]
        return [*said, *self._to_servers(answers), *call]

    def _to_servers(self, answers: Iterable[Message]) -> list[Message]:
        """Messages to models, each in one to its server; what was received is acknowledged to the server."""
        by_server: dict[int, list[Any]] = {}
        for answer in answers:
            if not isinstance(answer, Receipt):
                by_server.setdefault(int(self.server_of[answer.member]), []).append(answer)
        return [ToServer(s, int(self.begun[s]), tuple(messages)) for s, messages in by_server.items()]

    # Phases

    def next_wake(self, done: int) -> int:
        """The next phase, or what the models' coordinator waits for."""
        wake = self._inner.next_wake(done) if self.phases is None else self.phases.next_phase(done)
        return min(wake, NEVER)

    def end_round(self, done: int) -> list[Message]:
        """Call all servers to report, unless everything is over."""
        self.done = done
        if self.phases is None:
            answers = self._to_servers(self._inner.end_round(done))
            self.epoch = self._inner.epoch
            return answers
        if done * self._world.per_round >= self._world.horizon:
            return []
        self._phase, self._reports = self.epoch + 1, {}
        return self.collect(range(self.joined.size))

    def _take_report(self, message: FromServer) -> list[Message]:
        server, phase = message.member, message.phase
        answers: list[Message] = [Receipt(server, message.sequence)]
        if not self._is_new(message):
            return answers
        self.applied[server], self.reported[server] = message.sequence, phase
        if phase in self.calls:
            clusters = {inner.member: inner.sums for inner in message.messages if isinstance(inner, Upload)}
            self._reports[server] = Report(server, phase, clusters)
        else:
            answers.append(ToServer(server, phase, (), renewal=True))  # too late: it goes on as it is
        return [*answers, *self.answered(server)]

    def collected(self, members: list[int]) -> list[Message]:
        """Everybody has reported, or will not: the phase begins."""
        assert self.phases is not None
        renewals = []
        for server in members:
            report = self._reports.get(server) or self.phases.stand_in(server, self._phase)
            renewals = self.phases.receive_report(report)
        answers: list[Message] = []
        for renewal in renewals:
            server = renewal.server
            took_part = server in self._reports
            if took_part and renewal.downloads:
                self.begun[server] = self._phase
            if took_part or renewal.downloads:
                phase = self._phase if took_part else int(self.begun[server])
                answers.append(ToServer(server, phase, renewal.downloads, renewal=took_part))
        self._reports = {}
        for server in members:
            self._count(server)
        return answers

    # Whoever is gone

    def awaits(self) -> list[int]:
        """Servers that have to report, or one of whose users has to answer."""
        users = [] if self.phases is not None else self._inner.awaits()
        return sorted({*super().awaits(), *(int(self.server_of[i]) for i in users)})

    def excuse(self, members: Iterable[int]) -> list[Message]:
        """Wait for these servers no longer."""
        gone = set(members)
        if self.phases is not None:
            return super().excuse(gone)
        return self._to_servers(self._inner.excuse(i for i in self._inner.awaits() if self.server_of[i] in gone))

    def start_over(self, member: int) -> None:
        """A server has lost its state, with its users' statistics. What it had uploaded stays until the next phase."""
        self.applied.pop(member, None)
        self.begun[member] = self.reported[member] = 0
        for i in self.models_of(member):
            self.inner.start_over(i)

    def set_aside(self, member: int, aside: bool) -> list[Message]:
        """What a server has uploaded is in nobody's share, or in shares again."""
        return self._to_servers(a for i in self.models_of(member) for a in self.inner.set_aside(i, aside))

    def vacate(self, member: int) -> list[Message]:
        """A server is gone for good; another one may serve its users."""
        answers = super().vacate(member)
        self.begun[member] = self.reported[member] = 0
        return [*answers, *self._to_servers(a for i in self.models_of(member) for a in self.inner.vacate(i))]

    # What is known

    def _count(self, server: int) -> None:
        kept = self.inner.contributions
        assert kept is not None
        self.members.n[server] = int(kept.own.n[self.models_of(server)].sum())

    def observations_of(self, server: int) -> int:
        """What a server's models have uploaded, or reported in a phase that changed something."""
        return int(self.members.n[server])

    def gathered(self) -> Sums:
        """All that is shared; what was uploaded before a phase is in the reports it began with."""
        return self.inner.gathered()

    def groups(self) -> list[list[int]] | None:
        """The global clusters, by the numbers of local ones or of users."""
        return self.inner.groups() if self.phases is None else self.phases.groups()

    def state(self) -> State:
        """Also the models' coordinator, and reports that have come."""
        inner = self._inner.state() if self.phases is None else self.phases.state()
        found = {str(s): {str(i): sums.n for i, sums in r.clusters.items()} for s, r in self._reports.items()}
        arrays: dict[str, NDArray[Any]] = {"begun": self.begun, "reported": self.reported}
        for report in self._reports.values():
            for i, sums in report.clusters.items():
                arrays |= {f"report.{i}.V": sums.V, f"report.{i}.b": sums.b}
        mine = State({"phase": self._phase, "reports": found}, arrays)
        return joined({}, {"servers": super().state(), "models": inner, "phases": mine})

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        parts = parts_of(state)
        require_like(parts["servers"], super().state())
        self.take_back(parts["servers"])
        (self._inner if self.phases is None else self.phases).restore(parts["models"])
        header, arrays = parts["phases"]
        self.begun[:], self.reported[:], self._phase = arrays["begun"], arrays["reported"], header["phase"]
        self._reports = {}
        for server, found in header["reports"].items():
            clusters = {int(i): Sums(arrays[f"report.{i}.V"], arrays[f"report.{i}.b"], n) for i, n in found.items()}
            self._reports[int(server)] = Report(int(server), self._phase, clusters)
