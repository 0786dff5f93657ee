"""An event in Python: what a row sends, what the coordinator machine answers, and what the other rows then do.

The rows of the simulator stand for the clients; the coordinator is the very machine that answers on a network. Only
downloads differ: rows apply a broadcast when they next act (`hub.catch_up`), so it is counted and not carried out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedbandit.engine.loop import Outcome, Seats
from fedbandit.messages import Collect, Download, Message, Receipt, Request, Upload
from fedbandit.protocols import Broadcast, Coordinator, MessageProtocol, SynchronousCoordinator
from fedbandit.protocols.hub import measure
from fedbandit.statistics import N_PENDING, Array, mark_sent, pending_sums


class Exchange:
    """The simulated network between the rows of one simulation and its coordinator."""

    def __init__(self, protocol: MessageProtocol, coordinator: Coordinator, dim: int) -> None:
        self.dim = dim
        self.protocol = protocol
        self.coordinator = coordinator
        self.sequence: dict[int, int] = {}
        self.control_messages = 0

    def speak(self, seat: int, rows: Array, seats: Seats, out: Outcome, s: int) -> None:
        """The row in `seat` has triggered in interaction s of the block."""
        r = int(seats.row_at[seat])
        if self.protocol.says == "request":
            self.control_messages += 1
            replies = self.coordinator.receive(Request(r))
        else:
            replies = self._upload(seat, rows, seats, out, s)
        while replies:
            reply = replies.pop()
            if isinstance(reply, Broadcast) and reply.kind is Download:
                out.downloads[s] += reply.count
            elif isinstance(reply, Broadcast) and reply.kind is Collect:
                self.control_messages += reply.count
                replies += self._answer_collect(seat, reply.count, rows, seats, out, s)
            elif not isinstance(reply, Receipt):
                raise TypeError(f"a simulated client cannot be sent {reply!r}")

    def state(self) -> dict[str, Any]:
        """What a checkpoint has to keep beside the hub."""
        return {
            "control_messages": self.control_messages,
            "sequence": {str(r): n for r, n in self.sequence.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; every upload sent by then had been applied."""
        self.control_messages = state["control_messages"]
        self.sequence = {int(r): n for r, n in state["sequence"].items()}
        self.coordinator.applied = dict(self.sequence)

    def _upload(self, seat: int, rows: Array, seats: Seats, out: Outcome, s: int) -> list[Message | Broadcast]:
        r = int(seats.row_at[seat])
        self.sequence[r] = self.sequence.get(r, 0) + 1
        row, d = rows[seat], self.dim
        sums = pending_sums(row, d)
        mark_sent(row, d)
        known = measure(row, self.protocol.counting)
        out.uploads[s] += 1
        return list(self.coordinator.receive(Upload(r, self.sequence[r], sums, known)))

    def _answer_collect(
        self, seat: int, count: int, rows: Array, seats: Seats, out: Outcome, s: int
    ) -> list[Message | Broadcast]:
        """All members of the asking row's group upload; those with nothing pending are only counted."""
        machine = self.coordinator
        assert isinstance(machine, SynchronousCoordinator)
        g = machine.group_of(int(seats.row_at[seat]))
        in_use = int(seats.taken[0])
        with_data = np.flatnonzero(rows[:in_use, N_PENDING] > 0)
        if machine.hub.group_of.size > 1:
            with_data = with_data[machine.hub.group_of[seats.row_at[with_data]] == g]
        replies: list[Message | Broadcast] = []
        for other in with_data:
            replies += self._upload(int(other), rows, seats, out, s)
        idle = count - with_data.size
        if idle:
            out.uploads[s] += idle
            replies += machine.answered(g, idle)
        return replies
