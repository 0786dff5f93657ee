"""Servers whose users are in local clusters, which take part in a federation (FCLUB, Homo): see `phases`."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Unpack

from fedbandit.errors import FedbanditError
from fedbandit.machines.exchange import Exchange
from fedbandit.machines.link import Tally
from fedbandit.machines.local_server import AllServers, Kept, Server
from fedbandit.machines.phases import ClusterCoordinator, Renewal, Report
from fedbandit.machines.start import start_with
from fedbandit.messages import Collect, Download, Message, Request, Threshold, Upload
from fedbandit.policies import Policy
from fedbandit.privacy.privacy import Releases
from fedbandit.sharing import LocalModel
from fedbandit.state import State, joined, parts_of
from fedbandit.streams import Purpose, generator
from fedbandit.structures import FederatedClustering
from fedbandit.sums import Sums
from fedbandit.system import System
from fedbandit.types import Array, Ints
from fedbandit.world import World


class ExchangingServer(Server):
    """A server whose models take part in a federation: each exchanges statistics like a client."""

    exchanges: dict[int, Exchange]
    """Each model's half of the federation, by the number that it has there."""

    @abstractmethod
    def member_of(self, user: int) -> int:
        """The number of the model that a user's arms are scored with."""

    def model_of(self, user: int) -> LocalModel:
        """That of the user's local cluster, or its own."""
        return self.exchanges[self.member_of(user)].model

    def learn(self, user: int, x: Array, y: float) -> None:
        """The model that scores the user's arms observes."""
        self.model_of(user).observe(x, y)

    def speak(self, user: int) -> list[Message]:
        """Let the user's model speak."""
        return self.exchanges[self.member_of(user)].speak()

    def receive(self, message: Message) -> list[Message]:
        """Take a message from the coordinator to one of the models, and say what to send."""
        if message.member not in self.exchanges:
            raise FedbanditError(f"Client {message.member} is no model of this server.")
        return self.exchanges[message.member].receive(message)


class MemberServer(ExchangingServer):
    """A server each of whose users has a model of its own, and is a member: what `ClientMachine` is for one user.

    >>> import fedbandit as fb, numpy as np
    >>> world = fb.World(n_clients=3, dim=2, horizon=100)
    >>> server = MemberServer(np.arange(3), fb.async_linucb().told(world), world)
    >>> [message.member for message in server.observe(server.select(1, np.eye(2)).number, reward=1.0)]
    [1]
    """

    def __init__(self, users: Ints, system: System, world: World, seed: int = 0, **kept: Unpack[Kept]) -> None:
        super().__init__(users, system, world, seed, **kept)
        self._explorer = system.explorer.told(world)
        self._explores_again = partial(system.structure.explores_again, world)
        source, sharing = kept.get("source"), system.sharing(world)
        drawn = None if source is None else (lambda _: source)
        self.exchanges = {}
        for i in self.users:
            self.exchanges[i] = Exchange(i, system.model(world, i), system, world, seed, source=drawn)
            start_with(self.exchanges[i], sharing)

    def member_of(self, user: int) -> int:
        """The user."""
        return user

    def chooser_of(self, user: int) -> Policy:
        """The explorer while the user explores."""
        explores = self.exchanges[user].exploring or self._explores_again(self._steps.get(user, 0))
        return self._explorer if explores else self._policy

    def state(self) -> State:
        """Also exchanges."""
        parts = {f"now.{i}": exchange.state() for i, exchange in self.exchanges.items()}
        return joined({}, {"server": super().state(), **parts})

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        parts = parts_of(state)
        super().restore(parts["server"])
        for i, exchange in self.exchanges.items():
            exchange.restore(parts[f"now.{i}"])


