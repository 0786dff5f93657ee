"""What leaves a row and what comes in, for the simulator's rows: noise on the way out, mixing on the way in."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fedbandit.engine.fast.plan import PolicyPlan, exact_width
from fedbandit.engine.fast.row_sums import pending_sums, shared_row
from fedbandit.engine.fast.statistics import VERSION, adopt, mark_sent, scratch_matrix, take_over
from fedbandit.machines.mixing import mix
from fedbandit.messages import Download
from fedbandit.privacy.privacy import Releases
from fedbandit.privacy.release_stream import ReleaseStream
from fedbandit.state import State
from fedbandit.streams import Stream, generator
from fedbandit.sums import Sums, zero_sums
from fedbandit.system import System
from fedbandit.types import Array


class Outlets:
    """The privacy streams of all rows, each made when its row first releases something."""

    def __init__(self, system: System, plan: PolicyPlan, dim: int, seed: int, *, fresh: bool = True) -> None:
        self.fresh = fresh
        self.dim = dim
        self.ridge = float(system.ridge)
        self.plan = plan
        self.privacy = system.privacy
        self.period = system.protocol.period
        self.seed = seed
        self.streams: dict[int, Releases] = {}
        self.spent: set[int] = set()  # rows whose budget is spent: they learn alone
        self._scratch = scratch_matrix(dim)

    def stream(self, r: int) -> Releases | None:
        """The stream of a row, which stands for estimator r mod period of client r // period."""
        if r not in self.streams:
            if self.privacy.site == "coordinator":
                return None  # it is trusted, and draws the noise itself
            stream = self.privacy.stream(r // self.period, partial(generator, self.seed, Stream.NOISE, r))
            if stream is None:
                return None
            self.streams[r] = stream
        return self.streams[r]

    def may_release(self, r: int, n: int) -> bool:
        """Whether a row's budget allows statistics of n more interactions to leave; if not, that is the end."""
        stream = self.stream(r)
        if stream is None or stream.may_release(n):
            return True
        self.spent.add(r)
        return False

    def release(self, r: int, row: Array) -> Sums:
        """What leaves of a row's pending statistics: noised if there is a mechanism, nothing if its budget is spent."""
        sums = pending_sums(row, self.dim)
        stream = self.stream(r)
        if stream is not None and sums.n > 0:
            if not self.may_release(r, sums.n):
                return zero_sums(self.dim)
            sums = stream.release(sums)
        mark_sent(row, self.dim)
        return sums

    def adopt(self, r: int, row: Array, message: Download, own: Sums | None = None) -> None:
        """Give a row what it was sent; others' statistics are mixed with its own, which it knows exactly."""
        sums, slack = message.sums, message.slack
        if not message.own:
            stream = self.stream(r)
            own = stream.own if isinstance(stream, ReleaseStream) else own
            assert own is not None
            sums, slack = mix(own, sums, slack, self.ridge, exact_width(self.plan, own, self.ridge))
        given = shared_row([sums], slack, self.dim, self.ridge, self._scratch)
        if self.fresh:
            adopt(row, given, self.dim, self.ridge, self._scratch)
        else:
            take_over(row, given, self.dim)
        row[VERSION] = message.version

    def state(self) -> State:
        """Every stream, and whose budget is spent."""
        arrays: dict[str, Any] = {}
        for r, stream in self.streams.items():
            arrays |= {f"stream.{r}.{key}": np.asarray(value) for key, value in stream.state().items()}
        return State({"spent": sorted(self.spent)}, arrays)

    def restore(self, state: State) -> None:
        """Go on from there."""
        self.spent = set(state.header["spent"])
        saved: dict[int, dict[str, Any]] = {}
        for key, value in state.arrays.items():
            if key.startswith("stream."):
                _, r, field = key.split(".")
                saved.setdefault(int(r), {})[field] = value
        for row, kept in saved.items():
            stream = self.stream(row)
            assert stream is not None
            stream.restore(kept)
