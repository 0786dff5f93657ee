"""The simulated network between peers: at the end of each round every message goes one hop."""

from __future__ import annotations

import math

from fedbandit.engine.fast.outlets import Outlets
from fedbandit.engine.fast.plan import PolicyPlan
from fedbandit.engine.fast.slots import Seats
from fedbandit.engine.fast.statistics import N_PENDING
from fedbandit.engine.outcome import Outcome
from fedbandit.messages import Ask, Tell
from fedbandit.protocols import Gossip, PeerNode
from fedbandit.protocols.peer_node import heard
from fedbandit.sharing import Noise
from fedbandit.state import State
from fedbandit.system import System
from fedbandit.types import Array


class PeerExchange:
    """All peers of a simulation; row i·γ + g is estimator g of peer i."""

    def __init__(
        self, system: System, thresholds: Array, plan: PolicyPlan, noise: Noise | None, dim: int, seed: int
    ) -> None:
        protocol = system.protocol
        assert isinstance(protocol, Gossip)
        self.period, self.batch = protocol.period, protocol.batch
        self.ridge = float(system.ridge)
        self.keeps_own = system.privacy.keeps_own or system.privacy.perturbs != "statistics"
        self.noise = noise
        self.thresholds = thresholds
        self.outlets = Outlets(system, plan, dim, seed)
        self.nodes = [PeerNode(i, near, protocol.ttl, dim) for i, near in enumerate(protocol.neighbours)]
        self.control_messages = 0
        self.rounds = 0

    def speak(self, seat: int, rows: Array, seats: Seats, out: Outcome, s: int) -> None:  # noqa: ARG002
        """The row in `seat` has triggered: its peer asks, and tells; both leave at the end of the round."""
        r = int(seats.row_at[seat])
        if self._tell(r, rows[seat]):
            self.nodes[r // self.period].ask(r % self.period)
        else:
            self.thresholds[r] = math.inf

    def end_round(self, rows: Array, seats: Seats, out: Outcome, s: int) -> None:
        """Every message goes one hop; whoever has heard something new of an estimator brings it up to date."""
        self.rounds += 1
        carried = [(node.member, *sent) for node in self.nodes for sent in node.send()]
        news: set[int] = set()
        for sender, receiver, message in carried:
            node = self.nodes[receiver]
            if isinstance(message, Tell):
                out.uploads[s] += 1
            else:
                self.control_messages += 1
            if not node.receive(sender, message):
                continue
            assert isinstance(message, Ask | Tell)
            r = receiver * self.period + message.estimator
            if isinstance(message, Tell):
                news.add(r)
            elif seats.seat_of[r] >= 0 and rows[seats.seat_of[r], N_PENDING] >= self.batch:
                self._tell(r, rows[seats.seat_of[r]])
        for r in sorted(news):
            node, g = self.nodes[r // self.period], r % self.period
            download = heard(node, g, self.noise, self.ridge, self.rounds, keeps_own=self.keeps_own)
            self.outlets.adopt(r, rows[seats.seat_of[r]], download, node.own(g))

    def _tell(self, r: int, row: Array) -> bool:
        if not self.outlets.may_release(r, int(row[N_PENDING])):
            return False
        self.nodes[r // self.period].tell(r % self.period, self.outlets.release(r, row))
        return True

    def state(self) -> State:
        """Every node and every stream of noise."""
        header, arrays = self.outlets.state()
        header = {"outlets": header, "control_messages": self.control_messages, "rounds": self.rounds}
        nodes = [node.state() for node in self.nodes]
        for i, node in enumerate(nodes):
            arrays |= {f"node.{i}.{name}": array for name, array in node.arrays.items()}
        return State({**header, "nodes": [node.header for node in nodes]}, arrays)

    def restore(self, state: State) -> None:
        """Go on from there."""
        header, arrays = state
        self.outlets.restore(State(header["outlets"], arrays))
        self.thresholds[sorted(self.outlets.spent)] = math.inf
        self.control_messages, self.rounds = header["control_messages"], header["rounds"]
        for i, node in enumerate(self.nodes):
            mine = f"node.{i}."
            kept = {name.removeprefix(mine): array for name, array in arrays.items() if name.startswith(mine)}
            node.restore(State(header["nodes"][i], kept))
