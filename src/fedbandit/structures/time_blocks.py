"""Statistics kept in blocks of time, so that old ones can be dropped: a sliding window, and an adaptive one.

Round r is in epoch e = ⌊r/k⌋. Statistics are kept apart by *slots*, each the sum of some consecutive epochs; which
epochs are in a slot follows from the present epoch E alone, so that sums of everybody stay additive (`forgetting`), and
messages carry the slots that are not zero (docs/protocol.md, "Statistics in blocks").

**Sliding window** of w rounds: k = ⌊w/8⌋ (at least 1), slot e mod m with m = ⌊w/k⌋. What is older than m epochs, the
present one included, is gone: a model is made of the last w − k to w rounds. The granularity k is that of dropping.

**Adaptive window.** Nothing is dropped; epochs are joined with age. [j 2^l, (j + 1) 2^l) is one block as soon as
j ≤ ⌊E/2^l⌋ − 2: a block is never longer than what has passed since it ended, and there are one or two of each
length. A model is made of the newest blocks, as many as pass for one world: with S_i the sum of the newest i of m,

    s_i = q(S_i) + q(S_m − S_i) − q(S_m),    q = bᵀV⁻b/σ²      follows χ² if θ is the same in both parts (`homogeneity`)

If an s_i is above the quantile 1 − LEVEL/(m − 1) of its degrees of freedom, θ has changed: the split that is farthest
above it is the window's new end, and what is left is tested again. So without changes everything counts, after a change
what came before it does not, and where a test was wrong a later one takes all of it back.

Reference: Cheung, Simchi-Levi & Zhu, Learning to Optimize under Non-Stationarity, 2019 (SW-UCB, Alg. 1); Bifet &
Gavaldà, Learning from Time-Changing Data with Adaptive Windowing, 2007 (ADWIN2: exponential histograms, all splits are
tested); Chow 1960 (the statistic).

Deviations:
    D1. How long an epoch of an adaptive window is: in a simulation so many rounds that a model has about as many
        observations as parameters, on a network one period.
    D2. SW-UCB drops observation by observation, for which each of them would have to be kept, and sent; ours epoch
        by epoch.
    D3. ADWIN compares means with Hoeffding's bound, ours compares θ with χ², which holds for Gaussian noise of the σ
        that the policy assumes, and to a good approximation for contexts that were chosen by what was learnt.
    D4. ADWIN drops for good what its test rejects. Ours keeps it, and decides anew: each of the members decides for
        itself by the sums it has, and no message has to say who has dropped what.
"""

from __future__ import annotations

import numpy as np

from fedbandit.forgetting import Forgetting, in_slots
from fedbandit.structures.homogeneity import LEAST_NOISE, critical_value, eliminate
from fedbandit.sums import BlockSums, Sums
from fedbandit.types import Array, Ints

GRAIN = 8
"""Epochs in a sliding window."""
LEVELS = 16
"""Lengths of blocks in an adaptive window: 1, 2, 4, … epochs. What is older than 2^16 epochs is one block."""
LEVEL = 1e-6
"""How probable it is that a look at a window finds a change where there is none."""


