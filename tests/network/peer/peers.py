"""What tests of peers share."""

from __future__ import annotations

import socket
from typing import Any

import fedbandit as fb
from fedbandit.cli.population import User
from fedbandit.machines.peer import PeerMachine
from fedbandit.messages import Tell
from fedbandit.network.client.choices import Arm, id_of, number_of

RING: dict[int, tuple[int, ...]] = {0: (1, 3), 1: (0, 2), 2: (1, 3), 3: (0, 2)}
LINE: dict[int, tuple[int, ...]] = {0: (1,), 1: (0, 2), 2: (1,)}
ROUNDS, DIM, TTL = 60, 3, 2


def machine(i: int, epsilon: float = float("inf"), graph: dict[int, tuple[int, ...]] = RING) -> PeerMachine:
    world = fb.World(n_clients=len(graph), dim=DIM, horizon=len(graph) * ROUNDS, per_round=len(graph))
    system = fb.feducb(epsilon=epsilon, topology="unknown", ttl=TTL)
    return PeerMachine(i, system, world, neighbours=graph[i])


class Agent:
    """A machine as a user sees it."""

    def __init__(self, one: PeerMachine) -> None:
        self.machine = one
        self.facts: dict[str, float] = {}

    def select(self, arms: Any) -> Arm:
        choice = self.machine.select(arms)
        return Arm(choice.arm, id_of(choice.number))

    def observe(self, reward: float, choice: Arm | str) -> None:
        self.machine.observe(number_of(choice), reward)


def simulated(graph: dict[int, tuple[int, ...]], epsilon: float) -> tuple[list[PeerMachine], int]:
    """What peers know after a simulation in which every message goes one hop a round; how often they told."""
    peers = [machine(i, epsilon, graph) for i in graph]
    users = [User(i, fb.World(len(graph), DIM, len(graph) * ROUNDS), 10, 0.0, 0) for i in graph]
    told = 0
    for _ in range(ROUNDS):
        for one, user in zip(peers, users, strict=True):
            user.meet(Agent(one))
        for sender, receiver, message in [(one.member, *sent) for one in peers for sent in one.send()]:
            told += isinstance(message, Tell)
            peers[receiver].receive(sender, message)
        for one in peers:
            one.end_round()
    return peers, told


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def heard(one: PeerMachine) -> dict[str, int]:
    """How many observations of each peer one has heard of."""
    found: dict[str, int] = {}
    for (origin, _), tell in sorted(one.node.told.items()):
        found[str(origin)] = found.get(str(origin), 0) + tell.sums.n
    return found
