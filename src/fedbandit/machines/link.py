"""Clients and their coordinator in one process, joined by a link that delivers everything at once and in order."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from fedbandit.encoded_sums import count_blocks
from fedbandit.machines.client import Choice, ClientMachine
from fedbandit.machines.exchange import Exchange
from fedbandit.messages import (
    Collect,
    Contribution,
    Download,
    Join,
    Message,
    Request,
    Threshold,
    Upload,
    decode,
    encode,
)
from fedbandit.model import Model
from fedbandit.privacy.privacy import Releases
from fedbandit.privacy.published_total import PublishedTotal
from fedbandit.sharing import NEVER
from fedbandit.state import State, joined, parts_of
from fedbandit.streams import Purpose, generator
from fedbandit.sums import Sums
from fedbandit.system import System
from fedbandit.types import Array, Ints
from fedbandit.world import World


class Tally(NamedTuple):
    """Where observations are: what was observed is applied at the coordinator, or told to peers, or pending."""

    observed: int
    applied: int
    pending: int


Client = TypeVar("Client", bound=Exchange)


class Carrier(Generic[Client]):
    """What carries messages between clients, made when they are first needed, and their coordinator, if there is one.

    `uploads`, `downloads` and `control_messages` count what was carried so far; joining and receipts are not counted,
    nor is what stays in the house (`Structure.counted`). With `encoded`, messages cross the link as bytes, as on a
    network: slower, and the same.
    """

    def __init__(self, system: System, world: World, seed: int = 0, *, encoded: bool = False) -> None:
        self.system = system.told(world)
        self.world = world
        self.seed = seed
        self.coordinator = self.system.coordinator(world, seed)
        self.clients: dict[int, Client] = {}
        self.uploads = self.downloads = self.control_messages = 0
        self.blocks: Ints = np.zeros(2, dtype=np.int64)
        """With a θ for each action, or a window: how many blocks uploads, and downloads, had in all."""
        self.in_blocks = world.actions > 0 or self.system.forgetting(world).slots > 0
        self._counted: tuple[Sums | None, int] = None, 0  # of the last download: many members are sent the same
        self.sent_by: Counter[int] = Counter()
        self.received_by: Counter[int] = Counter()
        self.start = self.system.sharing(world)
        """What clients begin with."""
        self.now = 0
        """The round, for models that forget."""
        self.absent = 0.0
        """The chance that a client is out of reach when it is called."""
        self._encoded = encoded
        self._joined: set[int] = set()
        if self.coordinator is not None and self.system.protocol.join == "member":
            for i in range(world.n_clients):
                self.greet(i)

    def make(self, i: int) -> Client:
        """Make client i."""
        raise NotImplementedError

    def client(self, i: int) -> Client:
        """Client i."""
        if i not in self.clients:
            self.clients[i] = self.make(i)
        return self.clients[i]

    def greet(self, i: int) -> None:
        """Client i acts for the first time: it joins."""
        if self.coordinator is not None and i not in self._joined:
            self._joined.add(i)
            self.say([Join(i, self.clients[i].version if i in self.clients else 0)])

    def say(self, messages: Iterable[Message]) -> None:
        """Carry messages of clients to the coordinator, its answers to the clients, and so on."""
        queue = deque(messages)
        while queue:
            message = self.carry(queue.popleft())
            if self.coordinator is not None:
                queue.extend(self.deliver(self.coordinator.receive(message)))

    def deliver(self, answers: list[Message]) -> list[Message]:
        """Carry the coordinator's messages; what clients say to them."""
        said: list[Message] = []
        absent: list[int] = []
        for answer in answers:
            received = self.carry(answer)
            if isinstance(received, Collect) and self._is_absent(received):
                absent.append(received.member)
                continue
            client = self.client(received.member)
            client.at(self.now)
            said += client.receive(received)
        if absent:  # whoever is there answers first
            self.say(said)
            assert self.coordinator is not None
            said = self.deliver(self.coordinator.excuse(absent))
        return said

    def _is_absent(self, call: Collect) -> bool:
        """Whether a client is out of reach when it is called, by a draw for each client and call."""
        return self.absent > 0 and bool(
            generator(self.seed, Purpose.ABSENCES, call.member, call.epoch).random() < self.absent
        )

    def carry(self, message: Message) -> Message:
        """One message, as it arrives."""
        counted = int(self.system.structure.counted)
        match message:
            case Upload() | Contribution():
                self.uploads += counted
                self.sent_by[message.member] += counted
            case Download():
                self.downloads += counted
                self.received_by[message.member] += counted
            case Request() | Collect() | Threshold():
                self.control_messages += 1
        if self.in_blocks and isinstance(message, Upload | Download):
            if self._counted[0] is not message.sums:
                self._counted = message.sums, count_blocks(message.sums)
            self.blocks[int(isinstance(message, Download))] += self._counted[1]
        return decode(encode(message)) if self._encoded else message

    def next_wake(self, done: int) -> int:
        """After how many rounds `end_round` has something to do next, if `done` are over."""
        return NEVER if self.coordinator is None else self.coordinator.next_wake(done)

    def end_round(self, done: int) -> None:
        """A round is over: let the coordinator do what it does between rounds."""
        if self.coordinator is not None:
            self.say(self.deliver(self.coordinator.end_round(done)))

    def groups(self) -> list[list[int]] | None:
        """Who shares with whom, if that is found while running."""
        if self.coordinator is None or not self.system.structure.by_member:
            return None
        return self.coordinator.sharing.groups()

    def groups_at_end(self) -> list[list[int]] | None:
        """As they are."""
        return self.groups()

    # Privacy

    def streams(self) -> dict[int, Releases]:
        """What noises the releases of each client that has a mechanism."""
        pool = None if self.coordinator is None else self.coordinator.pool
        total = None if pool is None else pool.total
        if isinstance(total, PublishedTotal):  # whose noise is for everybody
            return dict.fromkeys(sorted(self.clients), total.stream)
        return {i: client.stream for i, client in sorted(self.clients.items()) if client.stream is not None}

    def exhausted(self) -> list[int]:
        """The clients whose budget is spent."""
        return [i for i, client in sorted(self.clients.items()) if client.exhausted]

    # How it is kept

    def state(self) -> State:
        """All machines."""
        header = {
            "joined": sorted(self._joined),
            "counts": [self.uploads, self.downloads, self.control_messages],
            **({"blocks": self.blocks.tolist()} if self.in_blocks else {}),
            "clients": sorted(self.clients),
        }
        states = {f"client.{i}": client.state() for i, client in self.clients.items()}
        if self.coordinator is not None:
            states["coordinator"] = self.coordinator.state()
        return joined(header, states)

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        self._joined = set(state.header["joined"])
        self.uploads, self.downloads, self.control_messages = state.header["counts"]
        if self.in_blocks:
            self.blocks = np.array(state.header["blocks"], dtype=np.int64)
        parts = parts_of(state)
        self.clients = {}
        for i in state.header["clients"]:
            self.client(i).restore(parts[f"client.{i}"])
        if self.coordinator is not None:
            self.coordinator.restore(parts["coordinator"])


