"""Secure sums on a network that loses, repeats, delays and crashes, in one process, seeded and replayable.

Clients and coordinator run their real halves of the protocol (`machines.sums`), epoch after epoch, with numbers that a
client draws anew for each epoch. The account of who put what into which sum is kept here, by other means: an opened sum
is compared with it to the bit.
"""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError
from fedbandit.machines.sums.client import SumClient
from fedbandit.machines.sums.masks import Identity
from fedbandit.machines.sums.messages import Step, SumMessage, decode_step, encode_step
from fedbandit.machines.sums.server import OpenedSum, SumServer
from fedbandit.machines.sums.terms import NO_CERTIFICATE, Acquaintances, MaskTerms
from fedbandit.messages import Contribution
from fedbandit.testing.faulty import Faults

WORDS = 3


class FaultySums:
    """Members and a coordinator. `step` lets one thing happen.

    The first `behind` members are behind one relay: when that ends (`faults.partition`), all that is under way to them
    and from them is lost.
    """

    def __init__(self, members: int, seed: int, faults: Faults | None = None, behind: int = 0) -> None:
        self.behind = behind
        quorum = members * 3 // 4 + 1
        self.terms = MaskTerms(b"faulty", WORDS, members, quorum, levels=tuple(range(quorum, members + 1)))
        self.faults = Faults(delay=10, crash=0.001, ticks=0.01) if faults is None else faults
        self.random, self.rng = random.Random(seed), np.random.default_rng(seed)
        self.identities = [Identity.new() for _ in range(members)]
        self.acquaintances = [Acquaintances() for _ in range(members)]
        self.time = self.epoch = 0
        self.clients: dict[int, SumClient] = {}
        self.last = [0] * members  # the last epoch that each contributed to: what its store has
        self.server: SumServer | None = None
        self.flying: list[tuple[int, bool, bytes]] = []  # due, to the coordinator, bytes
        self.put: dict[tuple[int, int], Contribution] = {}  # epoch and member → what it put in
        self.seen: set[bytes] = set()  # masked numbers, of all epochs
        self.opened: list[OpenedSum] = []
        self.failed = self.refused = self.crashes = self.lost = 0

    def step(self) -> None:
        """One thing happens, perhaps a fault."""
        self.time += 1
        draw, faults = self.random.random, self.faults
        if self.server is None or self.server.over:
            self.begin()
        elif draw() < faults.ticks:
            self._say(self.server.go_on())  # it waits for nobody any more
            self._close()
        elif draw() < faults.crash:
            self.crash()
        elif self.behind and draw() < faults.partition:
            self.end_relay()
        else:
            self.deliver()

    def begin(self) -> None:
        """The next epoch."""
        self.epoch += 1
        members = range(self.terms.members)
        self.server = SumServer(self.terms, self.epoch, members)
        self.clients = {i: self._client(i) for i in members if self.random.random() >= self.faults.loss / 2}
        for client in self.clients.values():
            self._send(True, client.begin())

    def crash(self) -> None:
        """A client or the coordinator forgets the sum that is under way, or a client begins it anew."""
        self.crashes += 1
        who = self.random.randrange(-1, self.terms.members)
        if who < 0:
            self.server = None
            return
        self.clients.pop(who, None)
        if self.random.random() < 0.5:
            self.clients[who] = self._client(who)
            self._send(True, self.clients[who].begin())

    def end_relay(self) -> None:
        """All that is under way through the relay is lost, with nobody told."""
        before = len(self.flying)
        self.flying = [one for one in self.flying if decode_step(one[2]).member >= self.behind]
        self.lost += before - len(self.flying)

    def deliver(self) -> None:
        """One of the messages that are due arrives."""
        due = [k for k, (when, *_) in enumerate(self.flying) if when <= self.time]
        if not due:
            return
        k = self.random.choice(due)
        _, to_coordinator, data = self.flying[k]
        if self.random.random() >= self.faults.duplication:
            self.flying.pop(k)
        if self.random.random() < self.faults.loss / 4:
            return
        message = decode_step(data)
        try:
            if to_coordinator and self.server is not None:
                self._say(self.server.receive(message))
            elif not to_coordinator and message.member in self.clients:
                for answer in self.clients[message.member].receive(message):
                    self._send(True, answer)
        except FedbanditError:
            self.refused += 1
        self._close()

    def _client(self, member: int) -> SumClient:
        epoch = self.epoch

        def contribution() -> Contribution:
            if self.last[member] >= epoch:  # what a SumStream refuses
                raise FedbanditError(f"Client {member} has contributed to epoch {epoch}.")
            self.last[member] = epoch
            excess = [self.draw() for _ in self.terms.levels[1:]]
            made = Contribution(member, epoch, 1, self.draw(), np.array(excess).reshape(-1, WORDS))
            self.put[epoch, member] = made
            return made

        return SumClient(
            self.terms,
            member,
            epoch,
            self.identities[member],
            self.acquaintances[member],
            NO_CERTIFICATE,
            contribution,
        )

    def draw(self) -> NDArray[np.uint64]:
        """What a client puts into a sum."""
        return self.rng.integers(0, 2**64, WORDS, dtype=np.uint64)

    def _say(self, messages: list[SumMessage]) -> None:
        for message in messages:
            self._send(False, message)

    def _send(self, to_coordinator: bool, message: SumMessage) -> None:
        data = encode_step(message)
        if message.step == Step.MASKED:
            assert message.body not in self.seen, "the same masked numbers leave twice"
            self.seen.add(message.body)
        self.flying.append((self.time + self.random.randint(0, self.faults.delay), to_coordinator, data))

    def _close(self) -> None:
        """Compare what was opened with the account."""
        if self.server is None or not self.server.over:
            return
        if self.server.opened is None:
            self.failed += 1
        else:
            self.check(self.server.opened)
            self.opened.append(self.server.opened)
        self.server, self.flying = None, self.flying[-50:]

    def check(self, opened: OpenedSum) -> None:
        """Raise AssertionError unless a sum is the right one, and the only one of its epoch."""
        assert opened.epoch == self.epoch, "a sum of an epoch that is over"
        assert all(opened.epoch != before.epoch for before in self.opened[-3:]), "two sums over one epoch"
        assert len(opened.counts) >= self.terms.quorum, "a sum over too few"
        wanted = np.zeros(WORDS, dtype=np.uint64)
        for member in opened.counts:
            wanted += self.put[opened.epoch, member].words
        back = len(opened.counts) - self.terms.quorum
        for member in opened.returned:
            wanted -= self.put[opened.epoch, member].excess[:back].sum(axis=0, dtype=np.uint64)
        assert (opened.words == wanted).all(), "the sum is not that of its members"
