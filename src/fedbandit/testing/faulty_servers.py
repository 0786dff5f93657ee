"""Local servers and coordinators that take over from one another, on a faulty network.

The oracle knows every observation of every user, in order. It compares both sides with it:

- What the coordinator has of a model (a local cluster, or a user that is a member) is what its users have observed up
  to some time: all of it once, nothing after it.
- With what is in the outbox and what is pending that is all that they have observed.
- What is sent again has the same bytes; numbers of messages and phases never fall.
- Noise is drawn once for each release, and each ledger counts that often; a reward's noise is drawn once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from fedbandit.forgetting import Forgetting
from fedbandit.machines.cluster_server import ClusterServer
from fedbandit.machines.servers_coordinator import ServersCoordinator
from fedbandit.messages import Upload, decode
from fedbandit.network.client.durable_server import DurableServer
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.rules import Rules
from fedbandit.network.envelope import unseal
from fedbandit.server_messages import FromServer
from fedbandit.sums import Form
from fedbandit.testing.crashing import CrashingStore
from fedbandit.testing.oracle import Node, Oracle
from fedbandit.testing.take_overs import TakeOvers
from fedbandit.types import Array


@dataclass
class Site(Node):
    """A local server, and the oracle's account of it."""

    live: DurableServer | None = None  # type: ignore[assignment]
    observations: list[tuple[int, Array, float]] = field(default_factory=list)
    """User, context and reward as it was perceived, of all that is not lost."""
    clusters: dict[int, dict[int, list[int]]] = field(default_factory=dict)
    """Phase in which it reported → the users of each model then."""
    called: int = 0
    drawn: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Generation and model → releases."""
    perceived: float = 0.0
    noised: bool = False
    """Whether its releases are."""


class ServerOracle(Oracle):
    """Knows all observations of all users; see above."""

    def note_sent(self, node: Node, frame: bytes) -> None:
        """A numbered message always has the bytes that it had before."""
        envelope, encoded = unseal(frame)
        message = decode(encoded)
        if isinstance(message, FromServer) and message.sequence > 0:
            identity = message.member, envelope.incarnation, message.sequence
            assert self._sent.setdefault(identity, encoded) == encoded, f"message {identity} of {node.name} changed"

    def note_uploads(self, node: Node) -> None:
        """A local server has done something: note what it has made, and the clusters that it has reported."""
        assert isinstance(node, Site)
        assert node.live is not None
        machine = node.live.machine
        assert machine.sequence >= node.sequence, f"{node.name} released less than before"
        assert machine.called >= node.called, f"{node.name} reported less than before"
        node.called = machine.called
        server = machine.server
        if isinstance(server, ClusterServer):
            node.clusters[machine.called] = {group[0]: group for group in server.serving.groups()}
        for number in range(node.sequence + 1, machine.sequence + 1):
            message = machine.outbox[number]
            generation = message.phase + 1 if isinstance(server, ClusterServer) else 0
            for upload in message.messages:
                assert isinstance(upload, Upload)
                node.drawn[generation, upload.member] += upload.sums.n > 0
        node.sequence = machine.sequence

    def note_applied(self, coordinator: Federation, node: Node, data: bytes) -> None:
        """`check` finds that by itself."""

    def check(self, coordinator: Federation, nodes: list[Node]) -> None:
        """Raise AssertionError unless both sides agree with this account."""
        machine = coordinator.machine
        assert isinstance(machine, ServersCoordinator)
        for node in nodes:
            assert isinstance(node, Site)
            _check_coordinator(machine, node)
            if node.live is not None:
                _check_server(machine, node, node.live)


def _users(machine: ServersCoordinator, node: Site) -> dict[int, list[int]]:
    """The users of each model that the coordinator knows of a server."""
    models = machine.models_of(node.member)
    if machine.phases is None:
        return {i: [i] for i in models}
    found = node.clusters[int(machine.begun[node.member])]
    assert sorted(found) == models, f"the coordinator has models {models} of {node.name}, which reported {found}"
    return found


def _check_coordinator(machine: ServersCoordinator, node: Site) -> None:
    kept = machine.inner.contributions
    assert kept is not None
    for r, users in _users(machine, node).items():
        V, b, n = kept.sums_of(r)
        observed = [(x, y) for user, x, y in node.observations if user in users]
        assert n <= len(observed), f"{n} observations of model {r} are known, but only {len(observed)} were made"
        if not node.noised:
            X = np.array([x for x, _ in observed[:n]]).reshape(n, len(b))
            np.testing.assert_allclose(V, X.T @ X, atol=1e-7, err_msg=f"model {r} of {node.name}")
            np.testing.assert_allclose(b, X.T @ np.array([y for _, y in observed[:n]]), atol=1e-7)


def _check_server(machine: ServersCoordinator, node: Site, live: DurableServer) -> None:
    server, kept = live.machine.server, machine.inner.contributions
    assert kept is not None
    assert server.observed == len(node.observations), f"{node.name} has {server.observed} observations"
    applied, begun = machine.applied.get(node.member, 0), int(machine.begun[node.member])
    assert applied <= live.machine.sequence
    assert min(live.machine.outbox, default=live.machine.sequence + 1) <= applied + 1, "acknowledged, but not applied"
    if live.machine.phase != begun:
        return  # the renewal is on its way
    waiting: Counter[int] = Counter()
    for number, message in live.machine.outbox.items():
        if number > applied and not message.report and message.phase == begun:
            waiting.update({u.member: u.sums.n for u in message.messages if isinstance(u, Upload)})
    generation = server.used if isinstance(server, ClusterServer) else 0
    for r, users in _users(machine, node).items():
        exchange = live.machine.exchanges[r]
        made = sum(user in users for user, _, _ in node.observations)
        found = int(kept.own.n[r]), waiting[r], exchange.model.n_pending
        assert sum(found) == made, f"model {r} of {node.name}: {found} applied, waiting and pending, of {made}"
        if exchange.stream is not None:
            released = node.drawn[generation, r]
            assert exchange.stream.spent == released, f"the ledger of {r} has {exchange.stream.spent}, not {released}"


class FaultyServers(TakeOvers):
    """A faulty network of local servers, and of coordinators that take over from one another."""

    rules = Rules()
    patience: ClassVar[int] = 10  # a report comes after all that is in the outbox
    called: ClassVar[str] = "server"

    def make_node(self, name: str, member: int) -> Site:
        """A local server."""
        return Site(name, member, CrashingStore())

    def make_oracle(self) -> ServerOracle:
        """That of local servers."""
        return ServerOracle(Form(self.agreement.world.dim), Forgetting())

    def open_node(self, node: Node) -> None:
        """Start a local server's process. Noise drawn anew would be other noise."""
        assert isinstance(node, Site)
        node.live = live = DurableServer(node.store, self.agreement, node.member, self.entropy, self.rng)
        node.noised = any(exchange.stream is not None for exchange in live.machine.exchanges.values())
        perceive = live.machine.server.perceive

        def noted(user: int, reward: float) -> float:
            node.perceived = perceive(user, reward)
            return node.perceived

        live.machine.server.perceive = noted  # type: ignore[method-assign]

    def act(self, node: Node) -> None:
        """A local server serves one of its users, and perhaps learns a reward."""
        assert isinstance(node, Site)
        if node.live is None:
            return
        arms = self.rng.uniform(-0.7, 0.7, (3, self.agreement.world.dim))
        node.waiting.append(node.live.select(self.random.choice(node.live.machine.server.users), arms).number)
        if self.random.random() < self.faults.silence:
            return
        choice = node.waiting.pop(self.random.randrange(len(node.waiting)))
        waiting = node.live.machine.server.waits_for(choice)
        if waiting is None:
            return  # a choice that a crash has lost
        (user, x), lost = waiting, node.store.crash == "before"
        mean = float(x[user % 2])  # users differ, so that there are clusters to find
        self._survive(node, lambda live: live.observe(choice, mean + float(self.rng.uniform(-0.1, 0.1))))
        if not lost:
            node.observations.append((user, x, node.perceived))
        self.oracle.note_uploads(node)
