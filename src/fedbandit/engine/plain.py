"""The plain engine: machines in one process, joined by a link, interaction by interaction. It runs every system."""

from __future__ import annotations

from collections import Counter
from typing import Any, Protocol

import numpy as np

from fedbandit.engine.learner import Outcome, pull
from fedbandit.engine.ledger import Ledger, keep_books
from fedbandit.engine.partitions import Partitions
from fedbandit.engine.services import Services
from fedbandit.environments.block import Block, Environment, offered
from fedbandit.machines.client import Choice
from fedbandit.machines.cluster_server import ClusterServers
from fedbandit.machines.link import Link, Tally
from fedbandit.machines.local_server import LocalServers
from fedbandit.machines.peer import PeerLink
from fedbandit.model import Model
from fedbandit.privacy.privacy import Releases
from fedbandit.protocols import QueueCoordinator
from fedbandit.state import State, joined, parts_of
from fedbandit.structures import Clustering
from fedbandit.system import System
from fedbandit.types import Array, Ints
from fedbandit.world import World


class Machines(Protocol):
    """All machines of a system in one process: clients and coordinator, peers, or local servers."""

    uploads: int
    downloads: int
    control_messages: int
    sent_by: Counter[int]
    received_by: Counter[int]

    @property
    def clipped(self) -> int:
        """Rewards that were outside the range for which privacy is claimed."""
        ...

    def select(self, i: int, arms: Array) -> Choice:
        """Choose one of the arms for user i."""
        ...

    def observe(self, i: int, choice: int, reward: float) -> None:
        """Learn the reward of one of user i's choices; what is said then is carried at once."""
        ...

    def next_wake(self, done: int) -> int:
        """After how many rounds `end_round` has something to do next, if `done` are over."""
        ...

    def end_round(self, done: int) -> None:
        """Do what is due after `done` rounds."""
        ...

    def model_of(self, i: int) -> Model | None:
        """What arms of user i are scored with; None before it has acted."""
        ...

    def groups(self) -> list[list[int]] | None:
        """Who learns together, the same object while nothing changes; None if that is not found while running."""
        ...

    def groups_at_end(self) -> list[list[int]] | None:
        """Who learns together when everything is over; it may take long to find out."""
        ...

    def tally(self) -> Tally | None:
        """Where all observations are, if any are sent anywhere."""
        ...

    def streams(self) -> dict[int, Releases]:
        """What noises releases, by client."""
        ...

    def exhausted(self) -> list[int]:
        """The clients whose budget is spent."""
        ...

    def state(self) -> State:
        """All machines."""
        ...

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        ...


def make_machines(system: System, world: World, seed: int, waiting: int) -> Machines:
    """The machines of a system that was told the world."""
    if system.protocol.says == "gossip":
        return PeerLink(system, world, seed, waiting=waiting)
    if system.structure.separate:
        return Link(system, world, seed, waiting=waiting)
    clustered = isinstance(system.structure, Clustering) and system.structure.federated
    kind = ClusterServers if clustered else LocalServers
    return kind(system, world, seed, waiting=waiting)


