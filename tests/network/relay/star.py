"""A root, relays and clients in one process, without a network: every frame arrives at once."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedbandit.messages import Message, decode, encode
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.client.node import DurableNode
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.rules import Rules, says_noise
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.network.relay.federation import RelayFederation
from fedbandit.network.stores import MemoryStore

_NUMBERS = itertools.count(1)


@dataclass
class Place:
    """A coordinator, and the nodes that talk to it by their member numbers."""

    federation: Federation
    nodes: dict[int, tuple[str, DurableNode[Any]]] = field(default_factory=dict)


class Tree:
    """Federations, one above the other."""

    def __init__(self, agreement: Agreement) -> None:
        self.agreement = agreement
        noised = says_noise(agreement.build(), agreement.world)
        self.rules = Rules(relays=("relay", "north", "south", "beyond") if noised else ())
        self.root = Place(Federation("f", agreement, MemoryStore(), rules=self.rules))
        self.relays: list[Place] = []
        self.stores: list[MemoryStore] = []
        """Those of the relays."""
        self.frames = 0
        """That came to the root."""
        self._waiting: list[tuple[Place, Message]] = []

    def relay(self, name: str = "relay", above: Place | None = None, *, at_once: bool = True) -> Place:
        """One more relay."""
        above = self.root if above is None else above
        member = above.federation.invite(name, 0.0).member
        entropy = lambda: next(_NUMBERS)  # noqa: E731
        store = MemoryStore()
        self.stores.append(store)
        rules = replace(self.rules, retract=False)
        federation = RelayFederation("f", self.agreement, store, member, entropy, at_once=at_once, rules=rules)
        place = Place(federation)
        federation.deliver = lambda messages: self._waiting.extend((place, message) for message in messages)
        above.nodes[member] = name, federation.node
        self.relays.append(place)
        self.say(above, member, greet=True)
        return place

    def client(self, name: str, above: Place, source: Any = None) -> DurableClient:
        """One more client."""
        member = above.federation.invite(name, 0.0).member
        client = DurableClient(MemoryStore(), self.agreement, member, lambda: next(_NUMBERS), source)
        above.nodes[member] = name, client
        self.say(above, member, greet=True)
        return client

    def say(self, place: Place, member: int, *, greet: bool = False) -> None:
        """Let a node say all it has to say."""
        name, node = place.nodes[member]
        greeting = node.greeting() if greet else None
        frames = [greeting] if greeting else [frame.data for frame in node.outgoing()]
        while frames:
            for frame in frames:
                self.frames += place is self.root
                (outcome,) = place.federation.receive([(name, frame)], 0.0)
                if isinstance(outcome, Refusal):
                    raise outcome
                self._waiting += [(place, message) for message in outcome]
            self.settle()
            frames = [frame.data for frame in node.outgoing()]

    def settle(self) -> None:
        """Deliver what coordinators have to say, and let relays say what follows from that."""
        while self._waiting:
            place, message = self._waiting.pop(0)
            if message.member in place.nodes:
                place.nodes[message.member][1].receive(decode(encode(message)))
                if not self._waiting:
                    self._speak(place)
        for above in (self.root, *self.relays):
            self._speak(above)

    def _speak(self, place: Place) -> None:
        for member, (_, node) in list(place.nodes.items()):
            if node.machine.outbox or node.asking is not None:
                self.say(place, member)


def play(tree: Tree, clients: list[DurableClient], places: list[Place], rounds: int, seed: int = 0) -> list[int]:
    """Clients act in turn, drawn at random; the arms they pull."""
    rng, arms = np.random.default_rng(seed), list[int]()
    dim = tree.agreement.world.dim
    theta = rng.standard_normal(dim) / np.sqrt(dim)
    for _ in range(rounds):
        i = int(rng.integers(len(clients)))
        X = rng.standard_normal((4, dim))
        X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
        choice = clients[i].select(X)
        reward = float(np.clip(X[choice.arm] @ theta + 0.1 * rng.standard_normal(), -1, 1))
        clients[i].observe(choice.number, reward)
        arms.append(choice.arm)
        tree.say(places[i], clients[i].machine.member)
    return arms
