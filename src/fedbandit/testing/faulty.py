"""A federation on a network that does all that networks do, in one process, seeded and replayable.

Messages are lost, repeated, overtaken, late, or cut off by partitions; clients and the coordinator crash between any
two steps, before or after a write to their store, and come back from it. Everything is drawn from one seed: a failure
is repeated by the seed that `FaultyNetwork` was made with. `check` compares both sides with a plain account of what
was observed and sent:

- every observation that the coordinator has applied, it has applied once;
- observed = applied + in the outbox + pending, for each client;
- an upload that is sent again has the same bytes;
- what a client shares with the coordinator is the download it has, and its own uploads on top;
- what a client believes acknowledged has been applied; its number of releases never falls;
- noise is drawn once for each observation that leaves, and the ledger counts each time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fedbandit.messages import Download, Message, Upload, decode, encode
from fedbandit.network.client.durable import Member
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.envelope import unseal
from fedbandit.network.invitation import Terms
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import MemoryStore
from fedbandit.state import pack
from fedbandit.sums import Sums

MOST_FLYING = 100
"""Messages under way at any time."""


class Crash(Exception):
    """The process ends here."""


class CrashingStore(MemoryStore):
    """A store whose process may end just before or just after the next write."""

    def __init__(self) -> None:
        super().__init__()
        self.fuse: Literal["", "before", "after"] = ""

    def append(self, journal: str, entries: object, *, durable: bool = True) -> None:
        """Add entries, or crash."""
        self._write(lambda: MemoryStore.append(self, journal, entries, durable=durable))  # type: ignore[arg-type]

    def replace(self, journal: str, snapshot: bytes, *, durable: bool = True) -> None:
        """Replace everything, or crash."""
        self._write(lambda: MemoryStore.replace(self, journal, snapshot, durable=durable))

    def _write(self, write: Callable[[], None]) -> None:
        fuse, self.fuse = self.fuse, ""
        if fuse == "before":
            raise Crash
        write()
        if fuse == "after":
            raise Crash


@dataclass(frozen=True)
class Faults:
    """How probable each fault is, in each step or for each message."""

    loss: float = 0.1
    duplication: float = 0.1
    crash: float = 0.02
    restart: float = 0.2
    partition: float = 0.01
    heal: float = 0.1
    late: int = 20
    """Messages arrive up to this many steps later, in any order."""
    silence: float = 0.1
    """How many rewards never come."""
    ticks: float = 0.05
    """How often the time of a round has passed."""


NONE = Faults(loss=0, duplication=0, crash=0, partition=0, late=0, silence=0)


@dataclass
class Node:
    """A client, and the harness's account of it."""

    name: str
    member: int
    store: CrashingStore
    live: Member | None = None
    waiting: list[int] = field(default_factory=list)
    observed: int = 0
    pending: list[int] = field(default_factory=list)
    """Numbers of the observations that are in no upload yet."""
    sequence: int = 0
    made: dict[int, bytes] = field(default_factory=dict)
    """Uploads that nobody has acknowledged yet."""
    downloads: dict[int, Download] = field(default_factory=dict)
    releases: int = 0
    """Uploads that carried something: noise was drawn for each of them once."""


