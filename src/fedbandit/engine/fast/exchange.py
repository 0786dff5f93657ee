"""An event in Python: what a row sends, what the coordinator machine answers, and what the other rows then do.

The rows of the simulator stand for the clients; the coordinator is the very machine that answers on a network. Only
broadcasts differ: rows apply them when they next act (`hub.catch_up`), so they are counted and not carried out.
"""

from __future__ import annotations

import math

import numpy as np

from fedbandit.engine.fast.outlets import Outlets
from fedbandit.engine.fast.plan import PolicyPlan
from fedbandit.engine.fast.slots import Seats
from fedbandit.engine.fast.statistics import N_PENDING
from fedbandit.engine.outcome import Outcome
from fedbandit.messages import Collect, Download, Message, Receipt, Request, Threshold, Upload
from fedbandit.protocols import Broadcast, Coordinator, MemberKeeper, SynchronousCoordinator, timed_growth
from fedbandit.protocols.protocol import known_by
from fedbandit.state import State
from fedbandit.system import System
from fedbandit.types import Array


class Exchange:
    """The simulated network between the rows of one simulation and its coordinator.

    `thresholds` are those of the compiled trigger; a client that may not speak any more gets an infinite one. `fresh`
    says that a row learns from its own observations at once (`Layout`).
    """

    def __init__(
        self,
        system: System,
        coordinator: Coordinator | MemberKeeper,
        thresholds: Array,
        plan: PolicyPlan,
        dim: int,
        seed: int,
        *,
        counted: bool = True,
        fresh: bool = True,
    ) -> None:
        self.counted = int(counted)  # releases that stay in the house are not messages
        self.dim = dim
        self.protocol = system.protocol
        self.outlets = Outlets(system, plan, dim, seed, fresh=fresh)
        self.counting = system.counts_only
        self.coordinator = coordinator
        self.thresholds = thresholds
        self.terms = thresholds.copy()  # what thresholds are for those who wait for nothing
        self.sequence: dict[int, int] = {}
        self.control_messages = 0

    def speak(self, seat: int, rows: Array, seats: Seats, out: Outcome, s: int) -> None:
        """The row in `seat` has triggered in interaction s of the block."""
        r = int(seats.row_at[seat])
        if not self.outlets.may_release(r, int(rows[seat, N_PENDING])):
            self.thresholds[r] = math.inf
            return
        if self.protocol.says == "request":
            self.control_messages += 1
            growth = 0.0
            if self.protocol.one_by_one:
                growth = float(timed_growth(rows[seat]))
                self.thresholds[r] = 2 * growth  # it has asked, and waits
            replies = self.coordinator.receive(Request(r, growth))
        else:
            replies = self._upload(seat, rows, seats, out, s)
        self.deliver(list(replies), rows, seats, out, s)

    def deliver(self, replies: list[Message | Broadcast], rows: Array, seats: Seats, out: Outcome, s: int) -> None:
        """Carry the coordinator's messages to the rows, their answers back, and so on."""
        while replies:
            reply = replies.pop(0)
            match reply:
                case Receipt():
                    pass
                case Broadcast(kind, count) if kind is Download:
                    out.downloads[s] += self.counted * count
                case Broadcast(_, count):
                    self.control_messages += count
                    replies += self._answer_collect(reply, count, rows, seats, out, s)
                case Threshold(member, threshold):
                    self.control_messages += 1
                    self.terms[member] = threshold
                    self._attend(member)
                case Collect(member):
                    self.control_messages += 1
                    self._attend(member)
                    replies += self._upload(int(seats.seat_of[member]), rows, seats, out, s)
                case Download(member):
                    out.downloads[s] += self.counted
                    self._attend(member)
                    self.outlets.adopt(member, rows[seats.seat_of[member]], reply)
                case _:
                    raise TypeError(f"a simulated client cannot be sent {reply!r}")

    def state(self) -> State:
        """The coordinator, every stream of noise, and who has sent how much."""
        machine, outlets = self.coordinator.state(), self.outlets.state()
        header = {
            "coordinator": machine.header,
            "outlets": outlets.header,
            "control_messages": self.control_messages,
            "sequence": {str(r): n for r, n in self.sequence.items()},
        }
        waiting = {"thresholds": self.thresholds, "terms": self.terms}
        return State(header, {**machine.arrays, **outlets.arrays, **waiting})

    def restore(self, state: State) -> None:
        """Go on from there."""
        header, arrays = state
        self.coordinator.restore(State(header["coordinator"], arrays))
        self.outlets.restore(State(header["outlets"], arrays))
        self.thresholds[:], self.terms[:] = arrays["thresholds"], arrays["terms"]
        self.control_messages = header["control_messages"]
        self.sequence = {int(r): n for r, n in header["sequence"].items()}

    def _attend(self, r: int) -> None:
        """A client that is called, served or told new terms waits no longer."""
        self.thresholds[r] = math.inf if r in self.outlets.spent else self.terms[r]

    def _upload(self, seat: int, rows: Array, seats: Seats, out: Outcome, s: int) -> list[Message | Broadcast]:
        r = int(seats.row_at[seat])
        self.sequence[r] = self.sequence.get(r, 0) + 1
        row = rows[seat]
        sums = self.outlets.release(r, row)
        out.uploads[s] += self.counted
        known = known_by(row, self.protocol, self.counting)
        return list(self.coordinator.receive(Upload(r, self.sequence[r], sums, known)))

    def _answer_collect(
        self, call: Broadcast, count: int, rows: Array, seats: Seats, out: Outcome, s: int
    ) -> list[Message | Broadcast]:
        """All members of the group that is called upload; those with nothing pending are only counted."""
        machine = self.coordinator
        assert isinstance(machine, SynchronousCoordinator)
        g = call.group
        in_use = int(seats.taken[0])
        with_data = np.flatnonzero(rows[:in_use, N_PENDING] > 0)
        if machine.hub.group_of.size > 1:
            with_data = with_data[machine.hub.group_of[seats.row_at[with_data]] == g]
        replies: list[Message | Broadcast] = []
        for other in with_data:
            replies += self._upload(int(other), rows, seats, out, s)
        idle = count - with_data.size
        if idle:
            out.uploads[s] += self.counted * idle
            replies += machine.answered(g, idle)
        return replies