class TimeBlocks(Forgetting):
    """What both windows have in common: epochs of `length` rounds, in `slots` slots."""

    dated = True

    def __init__(self, length: int, slots: int) -> None:
        self.length, self.slots = length, slots

    def slot(self, round: int) -> int:
        """Where an observation of this round goes, in it."""
        return int(self.targets(np.array([round // self.length]), round // self.length)[0])

    def targets(self, epochs: Ints, now: int) -> Ints:
        """The slots of epochs in epoch `now`; −1: they are over."""
        raise NotImplementedError

    def first_epochs(self, now: int) -> Ints:
        """The first epoch in each slot, in epoch `now`; −1 if there is none."""
        raise NotImplementedError

    def moves(self, of: int, to: int) -> bool:
        """Whether it is another epoch."""
        return to // self.length > of // self.length

    def moved(self, sums: Sums, of: int, to: int) -> Sums:
        """Some slots are over, or joined."""
        if not self.moves(of, to) or sums.n == 0:
            return sums
        if isinstance(sums, BlockSums):
            return in_slots(sums, self._shift(of, to)[sums.actions])
        V, b = sums.V.copy(), sums.b.copy()
        self.move(V, b, of, to)
        return Sums(V, b, sums.n)

    def move(self, V: Array, b: Array, of: int, to: int) -> None:
        """The same in place."""
        if not self.moves(of, to):
            return
        kept_V, kept_b = V.copy(), b.copy()
        V[:], b[:] = 0.0, 0.0
        for source, target in enumerate(self._shift(of, to).tolist()):
            if target >= 0:
                V[..., target, :, :] += kept_V[..., source, :, :]
                b[..., target, :] += kept_b[..., source, :]

    def put_back(self, sums: Sums, to: int) -> Sums:
        """All of them are of the block that is present then."""
        if not isinstance(sums, BlockSums):
            V, b = np.zeros_like(sums.V), np.zeros_like(sums.b)
            V[self.slot(to)], b[self.slot(to)] = sums.V.sum(axis=0), sums.b.sum(axis=0)
            return Sums(V, b, sums.n)
        return in_slots(sums, np.full(sums.actions.size, self.slot(to)))

    def _shift(self, of: int, to: int) -> Ints:
        first = self.first_epochs(of // self.length)
        return np.where(first >= 0, self.targets(first, to // self.length), -1)

    def used(self, V: Array, b: Array, round: int) -> Ints:  # noqa: ARG002
        """The slots that a model of this round is made of."""
        return np.arange(self.slots)

    def total(self, sums: Sums, round: int) -> Array:
        """The V that a model of this round is made of."""
        return np.asarray(sums.V[self.used(sums.V, sums.b, round)].sum(axis=0))


class SlidingWindow(TimeBlocks):
    """The last `window` rounds."""

    def __init__(self, window: int) -> None:
        length = max(window // GRAIN, 1)
        super().__init__(length, window // length)
        self.window = window

    def targets(self, epochs: Ints, now: int) -> Ints:
        """A ring."""
        return np.where(epochs > now - self.slots, epochs % self.slots, -1)

    def first_epochs(self, now: int) -> Ints:
        """One epoch a slot."""
        slot = np.arange(self.slots)
        return np.asarray(now - (now - slot) % self.slots)


class AdaptiveWindow(TimeBlocks):
    """As many of the last rounds as a test finds no change in, with rewards of standard deviation σ."""

    def __init__(self, length: int, sigma: float) -> None:
        super().__init__(length, 5 + 2 * (LEVELS - 1))
        self.sigma = max(sigma, LEAST_NOISE)

    def targets(self, epochs: Ints, now: int) -> Ints:
        """Level 0 has up to four blocks (slots 0 to 3), level l two (2l + 2, 2l + 3), the last slot the rest."""
        slots = epochs % 4
        for level in range(1, LEVELS + 1):
            block = epochs >> level
            joined = block <= (now >> level) - 2
            slots = np.where(joined, 2 * level + 2 + (block & 1 if level < LEVELS else 0), slots)
        return np.asarray(slots)

    def first_epochs(self, now: int) -> Ints:
        """The first epoch of each block that there is; of the last slot any one that is old enough."""
        first = np.full(self.slots, -1, dtype=np.int64)
        for level in range(LEVELS):
            last = (now >> level) - (2 if level else 0)
            odd = (now >> level) & 1
            for block in range(max((now >> level) - 2 - odd, 0), last + 1):
                slot = block % 4 if level == 0 else 2 * level + 2 + (block & 1)
                first[slot] = block << level
        first[-1] = 0
        return first

    def used(self, V: Array, b: Array, round: int) -> Ints:
        """The newest slots, as far back as they pass for one world."""
        there = np.flatnonzero(b.any(axis=1) | V.any(axis=(1, 2)))
        order = there[np.argsort(-self.first_epochs(round // self.length)[there], kind="stable")]
        newest = np.cumsum(V[order], axis=0), np.cumsum(b[order], axis=0)
        m = order.size
        while m > 1 and (end := self._change(newest[0][:m], newest[1][:m])) > 0:
            m = end
        return np.asarray(order[:m])

    def _change(self, V: Array, b: Array) -> int:
        """How many of the newest blocks are after a change, if there was one; V and b are sums of the newest 1, 2, …"""
        older_V, older_b, m = V[-1] - V[:-1], b[-1] - b[:-1], len(b)
        form, rank, _ = eliminate(np.concatenate((V, older_V)), np.concatenate((b, older_b)))
        s = (form[: m - 1] + form[m:] - form[m - 1]) / self.sigma**2
        df = rank[: m - 1] + rank[m:] - rank[m - 1]
        limits = np.array([critical_value(LEVEL / (m - 1), int(k), 0.0) for k in df])
        ratio = s / limits
        return int(ratio.argmax()) + 1 if ratio.max() > 1.0 else 0
