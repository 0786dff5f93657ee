"""A federation on a faulty network, in one process, seeded and replayable.

Messages are lost, repeated, reordered, delayed, or cut off by partitions; clients and the coordinator crash between any
two steps, before or after a write to their store, and recover from it; the coordinator may lose its store and go on
from a backup. Everything is drawn from one seed: a failure is
repeated by the seed that `FaultyNetwork` was made with. `check` compares both sides with an independent account
(`oracle.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit.messages import Download, Message, decode, encode
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.rules import Rules
from fedbandit.network.envelope import Frame, unseal
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.state import pack
from fedbandit.testing.crashing import Crash, CrashingStore
from fedbandit.testing.oracle import Node, Oracle

MOST_FLYING = 100
"""Messages under way at any time."""


@dataclass(frozen=True)
class Faults:
    """How probable each fault is, in each step or for each message."""

    loss: float = 0.1
    duplication: float = 0.1
    crash: float = 0.02
    restart: float = 0.2
    partition: float = 0.01
    heal: float = 0.1
    delay: int = 20
    """Messages arrive up to this many steps later, in any order."""
    silence: float = 0.1
    """How many rewards never come."""
    acts: float = 0.35
    """How often a user is served."""
    ticks: float = 0.05
    """How often the time of a round has passed."""
    backup: float = 0.0
    """How often a backup of the coordinator's store is made."""
    restore: float = 0.0
    """How often the coordinator is stopped, and goes on from the last backup."""


NONE = Faults(loss=0, duplication=0, crash=0, partition=0, delay=0, silence=0)