class Link(Carrier[ClientMachine]):
    """A federation of client machines and a coordinator."""

    def __init__(
        self, system: System, world: World, seed: int = 0, *, waiting: int = 10_000, encoded: bool = False
    ) -> None:
        self._waiting = waiting
        super().__init__(system, world, seed, encoded=encoded)

    def make(self, i: int) -> ClientMachine:
        """Make client i."""
        return ClientMachine(i, self.system, self.world, self.seed, self._waiting, sharing=self.start)

    def select(self, i: int, arms: Array) -> Choice:
        """Client i chooses one of the arms."""
        self.greet(i)
        self.client(i).at(self.now)
        return self.client(i).select(arms)

    def observe(self, i: int, choice: int, reward: float) -> None:
        """Client i learns the reward of a choice, and what it says is carried."""
        self.client(i).at(self.now)
        self.say(self.client(i).observe(choice, reward))

    def model_of(self, i: int) -> Model | None:
        """What arms of client i are scored with; None before it has acted."""
        return self.clients[i].model if i in self.clients else None

    def tally(self) -> Tally | None:
        """Where all observations are, if there is a coordinator."""
        if self.coordinator is None:
            return None
        clients = self.clients.values()
        observed, pending = sum(client.observed for client in clients), sum(client.pending for client in clients)
        return Tally(observed, self.coordinator.gathered().n, pending)

    @property
    def clipped(self) -> int:
        """Rewards that were outside the range for which privacy is claimed."""
        return sum(client.clipped for client in self.clients.values())