class PlainLearner:
    """The machines that a simulation drives, and rewards that are under way."""

    def __init__(self, system: System, env: Environment, world: World, seed: int) -> None:
        self.dim = system.structure.shared_dim(world)
        self.private = system.guarantee.basis != "none"
        waiting = min(env.longest_delay, world.horizon) + 1
        self.machines = make_machines(system, world, seed, waiting)
        if isinstance(self.machines, Link):
            self.machines.absent = env.absent
        self.per_round = world.per_round
        self._late: dict[int, list[tuple[int, int, float]]] = {}  # due → user, choice, reward, as they were made
        self._found: Partitions | None = None
        self._groups: list[list[int]] | None = None
        self._done = 0  # rounds
        machine = self.machines.coordinator if isinstance(self.machines, Link) else None
        self._server = machine if isinstance(machine, QueueCoordinator) else None
        self.services = None if self._server is None else Services()
        self._note_groups(0)

    @property
    def clusters(self) -> Partitions | None:
        """Who was together, over time; of some structures, only in the end."""
        if self._found is None and (groups := self.machines.groups_at_end()) is not None:
            found = Partitions()
            found.record_clusters(self._done, groups)
            return found
        return self._found

    @property
    def blocks(self) -> Ints | None:
        """With a θ for each action, or a window: how many blocks uploads, and downloads, had in all."""
        return self.machines.blocks if isinstance(self.machines, Link) and self.machines.in_blocks else None

    @property
    def control_messages(self) -> int:
        """Messages that carried no statistics."""
        return self.machines.control_messages

    @property
    def by_client(self) -> tuple[Counter[int], Counter[int]]:
        """Messages from and to each client."""
        return self.machines.sent_by, self.machines.received_by

    def run(self, start: int, stop: int, before: int, block: Block, out: Outcome) -> int:
        """Interactions start, …, stop − 1 of a block that `before` interactions precede, until somebody has spoken.

        What was said may have to be answered at the end of this round, so whoever keeps the time is asked again.
        """
        machines, delayed = self.machines, block.delays.size > 0
        for s in range(start, stop):
            now = before + s
            sent = self._sent()
            if isinstance(machines, Link):
                machines.now = now // self.per_round
            for user, choice, y in self._late.pop(now, ()):
                machines.observe(user, choice, y)
            user = int(block.clients[s])
            choice, a, _ = machines.select(user, offered(block, s))
            y = pull(block, s, a, out)
            if delayed and block.delays[s] > 0:
                self._late.setdefault(now + int(block.delays[s]), []).append((user, choice, y))
            else:
                machines.observe(user, choice, y)
            self._note_groups(now // self.per_round + 1)
            if self._sent() != sent:
                out.uploads[s] += machines.uploads - sent[0]
                out.downloads[s] += machines.downloads - sent[1]
                self._note_services(now // self.per_round + 1)
                return s + 1
        return stop

    def _sent(self) -> tuple[int, int, int]:
        """Messages so far."""
        machines = self.machines
        return machines.uploads, machines.downloads, machines.control_messages

    def next_wake(self, done: int) -> int:
        """After how many rounds `end_round` must be called next, if `done` are over."""
        return self.machines.next_wake(done)

    def end_round(self, done: int, out: Outcome, s: int) -> None:
        """Do what is due after `done` rounds; what is sent counts for interaction s of the block."""
        sent = self._sent()
        self.machines.end_round(done)
        out.uploads[s] += self.machines.uploads - sent[0]
        out.downloads[s] += self.machines.downloads - sent[1]
        self._note_groups(done)
        self._note_services(done)

    def _note_services(self, done: int) -> None:
        if self._server is not None and self.services is not None:
            self.services.look(self._server, done)

    def _note_groups(self, done: int) -> None:
        self._done = done
        groups = self.machines.groups()
        if groups is not self._groups:
            if groups is not None and groups != self._groups:
                self._found = self._found or Partitions()
                self._found.record_clusters(done, groups)
            self._groups = groups

    def ledger(self) -> Ledger | None:
        """What privacy has cost, if there is a privacy part."""
        if not self.private:
            return None
        return keep_books(self.machines.streams(), self.machines.exhausted(), self.machines.clipped)

    def state(self) -> State:
        """All machines, rewards under way, and who learnt together so far."""
        late = [(due, *entry) for due, entries in self._late.items() for entry in entries]
        arrays: dict[str, Any] = {"late": np.array(late, dtype=np.float64).reshape(-1, 4)}
        for kept in (self._found, self.services):
            arrays |= {} if kept is None else kept.arrays()
        parts = {"federation": self.machines.state(), "simulation": State({"done": self._done}, arrays)}
        return joined({}, parts)

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        parts = parts_of(state)
        self.machines.restore(parts["federation"])
        header, arrays = parts["simulation"]
        self._done, self._late = header["done"], {}
        for due, user, choice, y in arrays["late"].tolist():
            self._late.setdefault(int(due), []).append((int(user), int(choice), y))
        kinds = {name.partition(".")[0] for name in arrays}  # one array of a kind that is gone is an error below
        if "served" in kinds:
            self.services = Services.from_arrays(arrays)
        if "clusters" in kinds:
            self._found = Partitions.from_arrays(arrays)
            self._groups = self.machines.groups()