class FaultyNetwork:
    """Clients and a coordinator. `step` lets one thing happen; `drain` heals everything and delivers all there is.

    Nodes of other kinds: a subclass says what `make_node` and `open_node` give, how they `act`, and which oracle knows.
    """

    rules = Rules()
    patience: ClassVar[int] = 3
    called: ClassVar[str] = "client"
    """What names of nodes begin with."""

    def __init__(self, agreement: Agreement, seed: int, faults: Faults | None = None, factors: bool = False) -> None:
        self.factors = factors
        self.agreement = agreement
        self.faults = Faults() if faults is None else faults
        self.random = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.time = 0
        self.flying: list[tuple[int, str, str, bytes]] = []  # due, from, to, bytes; the coordinator is ""
        self.cut: set[str] = set()
        self.coordinator_store = self.make_store()
        self.coordinator: Federation | None = self._federation()
        self.oracle = self.make_oracle()
        self.nodes: dict[str, Node] = {}
        self.refusals = 0
        self.crashes = 0
        self._in_doubt: tuple[Node, bytes] | None = None  # the message during which the coordinator crashed
        for i in range(agreement.places):
            name = f"{self.called}-{i}"
            record = self.coordinator.invite(name, 0.0)
            self.nodes[name] = self.make_node(name, record.member)
            self.restart(self.nodes[name])
        self.backup = self.coordinator_store.copy().journals
        self.restored = 0
        """How often: then the coordinator may lack uploads that it has acknowledged, until their clients state them."""

    # Things that can happen

    def step(self) -> None:
        """One thing happens, perhaps a fault."""
        self.time += 1
        draw, faults = self.random.random, self.faults
        node = self.random.choice(list(self.nodes.values()))
        if draw() < faults.partition:
            self.cut.add(node.name)
        if self.cut and draw() < faults.heal:
            self.cut.discard(self.random.choice(sorted(self.cut)))
        if draw() < faults.crash:
            self._plan_crash(node)
        if node.live is None and draw() < faults.restart:
            self.restart(node)
        if self.coordinator is None and draw() < faults.restart:
            self.restart_coordinator()
        if faults.backup and draw() < faults.backup:
            self.backup = self.coordinator_store.copy().journals
        if faults.restore and draw() < faults.restore:
            self.restore_backup()
        action = self.random.random()
        spoken = faults.acts + 0.15
        if action < faults.acts:
            self.act(node)
        elif action < spoken:
            self.say(node)
        elif action < spoken + faults.ticks:
            self.tick()
        elif action < spoken + faults.ticks + 0.01:
            self.compact(node)
        else:
            self.deliver()

    def act(self, node: Node) -> None:
        """A client serves a user, and perhaps learns a reward."""
        if node.live is None:
            return
        dim = self.agreement.world.dim
        arms = self.rng.standard_normal((3, dim))
        arms /= np.maximum(np.linalg.norm(arms, axis=1, keepdims=True), 1.0)
        node.waiting.append(node.live.select(arms).number)
        if self.random.random() >= self.faults.silence:
            choice = node.waiting.pop(self.random.randrange(len(node.waiting)))
            if node.live.machine.waits_for(choice) is None:
                return  # a choice that a crash has lost
            if node.store.crash != "before":
                self.oracle.note_observation(node)
            self._survive(node, lambda live: live.observe(choice, float(self.rng.uniform(-1, 1))))
            self.oracle.note_uploads(node)

    def say(self, node: Node) -> None:
        """A client that is up sends its greeting, and what it has to send."""
        if node.live is None:
            return
        greeting = node.live.greeting()
        assert greeting is not None
        self._send(node.name, "", greeting)
        self.speak(node)

    def speak(self, node: Node) -> None:
        """A client sends the first thing it has to send; now and then it does not wait for the answer to the first."""
        if node.live is not None:
            frames: list[Frame] = []
            most = self.random.choice((1, 1, 1, 3))
            self._survive(node, lambda live: frames.extend(live.outgoing(most)))
            self.oracle.note_uploads(node)
            for frame in frames:
                self._send(node.name, "", frame.data)

    def deliver(self) -> bool:
        """One of the messages that are due arrives; False if there is none."""
        due = [k for k, (when, *_) in enumerate(self.flying) if when <= self.time]
        if not due:
            return False
        k = self.random.choice(due)
        _, source, target, data = self.flying[k]
        if self.random.random() >= self.faults.duplication:
            self.flying.pop(k)
        if source in self.cut or target in self.cut or self.random.random() < self.faults.loss:
            return True
        if target == "":
            self._to_coordinator(self.nodes[source], data)
        else:
            self._to_client(self.nodes[target], data)
        return True

    def compact(self, node: Node) -> None:
        """A client writes a snapshot."""
        if node.live is not None:
            self._survive(node, lambda live: live.journal.replace(durable=False))
            self.oracle.note_uploads(node)

    def tick(self) -> None:
        """The time of a round has passed."""
        if self.coordinator is None:
            return
        try:
            messages = self.coordinator.tick(float(self.time))
        except Crash:
            self.coordinator, self.crashes = None, self.crashes + 1
            return
        for message in messages:
            self._answer(message, "")

    def restart(self, node: Node) -> None:
        """A client comes back from its store."""
        while node.live is None:
            try:
                self.open_node(node)
            except Crash:
                self.crashes += 1
        self.oracle.note_uploads(node)

    def open_node(self, node: Node) -> None:
        """Start a client's process, from its store."""
        clock = lambda: float(self.time)  # noqa: E731
        node.live = DurableClient(node.store, self.agreement, node.member, self.entropy, clock=clock)
        node.live.machine.factors = self.factors

    def entropy(self) -> int:
        """Random bits, as the operating system would give them."""
        return self.random.getrandbits(63)

    def restart_coordinator(self) -> None:
        """The coordinator comes back from its store."""
        self.coordinator = self._federation()
        if self._in_doubt is not None:
            node, data = self._in_doubt
            self._in_doubt = None
            self.oracle.note_applied(self.coordinator, node, data)

    def restore_backup(self) -> None:
        """The coordinator's store is lost, and the last backup put in its place."""
        self.coordinator_store.journals = {name: (state, list(rest)) for name, (state, rest) in self.backup.items()}
        self.coordinator_store.crash, self._in_doubt, self.restored = "", None, self.restored + 1
        self.coordinator = self._federation()

    def drain(self) -> None:
        """Heal everything, and let all messages be sent."""
        self.faults, self.cut = NONE, set()
        if self.coordinator is None:
            self.restart_coordinator()
        self.coordinator_store.crash = ""
        for node in self.nodes.values():
            node.store.crash = ""
            self.restart(node)
        for _ in range(100):
            for node in self.nodes.values():
                self.say(node)
            self.time += 1000
            while self.deliver():
                pass
            self.tick()
            open_ends = [node for node in self.nodes.values() if node.live is not None and node.live.machine.outbox]
            if not open_ends and self.coordinator is not None and not self.coordinator.machine.awaits():
                return

    # How

    def make_store(self) -> CrashingStore:
        """The coordinator's."""
        return CrashingStore()

    def make_node(self, name: str, member: int) -> Node:
        """A machine that has joined nothing yet."""
        return Node(name, member, CrashingStore())

    def make_oracle(self) -> Oracle:
        """Whoever knows what should be."""
        assert self.coordinator is not None
        return Oracle(self.coordinator.machine.form, self.coordinator.machine.members.forgetting)

    def _federation(self) -> Federation:
        store, patience = self.coordinator_store, self.patience
        return Federation("f", self.agreement, store, patience, snapshot_every=20, rules=self.rules)

    def _plan_crash(self, node: Node) -> None:
        how = self.random.choice(["now", "before", "after"])
        victim = self.random.random()
        if victim < 0.3:
            if how == "now":
                self.coordinator, self.crashes = None, self.crashes + 1
            else:
                self.coordinator_store.crash = how  # type: ignore[assignment]
        elif how == "now":
            node.live, self.crashes = None, self.crashes + 1
        else:
            node.store.crash = how  # type: ignore[assignment]

    def _survive(self, node: Node, do: Callable[[DurableClient], None]) -> None:
        assert node.live is not None
        try:
            do(node.live)
        except Crash:
            node.live, self.crashes = None, self.crashes + 1
            self.restart(node)

    def _send(self, source: str, target: str, data: bytes) -> None:
        if target == "":
            self.oracle.note_sent(self.nodes[source], data)
        if len(self.flying) >= MOST_FLYING:
            self.flying.pop(self.random.randrange(MOST_FLYING))  # a full queue is a loss too
        self.flying.append((self.time + self.random.randint(0, self.faults.delay), source, target, data))

    def _to_coordinator(self, node: Node, frame: bytes) -> None:
        if self.coordinator is None:
            return
        _, data = unseal(frame)
        looked = self.time % 10 == 0  # a fingerprint takes longer than a step
        before = fingerprint(self.coordinator) if looked else b""
        try:
            (outcome,) = self.coordinator.receive([(node.client, frame)], float(self.time))
        except Crash:
            self.coordinator, self.crashes, self._in_doubt = None, self.crashes + 1, (node, data)
            return
        if isinstance(outcome, Refusal):
            self.refusals += 1
            after = fingerprint(self.coordinator) if looked else b""
            assert after == before, f"what was refused has changed something: {outcome}"
            return
        self.oracle.note_applied(self.coordinator, node, data)
        for answer in outcome:
            self._answer(answer, node.name)

    def _answer(self, message: Message, source: str) -> None:
        assert self.coordinator is not None
        record = self.coordinator.register.by_number[message.member]
        name = record.name
        if source and self.nodes[source].member == message.member:
            name = source
        elif len(self.nodes) > self.agreement.places:  # there are copies: it goes to the current session
            current = [n.name for n in self.nodes.values() if n.live is not None and n.live.nonce == record.nonce]
            if not current:
                return
            name = current[0]
        if isinstance(message, Download):
            self.nodes[name].downloads[message.version] = message
        self._send("", name, encode(message))

    def _to_client(self, node: Node, data: bytes) -> None:
        if node.live is not None:
            self._survive(node, lambda live: live.receive(decode(data)))
            self.oracle.note_uploads(node)
            self.speak(node)

    def check(self) -> None:
        """Raise AssertionError unless both sides agree with the oracle; one that was restored may lack uploads."""
        if self.coordinator is not None and not self.restored:
            self.oracle.check(self.coordinator, list(self.nodes.values()))

    def check_all(self) -> None:
        """After `drain`, restored or not: the coordinator has what all uploads that were ever made amount to, once."""
        assert self.coordinator is not None
        V, b, n = self.coordinator.machine.gathered()
        made = self.oracle.made.at(self.coordinator.machine.members.round)
        assert n == made.n == sum(node.observed - len(node.pending) for node in self.nodes.values())
        np.testing.assert_allclose(V, made.V, rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(b, made.b, rtol=1e-7, atol=1e-7)


def fingerprint(federation: Federation) -> bytes:
    """All that a refusal must not change: the machine and the register, but for refusals and releases seen."""
    state = federation.state()
    for record in state.header["members"]:
        record["refusals"], record["past"] = 0, []
    return pack("coordinator", state)


def copied(network: FaultyNetwork, node: Node) -> Node:
    """A client's file is copied, and a second client started from the copy, under the same name."""
    store = CrashingStore()
    store.journals = node.store.copy().journals
    copy = Node(f"{node.name}'{network.time}", node.member, store, pending=list(node.pending), sequence=node.sequence)
    copy.observed, copy.made, copy.releases = node.observed, dict(node.made), node.releases
    network.nodes[copy.name] = copy
    network.restart(copy)
    return copy
