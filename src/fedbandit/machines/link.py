"""N client machines and a coordinator in one process, joined by a link that delivers everything at once and in order.

Every message crosses it in encoded form, so what the machines exchange is what a network would carry.
"""

from __future__ import annotations

from collections import Counter, deque

from fedbandit.machines.client import make_coordinator
from fedbandit.machines.split_client import make_client
from fedbandit.messages import Join, Message, Receipt, decode, encode
from fedbandit.protocols import Broadcast
from fedbandit.system import System
from fedbandit.world import World


class Link:
    """A federation of machines. `say` carries a client's messages, and the answers, until nobody has more to say."""

    def __init__(self, system: System, world: World, seed: int = 0) -> None:
        self.clients = [make_client(i, system, world, seed) for i in range(world.n_clients)]
        self.coordinator = make_coordinator(system, world, seed)
        self.counts: Counter[str] = Counter()
        self.bytes = 0
        self._joined = [False] * world.n_clients
        if system.protocol.join == "member":
            for i in range(world.n_clients):
                self.greet(i)

    def greet(self, i: int) -> None:
        """Client i acts for the first time: it joins."""
        if not self._joined[i]:
            self._joined[i] = True
            self.say(self.clients[i].join())

    def end_round(self, done: int) -> None:
        """A round is over: let the coordinator do what it does between rounds."""
        if self.coordinator is not None and self.coordinator.next_wake(done - 1) == done:
            self._answer(self.coordinator.end_round(done), queue := deque[Message]())
            self.say(list(queue))

    def say(self, messages: list[Message]) -> None:
        """Carry messages of a client to the coordinator, its answers to the clients, and so on."""
        queue = deque(messages)
        while queue:
            message = self._carry(queue.popleft())
            assert self.coordinator is not None
            self._answer(self.coordinator.receive(message), queue)

    def _answer(self, answers: list[Message | Broadcast], queue: deque[Message]) -> None:
        for answer in answers:
            for one in answer.addressed() if isinstance(answer, Broadcast) else (answer,):
                received = self._carry(one)
                queue.extend(self.clients[received.member].receive(received))

    def _carry(self, message: Message) -> Message:
        data = encode(message)
        if not isinstance(message, Join | Receipt):
            self.counts[type(message).__name__] += 1
            self.bytes += len(data)
        return decode(data)
