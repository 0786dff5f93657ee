"""A relay on a faulty network: clients below it, coordinators above it that take over from one another, other clients.

Two networks have one clock: that of the clients below, whose coordinator is the relay, and that of the coordinators
above, one of whose members is the relay. A crash of the relay is one on both. Each network has its oracle: what the one
below has seen applied, the one above has seen observed by the relay. Beside what they check:

- What is below is what the relay has made uploads of, and what is pending; each observation is in one of the two.
- The others are what a download had without the relay's own uploads that were in it.
- Where releases are noised, the coordinator above knows the variance of all that the relay has forwarded.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from fedbandit.machines.relay import Relaying
from fedbandit.messages import Message
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.rules import Rules, says_noise
from fedbandit.network.invitation import Agreement
from fedbandit.network.relay.durable import DurableRelay
from fedbandit.network.relay.federation import RelayFederation
from fedbandit.sharing import Others
from fedbandit.sums import Sums, add, without
from fedbandit.testing.crashing import Crash, CrashingStore
from fedbandit.testing.faulty import Faults, FaultyNetwork
from fedbandit.testing.oracle import Node, Oracle
from fedbandit.testing.take_overs import TakeOvers


@dataclass
class RelayNode(Node):
    """A relay, as the oracle above knows it: its observations are those that were applied below."""

    live: DurableRelay | None = None  # type: ignore[assignment]
    uploads: dict[int, Sums] = field(default_factory=dict)
    """All it has made."""


class Below(FaultyNetwork):
    """Clients of a relay."""

    coordinator: RelayFederation | None

    def __init__(self, above: RelayedNetwork, node: RelayNode, seed: int, faults: Faults, at_once: bool) -> None:
        self.above, self.node, self._at_once = above, node, at_once
        super().__init__(above.agreement, seed, faults)

    def make_store(self) -> CrashingStore:
        """The relay's."""
        return self.node.store

    def make_oracle(self) -> Oracle:
        """Tells the one above what the relay has observed."""
        oracle, count = super().make_oracle(), Oracle._count

        def noted(data: bytes) -> None:
            before = len(oracle.applied)
            count(oracle, data)
            for _ in range(len(oracle.applied) - before):
                self.above.oracle.note_observation(self.node)

        oracle._count = noted  # type: ignore[method-assign]
        return oracle

    def _federation(self) -> RelayFederation:
        while True:
            try:
                federation = RelayFederation(
                    *("f", self.agreement, self.coordinator_store, self.node.member, self.entropy),
                    at_once=self._at_once,
                    patience=self.patience,
                    snapshot_every=20,
                    clock=lambda: float(self.time),
                )
            except Crash:
                self.crashes += 1
                continue
            federation.deliver = self._deliver
            return federation

    def _to_coordinator(self, node: Node, frame: bytes) -> None:
        super()._to_coordinator(node, frame)
        self.above.follow()

    def tick(self) -> None:
        """The time of a round has passed."""
        super().tick()
        self.above.follow()

    def restart_coordinator(self) -> None:
        """The relay comes back from its store, and may have something to say at once."""
        super().restart_coordinator()
        self.above.follow()

    def _deliver(self, messages: list[Message]) -> None:
        for message in messages:
            self._answer(message, "")


class RelayOracle(Oracle):
    """Also knows relays."""

    below: Below

    def note_uploads(self, node: Node) -> None:
        """If an upload was made, note what is in it."""
        before = node.sequence
        super().note_uploads(node)
        if isinstance(node, RelayNode) and node.sequence > before:
            assert node.live is not None
            node.uploads[node.sequence] = node.live.machine.outbox[node.sequence].sums

    def check(self, coordinator: Federation, nodes: list[Node]) -> None:
        """Raise AssertionError unless all three sides agree with this account."""
        super().check(coordinator, [node for node in nodes if not isinstance(node, RelayNode)])
        for node in nodes:
            if isinstance(node, RelayNode) and node.live is not None:
                assert self.below.coordinator is not None
                _check_relay(coordinator, node, node.live, self.below.coordinator.relaying)


