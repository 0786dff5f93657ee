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
from fedbandit.messages import Collect, Download, Join, Message, Receipt, Request, Upload
from fedbandit.privacy.privacy import Releases, client_stream
from fedbandit.protocols import Broadcast, Coordinator, MemberKeeper, SynchronousCoordinator
from fedbandit.protocols.hub import measure
from fedbandit.statistics import (
    N_PENDING,
    VERSION,
    Array,
    Sums,
    adopt,
    mark_sent,
    pending_sums,
    scratch_matrix,
    shared_row,
    take_over,
    zero_sums,
)
from fedbandit.system import System


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
        dim: int,
        seed: int,
        *,
        fresh: bool,
    ) -> None:
        self.dim = dim
        self.ridge = float(system.ridge)
        self.protocol = system.protocol
        self.privacy = system.privacy
        self.coordinator = coordinator
        self.thresholds = thresholds
        self.seed = seed
        self.fresh = fresh
        self.sequence: dict[int, int] = {}
        self.streams: dict[int, Releases] = {}
        self.spent: set[int] = set()  # clients whose budget is spent: they learn alone
        self.control_messages = 0
        self._scratch = scratch_matrix(dim)

    def speak(self, seat: int, rows: Array, seats: Seats, out: Outcome, s: int) -> None:
        """The row in `seat` has triggered in interaction s of the block."""
        r = int(seats.row_at[seat])
        if not self._may_release(r, int(rows[seat, N_PENDING])):
            self.thresholds[r] = math.inf
            return
        if self.protocol.says == "request":
            self.control_messages += 1
            replies = self.coordinator.receive(Request(r))
        else:
            replies = self._upload(seat, rows, seats, out, s)
        self.deliver(list(replies), rows, seats, out, s)

    def join(self, seat: int, rows: Array, seats: Seats, out: Outcome, s: int) -> None:
        """The row in `seat` is about to act for the first time, in interaction s of the block."""
        self.deliver(list(self.coordinator.receive(Join(int(seats.row_at[seat])))), rows, seats, out, s)

    def deliver(self, replies: list[Message | Broadcast], rows: Array, seats: Seats, out: Outcome, s: int) -> None:
        """Carry the coordinator's messages to the rows, their answers back, and so on."""
        while replies:
            reply = replies.pop(0)
            match reply:
                case Receipt():
                    pass
                case Broadcast(kind, count) if kind is Download:
                    out.downloads[s] += count
                case Broadcast(_, count):
                    self.control_messages += count
                    replies += self._answer_collect(reply, count, rows, seats, out, s)
                case Collect(member):
                    self.control_messages += 1
                    replies += self._upload(int(seats.seat_of[member]), rows, seats, out, s)
                case Download(member):
                    out.downloads[s] += 1
                    self._adopt(rows[seats.seat_of[member]], reply)
                case _:
                    raise TypeError(f"a simulated client cannot be sent {reply!r}")

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a checkpoint has to keep beside the hub: plain values and arrays."""
        values, arrays = self.coordinator.state()
        values |= {
            "control_messages": self.control_messages,
            "sequence": {str(r): n for r, n in self.sequence.items()},
            "spent": sorted(self.spent),
        }
        for r, stream in self.streams.items():
            arrays |= {f"stream.{r}.{key}": np.asarray(value) for key, value in stream.state().items()}
        return values, arrays

    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.coordinator.restore(values, arrays)
        self.control_messages = values["control_messages"]
        self.sequence = {int(r): n for r, n in values["sequence"].items()}
        self.spent = set(values["spent"])
        self.thresholds[sorted(self.spent)] = math.inf
        saved: dict[int, dict[str, Any]] = {}
        for key, value in arrays.items():
            if key.startswith("stream."):
                _, member, field = key.split(".")
                saved.setdefault(int(member), {})[field] = value
        for r, state in saved.items():
            stream = self._stream(r)
            assert stream is not None
            stream.restore(state)

    def _stream(self, r: int) -> Releases | None:
        if r not in self.streams:
            stream = client_stream(self.privacy, r, self.seed)
            if stream is None:
                return None
            self.streams[r] = stream
        return self.streams[r]

    def _may_release(self, r: int, n: int) -> bool:
        """Whether a client's budget allows statistics of n more interactions to leave; if not, that is the end."""
        stream = self._stream(r)
        if stream is None or stream.may_release(n):
            return True
        self.spent.add(r)
        return False

    def _upload(self, seat: int, rows: Array, seats: Seats, out: Outcome, s: int) -> list[Message | Broadcast]:
        r = int(seats.row_at[seat])
        self.sequence[r] = self.sequence.get(r, 0) + 1
        row = rows[seat]
        sums = self._released(r, row)
        known = measure(row, self.protocol.counting)
        out.uploads[s] += 1
        return list(self.coordinator.receive(Upload(r, self.sequence[r], sums, known)))

    def _released(self, r: int, row: Array) -> Sums:
        """What leaves of a row's pending statistics: noised if there is a mechanism, nothing if its budget is spent."""
        sums = pending_sums(row, self.dim)
        stream = self._stream(r)
        if stream is not None and sums.n > 0:
            if not self._may_release(r, sums.n):
                return zero_sums(self.dim)
            sums = stream.release(sums)
        mark_sent(row, self.dim)
        return sums

    def _adopt(self, row: Array, message: Download) -> None:
        given = shared_row([message.sums], message.slack, self.dim, self.ridge, self._scratch)
        if self.fresh:
            adopt(row, given, self.dim, self.ridge, self._scratch)
        else:
            take_over(row, given, self.dim)
        row[VERSION] = message.version

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
            out.uploads[s] += idle
            replies += machine.answered(g, idle)
        return replies
