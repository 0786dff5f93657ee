"""An event in Python: what a row sends, what the coordinator machine answers, and what the other rows then do.

The rows of the simulator stand for the clients; the coordinator is the very machine that answers on a network. Only
broadcasts differ: rows apply them when they next act (`hub.catch_up`), so they are counted and not carried out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedbandit.engine.loop import Outcome, Seats
from fedbandit.engine.outlets import Outlets
from fedbandit.messages import Collect, Download, Message, Receipt, Request, Upload
from fedbandit.policies import PolicyPlan
from fedbandit.protocols import Broadcast, Coordinator, MemberKeeper, SynchronousCoordinator
from fedbandit.protocols.protocol import known_by
from fedbandit.statistics import (
    N_PENDING,
    Array,
)
from fedbandit.system import System


class Exchange:
    """The simulated network between the rows of one simulation and its coordinator.

    `thresholds` are those of the compiled trigger; a client that may not speak any more gets an infinite one.
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
    ) -> None:
        self.counted = int(counted)  # releases that stay in the house are not messages
        self.dim = dim
        self.protocol = system.protocol
        self.outlets = Outlets(system, plan, dim, seed)
        self.coordinator = coordinator
        self.thresholds = thresholds
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
            replies = self.coordinator.receive(Request(r))
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
                case Collect(member):
                    self.control_messages += 1
                    replies += self._upload(int(seats.seat_of[member]), rows, seats, out, s)
                case Download(member):
                    out.downloads[s] += self.counted
                    self.outlets.adopt(member, rows[seats.seat_of[member]], reply)
                case _:
                    raise TypeError(f"a simulated client cannot be sent {reply!r}")

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a checkpoint has to keep beside the hub: plain values and arrays."""
        values, arrays = self.coordinator.state()
        values |= {
            "control_messages": self.control_messages,
            "sequence": {str(r): n for r, n in self.sequence.items()},
        }
        noised, streams = self.outlets.state()
        return values | noised, arrays | streams

    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.coordinator.restore(values, arrays)
        self.control_messages = values["control_messages"]
        self.sequence = {int(r): n for r, n in values["sequence"].items()}
        self.outlets.restore(values, arrays)
        self.thresholds[sorted(self.outlets.spent)] = math.inf

    def _upload(self, seat: int, rows: Array, seats: Seats, out: Outcome, s: int) -> list[Message | Broadcast]:
        r = int(seats.row_at[seat])
        self.sequence[r] = self.sequence.get(r, 0) + 1
        row = rows[seat]
        sums = self.outlets.release(r, row)
        known = known_by(row, self.protocol)
        out.uploads[s] += self.counted
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