class FaultyNetwork:
    """Clients and a coordinator. `step` lets one thing happen; `drain` heals everything and delivers all there is."""

    def __init__(self, terms: Terms, seed: int, faults: Faults | None = None) -> None:
        self.terms = terms
        self.faults = Faults() if faults is None else faults
        self.random = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.time = 0
        self.flying: list[tuple[int, str, str, bytes]] = []  # due, from, to, bytes
        self.cut: set[str] = set()
        self.coordinator_store = CrashingStore()
        self.coordinator: Federation | None = self._federation()
        self.nodes: dict[str, Node] = {}
        self.refusals = 0
        self.crashes = 0
        self._sent: dict[tuple[int, int, int], bytes] = {}
        self._observations = 0
        self._inside: dict[bytes, list[int]] = {}  # upload → numbers of its observations
        self._applied: set[int] = set()
        self._pool = [np.zeros((self.coordinator.dim, self.coordinator.dim)), np.zeros(self.coordinator.dim)]
        self._in_doubt: tuple[str, bytes] | None = None
        for i in range(terms.world.n_clients):
            name = f"client-{i}"
            seat = self.coordinator.invite(name, 0.0)
            self.nodes[name] = Node(name, seat.member, CrashingStore())
            self.restart(self.nodes[name])

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
            self._light_a_fuse(node)
        if node.live is None and draw() < faults.restart:
            self.restart(node)
        if self.coordinator is None and draw() < faults.restart:
            self.restart_coordinator()
        action = self.random.random()
        if action < 0.35:
            self.act(node)
        elif action < 0.5:
            self.say(node)
        elif action < 0.5 + faults.ticks:
            self.tick()
        else:
            self.deliver()

    def act(self, node: Node) -> None:
        """A client serves a user, and perhaps learns a reward."""
        if node.live is None:
            return
        dim = self.terms.world.dim
        arms = self.rng.standard_normal((3, dim))
        arms /= np.maximum(np.linalg.norm(arms, axis=1, keepdims=True), 1.0)
        node.waiting.append(node.live.select(arms).number)
        if self.random.random() >= self.faults.silence:
            choice = node.waiting.pop(self.random.randrange(len(node.waiting)))
            if node.live.machine.waits_for(choice) is None:
                return  # a choice that a crash has lost
            if node.store.fuse != "before":
                self.note_observation(node)
            self._survive(node, lambda live: live.observe(choice, float(self.rng.uniform(-1, 1))))
            self._account(node)

    def say(self, node: Node) -> None:
        """A client that is up says that it is there, and sends what it has to send."""
        if node.live is None:
            return
        greeting = node.live.greeting()
        assert greeting is not None
        self._send(node.name, "", greeting)
        self.speak(node)

    def speak(self, node: Node) -> None:
        """A client sends the first thing it has to send; now and then it does not wait for the answer to the first."""
        if node.live is not None:
            for frame in node.live.outgoing(self.random.choice((1, 1, 1, 3))):
                self._send(node.name, "", frame)

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
            self._to_coordinator(source, data)
        else:
            self._to_client(self.nodes[target], data)
        return True

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
                node.live = Member(node.store, self.terms, node.member, lambda: self.random.getrandbits(63))
            except Crash:
                self.crashes += 1
        self._account(node)

    def restart_coordinator(self) -> None:
        """The coordinator comes back from its store."""
        self.coordinator = self._federation()
        if self._in_doubt is not None:
            name, data = self._in_doubt
            self._in_doubt = None
            self._note_applied(name, data)

    def drain(self) -> None:
        """Heal everything, and let all that is to be said be said."""
        self.faults, self.cut = NONE, set()
        if self.coordinator is None:
            self.restart_coordinator()
        self.coordinator_store.fuse = ""
        for node in self.nodes.values():
            node.store.fuse = ""
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

    def _federation(self) -> Federation:
        return Federation("f", self.terms, self.coordinator_store, patience=3, snapshot_every=20)

    def _light_a_fuse(self, node: Node) -> None:
        how = self.random.choice(["now", "before", "after"])
        victim = self.random.random()
        if victim < 0.3:
            if how == "now":
                self.coordinator, self.crashes = None, self.crashes + 1
            else:
                self.coordinator_store.fuse = how  # type: ignore[assignment]
        elif how == "now":
            node.live, self.crashes = None, self.crashes + 1
        else:
            node.store.fuse = how  # type: ignore[assignment]

    def _survive(self, node: Node, do: Callable[[Member], None]) -> None:
        assert node.live is not None
        try:
            do(node.live)
        except Crash:
            node.live, self.crashes = None, self.crashes + 1
            self.restart(node)

    def _send(self, source: str, target: str, data: bytes) -> None:
        if target == "":
            envelope, encoded = unseal(data)
            message = decode(encoded)
            if isinstance(message, Upload):
                identity = message.member, envelope.incarnation, message.sequence
                if "'" not in source:
                    assert self._sent.setdefault(identity, encoded) == encoded, f"upload {identity} changed"
        if len(self.flying) >= MOST_FLYING:
            self.flying.pop(self.random.randrange(MOST_FLYING))  # a full queue is a loss too
        self.flying.append((self.time + self.random.randint(0, self.faults.late), source, target, data))

    def _to_coordinator(self, source: str, frame: bytes) -> None:
        if self.coordinator is None:
            return
        _, data = unseal(frame)
        looked = self.time % 10 == 0  # it takes longer than a step
        before = fingerprint(self.coordinator) if looked else b""
        try:
            (outcome,) = self.coordinator.receive([(source.partition("'")[0], frame)], float(self.time))
        except Crash:
            self.coordinator, self.crashes, self._in_doubt = None, self.crashes + 1, (source, data)
            return
        if isinstance(outcome, Refusal):
            self.refusals += 1
            after = fingerprint(self.coordinator) if looked else b""
            assert after == before, f"what was refused has changed something: {outcome}"
            return
        self._note_applied(source, data)
        for answer in outcome:
            self._answer(answer, source)

    def _answer(self, message: Message, source: str) -> None:
        assert self.coordinator is not None
        seat = self.coordinator.register.by_member[message.member]
        name = seat.name
        if source and self.nodes[source].member == message.member:
            name = source
        elif len(self.nodes) > self.terms.world.n_clients:  # there are copies: it goes to the one that is heard
            heard = [n.name for n in self.nodes.values() if n.live is not None and n.live.nonce == seat.nonce]
            if not heard:
                return
            name = heard[0]
        if isinstance(message, Download):
            self.nodes[name].downloads[message.version] = message
        self._send("", name, encode(message))

    def _to_client(self, node: Node, data: bytes) -> None:
        if node.live is not None:
            self._survive(node, lambda live: live.receive(decode(data)))
            self._account(node)
            self.speak(node)

    # The account

    def note_observation(self, node: Node) -> None:
        """A client is about to observe something that it will not lose."""
        node.observed += 1
        self._observations += 1
        node.pending.append(self._observations)

    def _account(self, node: Node) -> None:
        """If the client has made an upload, note which observations are in it."""
        assert node.live is not None
        machine = node.live.machine
        assert machine.sequence >= node.sequence, f"{node.name} released less than before"
        if machine.sequence > node.sequence:
            assert machine.sequence == node.sequence + 1
            node.sequence = machine.sequence
            upload = machine.outbox[machine.sequence]
            assert upload.sums.n == len(node.pending), f"{node.name} released {upload.sums.n}, not {len(node.pending)}"
            node.releases += upload.sums.n > 0
            node.made[machine.sequence] = encode(upload)
            self._inside[node.made[machine.sequence]] = node.pending
            node.pending = []
        for number in [number for number in node.made if number not in machine.outbox]:
            data = node.made.pop(number)
            assert data not in self._inside, f"upload {number} of {node.name} is acknowledged, but not applied"

    def _note_applied(self, name: str, data: bytes) -> None:
        """If the coordinator has applied this upload now, no observation in it may have been applied before."""
        assert self.coordinator is not None
        message = decode(data)
        if data not in self._inside or not isinstance(message, Upload):
            return
        seat = self.coordinator.register.seat(name.partition("'")[0])
        if self.coordinator.machine.applied.get(seat.member, 0) < message.sequence:
            return
        numbers = self._inside.pop(data)
        twice = self._applied.intersection(numbers)
        assert not twice, f"observations {sorted(twice)} were applied twice"
        self._applied.update(numbers)
        self._pool[0] += message.sums.V
        self._pool[1] += message.sums.b

    def check(self) -> None:
        """Raise AssertionError unless both sides agree with the account."""
        if self.coordinator is None:
            return
        machine = self.coordinator.machine
        V, b, n = machine.gathered()
        assert n == len(self._applied), f"{n} observations applied, expected {len(self._applied)}"
        np.testing.assert_allclose(V, self._pool[0], rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(b, self._pool[1], rtol=1e-7, atol=1e-7)
        for node in self.nodes.values():
            if node.live is not None and "'" not in node.name:
                self._check_client(node, node.live, machine.applied.get(node.member, 0))

    def _check_client(self, node: Node, live: Member, applied: int) -> None:
        assert self.coordinator is not None
        machine, dim = live.machine, live.machine.dim
        seat = self.coordinator.register.seat(node.name)
        outbox = sum(upload.sums.n for n, upload in machine.outbox.items() if n > applied)
        assert machine.observed == node.observed, f"{node.name} has {machine.observed}, made {node.observed}"
        found = seat.observations + outbox + machine.pending
        assert found == node.observed, f"{node.name}: {seat.observations} applied + {outbox} + {machine.pending}"
        assert applied <= machine.sequence
        assert min(machine.outbox, default=machine.sequence + 1) <= applied + 1, "acknowledged, but not applied"
        if applied == machine.sequence and seat.joined:
            assert live.chain == seat.chain, "the two sides remember different uploads"
        if machine.stream is not None:
            assert machine.stream.spent == node.releases, f"the ledger of {node.name} has {machine.stream.spent}"
            return  # its model mixes what it was sent with its own data, which are exact
        common, version = machine.model.in_common(), machine.version
        parts = [upload.sums for upload in machine._on_top.values()]
        if version:
            parts.append(node.downloads[version].sums)
            node.downloads = {v: download for v, download in node.downloads.items() if v >= version}
        V = sum((sums.V for sums in parts), np.zeros((dim, dim)))
        b = sum((sums.b for sums in parts), np.zeros(dim))
        np.testing.assert_allclose(common.V, V, rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(common.b, b, rtol=1e-7, atol=1e-7)
        assert common.n == sum(sums.n for sums in parts)


def fingerprint(federation: Federation) -> bytes:
    """All that a refusal must not change: the machine and the register, but for the count of refusals."""
    state = federation.state()
    for seat in state.header["seats"]:
        seat["refusals"] = 0
    return pack(state)


def copied(network: FaultyNetwork, node: Node) -> Node:
    """Somebody copies a client's file and starts a second client from it, under the same name."""
    store = CrashingStore()
    store.journals = node.store.copy().journals
    ghost = Node(f"{node.name}'{network.time}", node.member, store, pending=list(node.pending), sequence=node.sequence)
    ghost.observed, ghost.made, ghost.releases = node.observed, dict(node.made), node.releases
    network.nodes[ghost.name] = ghost
    network.restart(ghost)
    return ghost


__all__ = ["NONE", "Crash", "CrashingStore", "Faults", "FaultyNetwork", "Node", "Sums", "copied", "fingerprint"]
