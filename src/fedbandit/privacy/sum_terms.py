"""What all members of secure sums agree on: the noise of the total, everybody's share of it, and the grid."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError
from fedbandit.privacy.mechanism import Mechanism
from fedbandit.sums import Sums
from fedbandit.types import Array
from fedbandit.world import World

Words = NDArray[np.uint64]
"""Whole numbers modulo 2⁶⁴."""

FINEST, COARSEST = 40, 12
"""Binary digits of the grid below a portion's standard deviation: no more are needed, and no fewer are taken."""

LEVELS = 8
"""How finely excess noise is taken back, at most. With 8 levels between 85 and 100 % of the clients a sum has at most
2 % more variance than it needs."""


@dataclass(frozen=True)
class SumTerms:
    """What secure sums are made by.

    `mechanism` is that of the total: its scale is σ, its n_max the number of epochs. `planned` is the largest norm that
    the weights of one record may have. A sum is opened if `levels[0]` members, the quorum, are in it, of which at most
    `colluding` tell somebody their noise or draw none. No number of any sum is larger than `largest`.
    Where a client's `contribution` is the unit, all its records together may weigh `load` times as much.

    A client's share of the noise is drawn in independent portions, enough for a sum over the quorum. If as many as
    `levels[k]` members are in the sum, portions 1 … k are taken back, so that s members have σ²/(s − colluding) each.
    """

    mechanism: Mechanism
    planned: float
    colluding: int
    levels: tuple[int, ...]
    grid: float
    largest: float
    contribution: int | None = None
    load: float = 1.0

    @property
    def quorum(self) -> int:
        """The fewest members in a sum that is opened."""
        return self.levels[0]

    @property
    def honest(self) -> int:
        """The fewest members whose noise nobody else knows, in a sum that is opened."""
        return self.quorum - self.colluding

    @property
    def epochs(self) -> int:
        """The most sums there will be."""
        return self.mechanism.n_max

    @property
    def words(self) -> int:
        """Numbers in a contribution: b, and the triangle of V."""
        return self._triangle[0].size

    @cached_property
    def _triangle(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        rows, columns = np.triu_indices(self.mechanism.dim + 1)
        return rows[:-1], columns[:-1]  # without the corner

    @cached_property
    def portions(self) -> Array:
        """The variance of each portion of a share, of which σ² is one; the first is never taken back."""
        return portions_of(self.levels, self.colluding)

    @cached_property
    def stds(self) -> Array:
        """The standard deviation of each number of a whole share of noise, in units of the grid."""
        return self.unit_stds / math.sqrt(self.honest)

    @cached_property
    def unit_stds(self) -> Array:
        """That of the noise of the total."""
        rows, columns = self._triangle
        return np.where(rows == columns, math.sqrt(2), 1.0) * (self.mechanism.scale / self.grid)

    def taken_back(self, members: int) -> int:
        """How many portions are taken back in a sum over so many members."""
        return taken_back(self.levels, members)

    def variance(self, members: int, returned: int) -> float:
        """Of the noise in a sum over so many members, of whom so many took back what they may; σ² is one."""
        back = float(self.portions[1 : 1 + self.taken_back(members)].sum())
        return members / self.honest - returned * back

    def flat(self, sums: Sums) -> Array:
        """The triangle of [[V, κb], [κbᵀ, ·]] without its corner, as a vector."""
        d, (rows, columns) = self.mechanism.dim, self._triangle
        M = np.empty((d + 1, d + 1))
        M[:d, :d], M[:d, d] = sums.V, self.mechanism.reward_weight * sums.b
        return M[rows, columns]

    def unflat(self, numbers: Array) -> tuple[Array, Array]:
        """V and b, the inverse of `flat`."""
        d, (rows, columns) = self.mechanism.dim, self._triangle
        M = np.zeros((d + 1, d + 1))
        M[rows, columns] = M[columns, rows] = numbers
        return M[:d, :d].copy(), M[:d, d] / self.mechanism.reward_weight

    def diagonal(self, k: int) -> float:
        """B_kk."""
        factorisation = self.mechanism.factorisation
        return float(factorisation.step(factorisation.start((1,)), k, np.ones(1))[0][0])


def taken_back(levels: tuple[int, ...], members: int) -> int:
    """How many portions are taken back in a sum over so many members.

    >>> [taken_back((8, 9, 10), members) for members in (8, 9, 10)]
    [0, 1, 2]
    """
    return sum(members >= level for level in levels[1:])


def portions_of(levels: tuple[int, ...], colluding: int) -> Array:
    """The variance of a share that always stays, and of portions that are taken back from each further level on.

    >>> portions_of((8, 9, 10), 0).round(4).tolist(), float(portions_of((8, 9, 10), 0).sum())
    ([0.1, 0.0139, 0.0111], 0.125)
    """
    shares = 1 / (np.array(levels, dtype=np.float64) - colluding)
    return np.concatenate([shares[-1:], -np.diff(shares)])


def terms_of_sums(
    mechanism: Mechanism, world: World, honest: int, colluding: int, contribution: int | None, load: float = 1.0
) -> SumTerms:
    """What secure sums are made by, where so many clients are honest and so many collude with the coordinator.

    A sum is opened if enough honest clients are in it, and so many clients that no second one over the epoch can be.
    """
    N = world.n_clients
    quorum = max(honest + colluding, (N + colluding) // 2 + 1)
    levels = tuple(sorted({round(level) for level in np.linspace(quorum, N, min(N - quorum, LEVELS - 1) + 1)}))
    planned = mechanism.factorisation.column_norm(2)
    radius = mechanism.sensitivity / math.sqrt(2)
    smallest = mechanism.scale * math.sqrt(float(portions_of(levels, colluding).min()))
    share = mechanism.scale / math.sqrt(quorum - colluding)
    largest = 64 * (planned * world.horizon * radius + 40 * math.sqrt(N) * share)
    grid = grid_for(smallest, largest)
    # Rounding moves each number of each contribution by a unit of the grid, and floating point by less than that.
    words = (world.dim + 1) * (world.dim + 2) // 2
    slip = math.sqrt(mechanism.n_max * words) * (grid + mechanism.n_max * 2.0**-52 * largest)
    lengthened = 1 + slip / radius
    planned_for = replace(
        mechanism,
        scale=lengthened * mechanism.scale,
        sensitivity=lengthened * mechanism.sensitivity,
        description=f"{mechanism.description}, in sums over {quorum} clients or more",
    )
    return SumTerms(planned_for, planned, colluding, levels, grid, largest, contribution, load)


def grid_for(smallest: float, largest: float) -> float:
    """A power of two on which sums up to `largest` fit 2⁶³, as fine as is of use for noise of this deviation."""
    g = max(math.floor(math.log2(smallest)) - FINEST, math.ceil(math.log2(largest)) - 62)
    if g > math.log2(smallest) - COARSEST:
        raise FedbanditError(
            f"Sums of up to {largest:.3g} with noise of {smallest:.3g} do not fit 64 bits: use fewer clients, a "
            "shorter horizon or smaller bounds."
        )
    return 2.0**g
