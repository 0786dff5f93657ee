"""The binary tree: noise on sums over dyadic intervals, each drawn once and kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedbandit.errors import require
from fedbandit.types import Array


@dataclass(frozen=True)
class Tree:
    """One node for each release t: the sum of increments (t − lowbit(t), t], with lowbit(12) = 4, lowbit(7) = 1.

    A running sum is the sum of the nodes that the binary digits of k name; 13 = 8 + 4 + 1 needs (0, 8], (8, 12] and
    (12, 13]. So row k of B has popcount(k) ones. Increment 1 is in the nodes 1, 2, 4, 8, …, and no other is in
    more: the largest column of C has `levels` = ⌊log₂ n_max⌋ + 1 ones, ℓ1 norm `levels`, ℓ2 norm √levels.

    Reference: Dwork et al. 2010; Chan, Shi & Song 2011, Alg. 2, whose p-sum with α̂_i fresh is our node.

    Deviations:
        D1. Only nodes that some running sum uses exist. Right children and the unused top of a padded tree, which
            the FedUCB and FCLUB privatisers count (1 + ⌈log₂ n⌉ levels), need no noise and no budget.

    >>> Tree(128).levels, Tree(127).levels, Tree(1).levels
    (8, 7, 1)
    """

    n_max: int

    def __post_init__(self) -> None:
        """Refuse a stream without releases."""
        require(self.n_max >= 1, "n_max", self.n_max, "a whole number ≥ 1")

    @property
    def levels(self) -> int:
        """The largest number of nodes that an increment is in."""
        return self.n_max.bit_length()

    def column_norm(self, order: int, releases: int | None = None) -> float:
        """That of the first increment: `levels` ones, or as many as there are powers of two ≤ `releases`."""
        ones = (self.n_max if releases is None else min(releases, self.n_max)).bit_length()
        return float(ones ** (1 / order))

    def row_norms(self) -> Array:
        """√popcount(k)."""
        return np.sqrt(np.bitwise_count(np.arange(1, self.n_max + 1)).astype(np.float64))

    def encoder(self, releases: int | None = None) -> Array:
        """C[t, i] = 1 where node t contains increment i."""
        t = np.arange(1, (releases or self.n_max) + 1)
        i = t[None, :]
        return ((t - (t & -t))[:, None] < i).astype(np.float64) * (i <= t[:, None])

    def start(self, shape: tuple[int, ...]) -> Array:
        """The current node on each level; zero where there is none."""
        return np.zeros((self.levels, *shape))

    def encode(self, memory: Array, k: int, x: Array) -> tuple[Array, Array]:
        """Node k: increment k and the nodes below, which it replaces."""
        level = (k & -k).bit_length() - 1
        node = x + memory[:level].sum(axis=0)
        memory = memory.copy()
        memory[:level] = 0.0
        memory[level] = node
        return node, memory

    def step(self, memory: Array, k: int, u: Array) -> tuple[Array, Array]:
        """Node k, on the level of its lowest digit, replaces the nodes below it."""
        level = (k & -k).bit_length() - 1
        memory = memory.copy()
        memory[:level] = 0.0
        memory[level] = u
        return memory.sum(axis=0), memory
