"""Clients and their coordinator in one process, joined by a link that delivers everything at once and in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from fedbandit.machines.client import Choice, ClientMachine
from fedbandit.messages import Collect, Download, Join, Message, Request, Threshold, Upload, decode, encode
from fedbandit.privacy.privacy import Releases
from fedbandit.state import State, joined, parts_of
from fedbandit.system import System
from fedbandit.types import Array
from fedbandit.world import World


class Account(NamedTuple):
    """Where observations are: what was observed is applied at the coordinator, or told to peers, or pending."""

    observed: int
    applied: int
    pending: int


class Link:
    """A federation of machines, which are made when they are first needed.

    `uploads`, `downloads` and `control_messages` count what was carried so far; joining and receipts are not counted,
    nor is what stays in the house (`Structure.counted`). With `encoded`, messages cross the link as bytes, as on a
    network: slower, and the same.
    """

    def __init__(
        self, system: System, world: World, seed: int = 0, *, waiting: int = 10_000, encoded: bool = False
    ) -> None:
        self.system = system.told(world)
        self.world = world
        self.seed = seed
        self.coordinator = self.system.coordinator(world, seed)
        self.clients: dict[int, ClientMachine] = {}
        self.uploads = self.downloads = self.control_messages = 0
        self._waiting = waiting
        self._encoded = encoded
        self._start = self.system.sharing(world)
        self._joined: set[int] = set()
        if self.coordinator is not None and self.system.protocol.join == "member":
            for i in range(world.n_clients):
                self.greet(i)

    def client(self, i: int) -> ClientMachine:
        """The machine of client i."""
        if i not in self.clients:
            self.clients[i] = ClientMachine(i, self.system, self.world, self.seed, self._waiting, sharing=self._start)
        return self.clients[i]

    def greet(self, i: int) -> None:
        """Client i acts for the first time: it joins."""
        if self.coordinator is not None and i not in self._joined:
            self._joined.add(i)
            self.say([Join(i, self.clients[i].version if i in self.clients else 0)])

    def select(self, i: int, arms: Array) -> Choice:
        """Client i chooses one of the arms."""
        self.greet(i)
        return self.client(i).select(arms)

    def observe(self, i: int, choice: int, reward: float) -> None:
        """Client i learns the reward of a choice, and what it says is carried."""
        self.say(self.client(i).observe(choice, reward))

    def say(self, messages: Iterable[Message]) -> None:
        """Carry messages of clients to the coordinator, its answers to the clients, and so on."""
        queue = deque(messages)
        while queue:
            message = self._carry(queue.popleft())
            if self.coordinator is not None:
                queue.extend(self._deliver(self.coordinator.receive(message)))

    def _deliver(self, answers: Iterable[Message]) -> list[Message]:
        said: list[Message] = []
        for answer in answers:
            received = self._carry(answer)
            said += self.client(received.member).receive(received)
        return said

    def _carry(self, message: Message) -> Message:
        counted = int(self.system.structure.counted)
        match message:
            case Upload():
                self.uploads += counted
            case Download():
                self.downloads += counted
            case Request() | Collect() | Threshold():
                self.control_messages += 1
        return decode(encode(message)) if self._encoded else message

    def next_wake(self, done: int) -> int:
        """After how many rounds `end_round` has something to do next, if `done` are over."""
        return done + 2**62 if self.coordinator is None else self.coordinator.next_wake(done)

    def end_round(self, done: int) -> None:
        """A round is over: let the coordinator do what it does between rounds."""
        if self.coordinator is not None:
            self.say(self._deliver(self.coordinator.end_round(done)))

    def groups(self) -> list[list[int]] | None:
        """Who shares with whom, if that is found while running."""
        if self.coordinator is None or not self.system.structure.by_member:
            return None
        return self.coordinator.sharing.groups()

    def account(self) -> Account | None:
        """Where all observations are, if there is a coordinator."""
        if self.coordinator is None:
            return None
        clients = self.clients.values()
        observed, pending = sum(client.observed for client in clients), sum(client.pending for client in clients)
        return Account(observed, self.coordinator.gathered().n, pending)

    # Privacy

    def streams(self) -> dict[int, Releases]:
        """What noises the releases of each client that has a mechanism."""
        return {i: client.stream for i, client in sorted(self.clients.items()) if client.stream is not None}

    def exhausted(self) -> list[int]:
        """The clients whose budget is spent."""
        return [i for i, client in sorted(self.clients.items()) if client.exhausted]

    @property
    def clipped(self) -> int:
        """Rewards that were outside the range for which privacy is claimed."""
        return sum(client.clipped for client in self.clients.values())

    # How it is kept

    def state(self) -> State:
        """All machines."""
        header = {
            "joined": sorted(self._joined),
            "counts": [self.uploads, self.downloads, self.control_messages],
            "clients": sorted(self.clients),
        }
        states = {f"client.{i}": client.state() for i, client in self.clients.items()}
        if self.coordinator is not None:
            states["coordinator"] = self.coordinator.state()
        return joined(header, states)

    def restore(self, state: State) -> None:
        """Go on from there."""
        self._joined = set(state.header["joined"])
        self.uploads, self.downloads, self.control_messages = state.header["counts"]
        parts = parts_of(state)
        self.clients = {}
        for i in state.header["clients"]:
            self.client(i).restore(parts[f"client.{i}"])
        if self.coordinator is not None:
            self.coordinator.restore(parts["coordinator"])
