"""Local servers and their coordinator without a network: every frame is carried at once. What tests ask of servers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

import fedbandit as fb
from fedbandit.machines.cluster_server import ClusterServer
from fedbandit.machines.servers_coordinator import ServersCoordinator
from fedbandit.messages import Message, decode, encode
from fedbandit.network.client.conversation import Conversation
from fedbandit.network.client.durable_server import DurableServer
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import MemoryStore


def answer(server: fb.LocalServer, what: str, *given: Any) -> Any:
    """What a local server answers to "select", "observe" or "status", as JSON can have it."""
    if what == "select":
        arm = server.select(*given)
        return [int(arm), arm.id]
    if what == "observe":
        server.observe(*given)
        return server.flush(60)
    node = server._durable.machine
    versions = {str(r): each.version for r, each in node.exchanges.items()}
    return [versions, [node.phase, node.settled], server.clusters]


class CarriedServers:
    """A federation of local servers in one process, each with its own store."""

    def __init__(self, agreement: Agreement, *, snapshot_every: int = 50) -> None:
        self.agreement, self.snapshot_every = agreement, snapshot_every
        self.store = MemoryStore()
        self.federation = self.open_federation()
        self.stores = [MemoryStore() for _ in range(agreement.places)]
        self.carried: Counter[str] = Counter()
        for k in range(agreement.places):
            self.federation.invite(f"server-{k}", 0.0)
        self.entropy = np.random.default_rng(0)
        self.nodes: list[DurableServer] = [self.open(k) for k in range(agreement.places)]
        self.talks = [Conversation(node) for node in self.nodes]
        for k in range(agreement.places):
            self.connect(k)

    def open_federation(self) -> Federation:
        return Federation("f", self.agreement, self.store, snapshot_every=self.snapshot_every)

    def open(self, k: int) -> DurableServer:
        entropy = lambda: int(self.entropy.integers(2**62))  # noqa: E731
        return DurableServer(self.stores[k], self.agreement, k, entropy, federation="f")

    def connect(self, k: int) -> None:
        """A new connection of server k."""
        self.talks[k] = Conversation(self.nodes[k])
        for frame in self.talks[k].begin():
            self.submit(k, frame)
        self.settle()

    def crash(self, k: int) -> None:
        """Server k is killed, and started again from its store."""
        self.nodes[k] = self.open(k)
        self.connect(k)

    def crash_coordinator(self) -> None:
        """The coordinator is killed and started again; rounds in which nothing happened are not lost here."""
        rounds = self.federation.rounds
        self.federation = self.open_federation()
        self.federation.rounds = rounds
        for k in range(len(self.nodes)):
            self.connect(k)

    def submit(self, k: int, frame: bytes) -> None:
        (outcome,) = self.federation.receive([(f"server-{k}", frame)], 0.0)
        if isinstance(outcome, Refusal):
            raise outcome
        self.push(outcome)

    def push(self, messages: list[Message]) -> None:
        for message in messages:
            self.carried[type(message).__name__] += 1
            self.talks[message.member].take(encode(message))
            assert decode(encode(message)).member == message.member

    def settle(self) -> None:
        """Carry everything until nobody has more to say."""
        while sum(self.say(k) for k in range(len(self.nodes))):
            pass

    def say(self, k: int) -> bool:
        frames = self.talks[k].next()
        for frame in frames:
            self.submit(k, frame)
        return bool(frames)

    def tick(self) -> None:
        self.push(self.federation.tick(0.0))
        self.settle()

    def observe(self, k: int, choice: int, reward: float) -> None:
        self.nodes[k].observe(choice, reward)
        self.settle()

    def groups(self) -> list[list[int]]:
        """The global clusters of users."""
        machine = self.federation.machine
        assert isinstance(machine, ServersCoordinator)
        if machine.phases is None:
            return machine.inner.sharing.groups()
        servers = [node.machine.server for node in self.nodes]
        local = {g[0]: g for server in servers if isinstance(server, ClusterServer) for g in server.serving.groups()}
        return sorted(sorted(i for r in merged for i in local[r]) for merged in machine.phases.groups())

    @property
    def uploads(self) -> int:
        return sum(record.uploads for record in self.federation.register.present)

    @property
    def downloads(self) -> int:
        return sum(record.downloads for record in self.federation.register.present)
