"""Rows as clients of a coordinator: the exchanges of the plain machines, each on a row instead of a plain model."""

from __future__ import annotations

import math
from collections import Counter

from fedbandit.engine.fast.row_model import GivenRows, RowHolder, RowModel
from fedbandit.engine.learner import Outcome
from fedbandit.machines.exchange import Exchange
from fedbandit.machines.link import Carrier
from fedbandit.machines.peer import PeerMachine
from fedbandit.machines.start import start_with
from fedbandit.messages import Message, Tell
from fedbandit.privacy.privacy import Releases
from fedbandit.state import State, joined, parts_of
from fedbandit.system import System
from fedbandit.types import Array
from fedbandit.world import World


class RowLink(Carrier[Exchange]):
    """The federation of one simulation; `thresholds` are those that compiled triggers compare with."""

    def __init__(self, system: System, world: World, seed: int, rows: RowHolder, thresholds: Array) -> None:
        self._rows = rows
        self._given = GivenRows(system.structure.shared_dim(world), float(system.ridge))
        self.thresholds = thresholds
        self._unread: dict[int, bool] = {}  # who was sent something that its row has not adopted: whether it has acted
        super().__init__(system, world, seed)

    def make(self, i: int) -> Exchange:
        """The exchange of row i."""
        model = RowModel(self._rows, i, self._given, fresh=self.system.structure.fresh)
        exchange = Exchange(i, model, self.system, self.world, self.seed)
        start_with(exchange, self.start)
        return exchange

    def speak(self, i: int, out: Outcome, s: int) -> None:
        """The trigger of row i has fired in interaction s of the block."""
        self.count(out, s, self.client(i).speak())
        self._settle(i)

    def count(self, out: Outcome, s: int, messages: list[Message]) -> None:
        """Carry messages of rows, and book what that leads to for interaction s of the block."""
        uploads, downloads = self.uploads, self.downloads
        self.say(messages)
        out.uploads[s] += self.uploads - uploads
        out.downloads[s] += self.downloads - downloads

    def meet(self, i: int, out: Outcome, s: int) -> None:
        """Row i acts, in interaction s of the block: it adopts what it was sent; if it has never acted, it joins."""
        has_acted = self._unread.get(i, False)
        if i in self._unread:
            self._settle(i)
        if has_acted:
            return
        self.client(i)
        uploads, downloads = self.uploads, self.downloads
        self.greet(i)
        out.uploads[s] += self.uploads - uploads
        out.downloads[s] += self.downloads - downloads

    def end(self, done: int, out: Outcome, s: int) -> None:
        """A round is over; what is said then counts for interaction s of the block."""
        uploads, downloads = self.uploads, self.downloads
        self.end_round(done)
        out.uploads[s] += self.uploads - uploads
        out.downloads[s] += self.downloads - downloads

    def deliver(self, answers: list[Message]) -> list[Message]:
        """What rows were sent they adopt at once, as compiled code does not ask; large ones when they next act."""
        said = super().deliver(answers)
        for i in {answer.member for answer in answers}:
            if i not in self._unread:
                has_acted = self._rows.postpone(i)
                if has_acted is None:
                    self._settle(i)
                    continue
                self._unread[i] = has_acted
            self._use_threshold(i)
        return said

    def settle(self) -> list[int]:
        """Let all rows adopt what they were sent; which of them need not be asked any more."""
        done = [i for i, has_acted in self._unread.items() if has_acted]
        for i in list(self._unread):
            self._settle(i)
        return done

    def _settle(self, i: int) -> None:
        self._unread.pop(i, None)
        _ = self.clients[i].model
        self._use_threshold(i)

    def _use_threshold(self, i: int) -> None:
        exchange = self.clients[i]
        self.thresholds[i] = math.inf if exchange.exhausted else exchange.threshold

    def restore(self, state: State) -> None:
        """Go on from there."""
        super().restore(state)
        for i in self.clients:
            self._settle(i)


class RowPeers:
    """All peers of a simulation; row i·γ + g is estimator g of peer i."""

    downloads = 0

    def __init__(self, system: System, world: World, seed: int, rows: RowHolder, thresholds: Array) -> None:
        self.period = system.protocol.period
        self.thresholds = thresholds
        given = GivenRows(world.dim, float(system.ridge))
        self.peers = [
            PeerMachine(
                i,
                system,
                world,
                seed,
                estimators=[
                    Exchange(i, RowModel(rows, r, given), system, world, seed, number=r)
                    for r in range(i * self.period, (i + 1) * self.period)
                ],
            )
            for i in range(world.n_clients)
        ]
        self.control_messages = 0
        self.sent_by: Counter[int] = Counter()
        self.received_by: Counter[int] = Counter()

    def speak(self, r: int, out: Outcome, s: int) -> None:  # noqa: ARG002 - it leaves at the end of the round
        """The trigger of row r has fired."""
        peer, g = self.peers[r // self.period], r % self.period
        peer.speak(g)
        if peer.estimators[g].exhausted:
            self.thresholds[r] = math.inf

    def end(self, done: int, out: Outcome, s: int) -> None:  # noqa: ARG002 - all rounds are alike
        """Every message goes one hop; whoever has heard something new of an estimator brings it up to date."""
        carried = [(peer.member, *sent) for peer in self.peers for sent in peer.send()]
        for sender, receiver, message in carried:
            told = isinstance(message, Tell)
            out.uploads[s] += told
            self.sent_by[sender] += told
            self.control_messages += not told
            self.peers[receiver].receive(sender, message)
        for peer in self.peers:
            peer.end_round()
            for estimator in peer.estimators:
                _ = estimator.model

    def streams(self) -> dict[int, Releases]:
        """What noises the releases of each estimator."""
        estimators = [one for peer in self.peers for one in peer.estimators]
        return {r: one.stream for r, one in enumerate(estimators) if one.stream is not None}

    def exhausted(self) -> list[int]:
        """The estimators whose budget is spent."""
        return [r for r, one in enumerate(one for peer in self.peers for one in peer.estimators) if one.exhausted]

    def state(self) -> State:
        """All peers."""
        return joined({"control": self.control_messages}, {f"{p.member}": p.state() for p in self.peers})

    def restore(self, state: State) -> None:
        """Go on from there."""
        self.control_messages = state.header["control"]
        parts = parts_of(state)
        for peer in self.peers:
            peer.restore(parts[f"{peer.member}"])
        self.thresholds[self.exhausted()] = math.inf
