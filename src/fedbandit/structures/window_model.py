"""The model of a client that keeps its statistics in blocks of time (`time_blocks`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedbandit.encoded_sums import all_blocks
from fedbandit.errors import FedbanditError
from fedbandit.model import RidgeModel
from fedbandit.solving import invert
from fedbandit.state import require_arrays_like
from fedbandit.structures.time_blocks import TimeBlocks
from fedbandit.sums import EXACT, BlockSums, Form, Slack, Sums, in_blocks
from fedbandit.types import Array, Ints


class WindowModel(RidgeModel):
    """A ridge regression on the blocks that are in the window; what is exchanged are all blocks.

    The window is looked at when an epoch begins, and when a download is adopted.

    >>> from fedbandit.structures.time_blocks import SlidingWindow
    >>> model = WindowModel(1, 1.0, SlidingWindow(3))
    >>> for round in range(5):
    ...     model.slide(round)
    ...     model.observe(np.array([1.0]), float(round))
    >>> model.V.tolist(), model.b.tolist(), model.n_own
    ([[3.0]], [9.0], 5)
    """

    def __init__(self, dim: int, ridge: float, window: TimeBlocks, partial_noise: float = 0.0) -> None:
        super().__init__(dim, ridge, partial_noise=partial_noise)
        self.window, self.round = window, 0
        self.form = Form(dim, window.slots)
        self._slot = window.slot(0)
        self._used: Ints = np.arange(window.slots)
        self._blocks_V, self._blocks_b = self._empty()  # in common with the coordinator
        self._own_V, self._own_b = self._empty()  # pending

    def _empty(self) -> tuple[Array, Array]:
        return np.zeros((self.window.slots, self.dim, self.dim)), np.zeros((self.window.slots, self.dim))

    def observe(self, x: Array, y: float) -> None:
        """Add the observation (x, y) to the present block."""
        self._own_V[self._slot] += np.multiply.outer(x, x)
        self._own_b[self._slot] += y * x
        super().observe(x, y)

    def slide(self, round: int) -> None:
        """It is this round now."""
        window, before = self.window, self.round
        self.round = round
        if not window.moves(before, round):
            return
        self._slot = window.slot(round)
        if self.n == 0:
            return
        self._blocks_V, self._blocks_b = self._blocks_V.copy(), self._blocks_b.copy()  # others may have them too
        window.move(self._blocks_V, self._blocks_b, before, round)
        window.move(self._own_V, self._own_b, before, round)
        self._look()

    def put_back(self, round: int) -> None:
        """It was never later than this round: what is in any block was observed in it."""
        self.round, self._slot = round, self.window.slot(round)
        self._blocks_V, self._blocks_b, _ = self.window.put_back(Sums(self._blocks_V, self._blocks_b, 0), round)
        self._own_V, self._own_b, _ = self.window.put_back(Sums(self._own_V, self._own_b, 0), round)
        self._look()

    def _look(self) -> None:
        """Which blocks are in the window?"""
        self._use(self.window.used(self._blocks_V + self._own_V, self._blocks_b + self._own_b, self.round))

    def _use(self, used: Ints) -> None:
        self._used = used
        self._shared_V, self._shared_b = self._blocks_V[used].sum(axis=0), self._blocks_b[used].sum(axis=0)
        self._pending_V, self._pending_b = self._own_V[used].sum(axis=0), self._own_b[used].sum(axis=0)
        self._pending_X = None
        self.shared_logdet = invert(self._shared_V, self.ridge)[1]
        self._recompute()

    def pending(self) -> Sums:
        """A copy of the blocks that have something pending."""
        if self.n_pending == 0:
            return self.form.zero()
        blocks = in_blocks(Sums(self._own_V, self._own_b, self.n_pending))
        return BlockSums(blocks.V.copy(), blocks.b.copy(), blocks.n, blocks.actions)

    def in_common(self) -> Sums:
        """All blocks that coordinator and model have in common."""
        return Sums(self._blocks_V, self._blocks_b, self.n - self.n_pending)

    def mark_sent(self) -> None:
        """What was pending is now in common with the coordinator. The model itself does not change."""
        if self.n_pending:
            self._blocks_V, self._blocks_b = self._blocks_V + self._own_V, self._blocks_b + self._own_b
            self._own_V, self._own_b = self._empty()
        super().mark_sent()

    def adopt(self, sums: Sums, slack: Slack = EXACT, version: int = 0) -> None:
        """Replace the blocks in common with the coordinator, and put pending observations back on top."""
        if slack != EXACT:
            raise FedbanditError("A model with a window takes exact statistics only.")
        dense = all_blocks(sums, self.window.slots) if isinstance(sums, BlockSums) else sums
        self._blocks_V, self._blocks_b, self.version = dense.V, dense.b, version
        self.n = sums.n + self.n_pending
        self._look()

    # How it is kept

    def dump(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Numbers and arrays from which `load` makes the same model, to rounding."""
        numbers, _ = super().dump()
        arrays = {"V": self._blocks_V, "b": self._blocks_b, "pending_V": self._own_V, "pending_b": self._own_b}
        used = np.isin(np.arange(self.window.slots), self._used).astype(np.float64)
        return {**numbers, "round": self.round}, {**{name: a.copy() for name, a in arrays.items()}, "used": used}

    def load(self, numbers: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Go on from what `dump` gave."""
        require_arrays_like(arrays, self.dump()[1])
        self.n, self.n_own, self.n_pending = (int(numbers[name]) for name in ("n", "n_own", "n_pending"))
        self.version, self.round = int(numbers["version"]), int(numbers["round"])
        self._slot = self.window.slot(self.round)
        self._blocks_V, self._blocks_b = arrays["V"].copy(), arrays["b"].copy()
        self._own_V, self._own_b = arrays["pending_V"].copy(), arrays["pending_b"].copy()
        self._use(np.flatnonzero(arrays["used"]))
        self.shared_logdet = float(numbers["shared_logdet"])