def _check_relay(above: Federation, node: RelayNode, live: DurableRelay, below: Relaying) -> None:
    machine, record = live.machine, above.register.record(node.name)
    applied = above.machine.applied.get(node.member, 0)
    outbox = sum(upload.sums.n for n, upload in machine.outbox.items() if n > applied)
    found = record.observations, outbox, below.pending.n
    assert sum(found) == below.below.n == node.observed, f"{found} applied, waiting and pending, of {node.observed}"
    assert applied <= machine.sequence == below.forwarded
    assert min(machine.outbox, default=machine.sequence + 1) <= applied + 1, "acknowledged, but not applied"
    if applied == machine.sequence and record.joined:
        assert live.chain == record.chain, "the two sides remember different uploads"
    _assert_same(add(machine.sent, below.pending), below.below)
    if below.seen:
        download = node.downloads[below.seen]
        own = below.zero()
        for number, sums in node.uploads.items():
            own = add(own, sums) if number <= download.acknowledged else own
        apart = isinstance(below.sharing, Others)
        _assert_same(below.others, download.sums if apart else without(download.sums, own))
        node.downloads = {v: kept for v, kept in node.downloads.items() if v >= below.seen}
    if below.noise is not None and applied == machine.sequence and below.pending.n == 0 < below.below.n:
        np.testing.assert_allclose(above.machine.members.told[node.member], below.noise_below(), rtol=1e-9)


def _assert_same(one: Sums, other: Sums) -> None:
    assert one.n == other.n
    np.testing.assert_allclose(one.V, other.V, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(one.b, other.b, rtol=1e-7, atol=1e-7)


class RelayedNetwork(TakeOvers):
    """Coordinators that take over from one another, clients of theirs, and as the last member a relay with clients."""

    def __init__(
        self,
        agreement: Agreement,
        seed: int,
        faults: Faults | None = None,
        take_over: float = 0.01,
        *,
        at_once: bool = False,
    ) -> None:
        self._seed, self._at_once = seed, at_once
        self.below: Below | None = None
        noised = says_noise(agreement.build(), agreement.world)
        self.rules = Rules(relays=(f"{self.called}-{agreement.places - 1}",) if noised else ())
        super().__init__(agreement, seed, faults, take_over)

    @property
    def relay(self) -> RelayNode:
        """The relay."""
        node = self.nodes[f"{self.called}-{self.agreement.places - 1}"]
        assert isinstance(node, RelayNode)
        return node

    def make_oracle(self) -> Oracle:
        """One that knows relays."""
        assert self.coordinator is not None
        return RelayOracle(self.coordinator.machine.form, self.coordinator.machine.members.forgetting)

    def make_node(self, name: str, member: int) -> Node:
        """A client, or the relay."""
        is_relay = member == self.agreement.places - 1
        return RelayNode(name, member, CrashingStore()) if is_relay else super().make_node(name, member)

    def open_node(self, node: Node) -> None:
        """Start a client's process, or the relay's."""
        if not isinstance(node, RelayNode):
            super().open_node(node)
            return
        if self.below is None:
            faults = replace(self.faults, backup=0.0, restore=0.0)  # a relay's file is never an old one
            self.below = Below(self, node, self._seed + 1, faults, self._at_once)
            assert isinstance(self.oracle, RelayOracle)
            self.oracle.below = self.below
        else:
            self.below.time = max(self.below.time, self.time)
            self.below.restart_coordinator()
        assert self.below.coordinator is not None
        node.live = self.below.coordinator.node

    def step(self) -> None:
        """One thing happens, above or below."""
        assert self.below is not None
        if self.random.random() < 0.5:
            super().step()
            if self.relay.live is None:
                self.below.coordinator = None
        else:
            self.below.step()
            self.follow()

    def follow(self) -> None:
        """Something happened below: perhaps the relay is down, or is up again, or has something to say."""
        assert self.below is not None
        federation = self.below.coordinator
        self.relay.live = None if federation is None else federation.node
        if federation is not None:
            self.oracle.note_uploads(self.relay)

    def act(self, node: Node) -> None:
        """A client serves a user; a relay serves none."""
        if isinstance(node.live, DurableClient):
            super().act(node)

    def drain(self) -> None:
        """Heal everything, and let all go up, and then down."""
        below = self.below
        assert below is not None
        for _ in range(3):
            below.drain()
            self.follow()
            assert below.coordinator is not None
            below.coordinator.look(now=True)
            self.oracle.note_uploads(self.relay)
            super().drain()
        below.drain()

    def check(self) -> None:
        """Both networks."""
        super().check()
        assert self.below is not None
        self.below.check()