class ClusterServer(ExchangingServer):
    """A server each of whose local clusters exchanges statistics like a client.

    Whenever local clusters are found anew they have noise streams of their own, numbered by `generation` (FCLUB builds
    its trees anew with every clustering).

    Between its report and the renewal a server goes on with the clusters it has; what is observed then, those that it
    has reported observe too. A simulation has no time in between, a network has.
    """

    def __init__(
        self, server: int, users: Ints, system: System, world: World, seed: int = 0, **kept: Unpack[Kept]
    ) -> None:
        super().__init__(users, system, world, seed, **kept)
        assert isinstance(system.structure, FederatedClustering)
        self.server, self._structure = server, system.structure
        self.serving = self._structure.local_clusters(system.as_seen(world), users, system.ridge)
        self.generation = self.used = 1  # clusterings so far, and the one that is in use
        self._system, self._world, self._seed = system, world, seed
        self.exchanges = self._new_exchanges(self.serving.sums())
        self.homes = self._found()
        """The local cluster in use of each user."""
        self._next: dict[int, Exchange] = {}  # of local clusters that were reported, until the renewal comes

    def _found(self) -> dict[int, int]:
        return {user: group[0] for group in self.serving.groups() for user in group}

    def _new_exchanges(self, clusters: Mapping[int, Sums]) -> dict[int, Exchange]:
        """An exchange for each local cluster, all of whose observations have been sent."""
        return {r: self._exchange(r, self.generation, sums) for r, sums in clusters.items()}

    def _exchange(self, r: int, generation: int, sent: Sums | None = None) -> Exchange:
        system, world, secure = self._system, self._world, self._source
        model = self._structure.model(world, r, system.ridge)
        if sent is not None and sent.n > 0:
            model.observe_sums(sent)
            model.mark_sent()
        simulated = partial(generator, self._seed, Purpose.NOISE, r, generation)
        return Exchange(r, model, system, world, self._seed, source=simulated if secure is None else lambda _: secure)

    def member_of(self, user: int) -> int:
        """The user's local cluster."""
        return self.homes[user]

    def learn(self, user: int, x: Array, y: float) -> None:
        """Learn, in the local cluster and by itself."""
        super().learn(user, x, y)
        self.serving.observe(user, x, y)
        if self._next:
            self._next[self.serving.cluster_of(user)].model.observe(x, y)

    def begin_phase(self, generation: int | None = None) -> Report:
        """Find local clusters anew, and report all that was observed in each; by default as the next generation."""
        self.serving.regroup()
        self.generation = self.generation + 1 if generation is None else generation
        clusters = self.serving.sums()
        self._next = self._new_exchanges(clusters)
        for r, exchange in self._next.items():
            if exchange.stream is not None and clusters[r].n > 0:
                clusters[r] = exchange.stream.release(clusters[r])
        return Report(self.server, self.generation, clusters)

    def renew(self, renewal: Renewal) -> None:
        """Begin anew, with what the coordinator sends; or go on, if nothing has changed."""
        if renewal.downloads:
            self.exchanges, self.used, self.homes = self._next, self.generation, self._found()
            for download in renewal.downloads:
                self.receive(download)
        self._next = {}

    def state(self) -> State:
        """Also users' statistics and exchanges."""
        parts = {"server": super().state(), "users": self.serving.state()}
        parts |= {f"now.{r}": exchange.state() for r, exchange in self.exchanges.items()}
        parts |= {f"next.{r}": exchange.state() for r, exchange in self._next.items()}
        generations = {"generation": self.generation, "used": self.used}
        return joined({**generations, "now": list(self.exchanges), "next": list(self._next)}, parts)

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        parts, header = parts_of(state), state.header
        super().restore(parts["server"])
        self.serving.restore(parts["users"])
        self.generation, self.used = header["generation"], header["used"]
        self.exchanges = {r: self._exchange(r, self.used) for r in header["now"]}
        self._next = {r: self._exchange(r, self.generation) for r in header["next"]}
        for name, exchanges in (("now", self.exchanges), ("next", self._next)):
            for r, exchange in exchanges.items():
                exchange.restore(parts[f"{name}.{r}"])
        self.homes = self._found()


class ClusterServers(AllServers[ClusterServer]):
    """All servers of a system with local clusters, and their coordinator; messages are carried at once."""

    def __init__(self, system: System, world: World, seed: int = 0, *, waiting: int = 10_000) -> None:
        super().__init__(system, world, seed, waiting=waiting)
        self.coordinator = ClusterCoordinator(self.system, world)
        self._groups = self._found()

    def make(self, server: int, users: Ints, waiting: int) -> ClusterServer:
        """The machine of a server."""
        return ClusterServer(server, users, self.system, self.world, self.seed, waiting=waiting)

    def observe(self, user: int, choice: int, reward: float) -> None:
        """Learn the reward of one of the user's choices, and carry what is said then."""
        queue = deque(self.servers[self.server_of[user]].observe(choice, reward))
        while queue:
            message = queue.popleft()
            self._count(message)
            for answer in self.coordinator.receive(message):
                self._count(answer)
                queue.extend(self.servers[self.server_of[answer.member]].receive(answer))

    def _count(self, message: Message) -> None:
        match message:
            case Upload():
                self.uploads += 1
                self.sent_by[message.member] += 1
            case Download():
                self.downloads += 1
                self.received_by[message.member] += 1
            case Request() | Collect() | Threshold():
                self.control_messages += 1

    def next_wake(self, done: int) -> int:
        """After how many rounds the next phase begins, if `done` are over."""
        return self.coordinator.next_phase(done)

    def end_round(self, done: int) -> None:
        """Begin a phase, unless all is over."""
        if done * self.world.per_round >= self.world.horizon:
            return
        reports = [server.begin_phase() for server in self.servers]
        for report in reports:
            self.uploads += len(report.clusters)
            self.sent_by.update(report.clusters.keys())
        for report in reports:
            for renewal in self.coordinator.receive_report(report):
                for download in renewal.downloads:
                    self._count(download)
                self.servers[renewal.server].renew(renewal)
        self._groups = self._found()

    def groups(self) -> list[list[int]]:
        """The global clusters of users."""
        return self._groups

    def groups_at_end(self) -> list[list[int]]:
        """The same."""
        return self._groups

    def _found(self) -> list[list[int]]:
        local = {group[0]: group for server in self.servers for group in server.serving.groups()}
        return sorted(sorted(i for r in merged for i in local[r]) for merged in self.coordinator.groups())

    def tally(self) -> Tally:
        """Where all observations are."""
        exchanges = [exchange for server in self.servers for exchange in server.exchanges.values()]
        observed = sum(server.observed for server in self.servers)
        pending = sum(exchange.model.n_pending for exchange in exchanges)
        return Tally(observed, self.coordinator.within.gathered().n, pending)

    def streams(self) -> dict[int, Releases]:
        """What noises the releases of each local cluster that has a mechanism."""
        exchanges = {r: exchange for server in self.servers for r, exchange in server.exchanges.items()}
        return {r: stream for r in sorted(exchanges) if (stream := exchanges[r].stream) is not None}

    def exhausted(self) -> list[int]:
        """The local clusters whose budget is spent."""
        return sorted(r for server in self.servers for r, each in server.exchanges.items() if each.exhausted)

    def state(self) -> State:
        """All servers, and the coordinator."""
        return joined({}, {"servers": super().state(), "coordinator": self.coordinator.state()})

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        parts = parts_of(state)
        super().restore(parts["servers"])
        self.coordinator.restore(parts["coordinator"])
        self._groups = self._found()
