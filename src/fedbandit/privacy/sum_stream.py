"""Secure sums, the arithmetic: what each client puts into a sum of many, and how the coordinator decodes opened sums.

Only sums over many clients are ever opened (`machines.secure_sum` has the cryptography), so one client's noise is
enough for all of them together. In epoch e client i contributes its *innovation* and a share of the noise,

    u_e = c_e + z_e,        z_e: discrete Gaussian of variance σ²/h on the grid 2^g,        h: honest clients in a sum

as whole numbers modulo 2⁶⁴, and the coordinator decodes the running total from opened sums U_e = Σ u_e as D_e = (B U)_e
(`privacy.factorisation`: A = BC). If everybody always answers, c_e = (C x)_e and D is the running total with noise B z.

*Absences.* A client that was not in all sums chooses c_e so that the decoder has all of it again. The records that
entered in epoch τ weigh w_{eτ} in c_e; what the decoder has of them is d_e = Σ_{k ≤ e, included} B_ek w_kτ, so

    w_eτ = (1 − d⁰_e)/B_ee,      d⁰_e: the same without epoch e.

Weights depend on nothing but who was in which sum, which is public.

*Guarantee.* One replaced record changes one x_τ by Δ at most, and what was opened by w_eτ Δ in epoch e. Every opened
sum has fresh noise of variance σ² or more, so all of them together are a Gaussian mechanism with the distance
Δ √(Σ_e w_eτ²)/σ, *whatever the pattern of absences*, also one chosen by what was opened before (Smith & Thakurta 2022:
Gaussian budgets add up for adaptively chosen mechanisms while their sum is bounded). A client bounds it itself: Σ w²
counts everything that left, opened or not, and a weight that would exceed the planned norm is cut. What is held back
is sent later, or never. (Cumulative releases with correlated noise have no such claim: of two totals that differ by one
client the noise cancels.) The proof is in docs/privacy-proofs.md, "Secure sums".

Reference: Kairouz, Liu & Steinke 2021 (sums of discrete Gaussians), Denisov et al. 2022 (B and C).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError, require
from fedbandit.privacy.mechanism import Mechanism, epsilon_of
from fedbandit.privacy.noise import Size, Source
from fedbandit.state import require_arrays_like
from fedbandit.sums import Sums
from fedbandit.types import Array
from fedbandit.world import World

Words = NDArray[np.uint64]
"""Whole numbers modulo 2⁶⁴."""

FINEST, COARSEST = 40, 12
"""Binary digits of the grid below a share's standard deviation: no more are needed, and no fewer are taken."""


@runtime_checkable
class WholeNumbers(Protocol):
    """A source of exact discrete Gaussians (`privacy.secure`)."""

    def discrete_gaussian(self, std: float, size: int) -> NDArray[np.int64]:
        """Independent discrete Gaussians with this parameter."""
        ...


def draw_integers(source: Source, std: float, size: int) -> NDArray[np.int64]:
    """Discrete Gaussians; from a source for simulations, rounded normals, which at 2¹² and more are as good as that."""
    if isinstance(source, WholeNumbers):
        return source.discrete_gaussian(std, size)
    drawn: Size = (size,)
    return np.rint(std * source.standard_normal(drawn)).astype(np.int64)


def headroom(n_max: int) -> float:
    """By how much absences may lengthen the norm of a record's weights before something is held back.

    With 3 to 50 % of all clients absent at random they lengthen it by 5 % at 8 epochs and 25 % at 128.

    >>> [round(headroom(n), 2) for n in (1, 8, 128)]
    [1.0, 1.05, 1.25]
    """
    return 1.0 + 0.05 * (math.log2(n_max) / 3) ** 1.9 if n_max > 1 else 1.0


@dataclass(frozen=True)
class SumTerms:
    """What all members of secure sums agree on.

    `mechanism` is that of the total: its scale is σ, its n_max the number of epochs. `planned` is the largest norm that
    the weights of one record may have. A sum is opened if `quorum` members are in it, of which `honest` or more draw
    their noise and keep it to themselves. No number of any sum is larger than `largest`.
    """

    mechanism: Mechanism
    planned: float
    honest: int
    quorum: int
    grid: float
    largest: float
    contribution: int | None = None

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
    def stds(self) -> Array:
        """The standard deviation of each number of a share of noise, in units of the grid."""
        rows, columns = self._triangle
        share = self.mechanism.scale / math.sqrt(self.honest) / self.grid
        return np.where(rows == columns, math.sqrt(2), 1.0) * share

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


def terms_of_sums(
    mechanism: Mechanism, world: World, honest: int, colluding: int, contribution: int | None
) -> SumTerms:
    """What secure sums are made by, where so many clients are honest and so many collude with the coordinator.

    A sum is opened if enough honest clients are in it, and so many clients that no second one over the epoch can be.
    """
    N = world.n_clients
    quorum = max(honest + colluding, (N + colluding) // 2 + 1)
    planned = headroom(mechanism.n_max) * mechanism.factorisation.column_norm(2)
    radius = mechanism.sensitivity / math.sqrt(2)
    share = headroom(mechanism.n_max) * mechanism.scale / math.sqrt(honest)
    largest = 64 * (planned * world.horizon * radius + 40 * math.sqrt(N) * share)
    grid = grid_for(share, largest)
    # Rounding moves each number of each contribution by a unit of the grid, and floating point by less than that.
    words = (world.dim + 1) * (world.dim + 2) // 2
    slip = math.sqrt(mechanism.n_max * words) * (grid + mechanism.n_max * 2.0**-52 * largest)
    lengthened = headroom(mechanism.n_max) + slip / radius
    planned_for = replace(
        mechanism,
        scale=lengthened * mechanism.scale,
        sensitivity=lengthened * mechanism.sensitivity,
        description=f"{mechanism.description}, in sums over {quorum} clients or more",
    )
    return SumTerms(planned_for, planned, honest, quorum, grid, largest, contribution)


def grid_for(share: float, largest: float) -> float:
    """A power of two on which sums up to `largest` fit 2⁶³, as fine as is of use for shares of this deviation."""
    g = max(math.floor(math.log2(share)) - FINEST, math.ceil(math.log2(largest)) - 62)
    if g > math.log2(share) - COARSEST:
        raise FedbanditError(
            f"Sums of up to {largest:.3g} with noise shares of {share:.3g} do not fit 64 bits: use fewer clients, a "
            "shorter horizon or smaller bounds."
        )
    return 2.0**g


class SumStream:
    """One client's contributions to secure sums: one for each epoch at most, each with fresh noise.

    `source(k)` gives the random numbers of epoch k.
    """

    def __init__(self, terms: SumTerms, source: Callable[[int], Source]) -> None:
        self.terms = terms
        self.mechanism = terms.mechanism
        self.source = source
        self.contributed = 0
        """Interactions that have entered."""
        self.epoch = 0
        """The last epoch that it contributed to."""
        self.spent = 0
        """Contributions so far, opened or not."""
        self.row = 0
        """The epoch up to which `weight` is known."""
        n = terms.epochs
        self.increments = np.zeros((n, terms.words))  # x_τ, exact
        self.weight = np.zeros(n)  # d_row: what the decoder has of each x_τ
        self.squares = np.zeros(n)  # Σ w² of what has left
        self.offered = np.zeros(n)  # w of the last contribution, of which it is not known whether it was opened
        self.entered = np.zeros(n)  # 1 for each τ at which something entered
        self.memory = self.mechanism.factorisation.start((n,))  # the decoder's, for each x_τ

    @property
    def spent_epsilon(self) -> float:
        """The ε of what has left so far, at the mechanism's δ."""
        return 0.0 if self.spent == 0 else epsilon_of(self.mechanism, releases=self.spent)

    @property
    def own(self) -> Sums:
        """The exact sums of all that has entered: the client's own knowledge."""
        return self._sums(np.ones(self.terms.epochs))

    def part_at(self, epoch: int, included: int) -> Sums | None:
        """What the decoded total of this epoch has of this client; None if that is over. See `advance`."""
        self.advance(epoch, included)
        return self._sums(self.weight) if self.row == epoch else None

    def _sums(self, weights: Array) -> Sums:
        V, b = self.terms.unflat(weights @ self.increments)
        return Sums(V, b, self.contributed)

    def may_release(self, n: int) -> bool:
        """Whether n more interactions may enter."""
        cap = self.terms.contribution
        return self.epoch < self.terms.epochs and not (cap is not None and self.contributed + n > cap)

    def release(self, sums: Sums) -> Sums:
        """Nothing leaves by itself."""
        raise FedbanditError(f"Statistics of {sums.n} interactions leave a client of secure sums in sums only.")

    def advance(self, epoch: int, included: int) -> None:
        """Decode up to this epoch, given the last one in which this client was included."""
        factorisation = self.mechanism.factorisation
        for k in range(self.row + 1, min(epoch, self.terms.epochs) + 1):
            counted = k == self.epoch and included >= k
            weight, self.memory = factorisation.step(self.memory, k, self.offered if counted else 0 * self.offered)
            self.weight, self.row = weight.copy(), k

    def contribute(self, epoch: int, included: int, sums: Sums) -> Words:
        """The words for this epoch: all that has entered, as far as the decoder lacks it, and `sums`, which is new.

        An epoch has one contribution and no other: whoever has lost it keeps what was stored, or stays absent.
        """
        require(self.epoch < epoch <= self.terms.epochs, "the epoch", epoch, f"above {self.epoch}, not beyond the last")
        if not self.may_release(sums.n):
            raise FedbanditError(f"{self.contributed} interactions have entered; {sums.n} more would be too many.")
        self.advance(epoch - 1, included)
        self.increments[epoch - 1], self.entered[epoch - 1] = self.terms.flat(sums), 1.0
        self.contributed += sums.n
        self.epoch, self.spent = epoch, self.spent + 1
        without, _ = self.mechanism.factorisation.step(self.memory, epoch, 0 * self.offered)
        wanted = self.entered * (1 - without) / self.terms.diagonal(epoch)
        room = np.sqrt(np.maximum(self.terms.planned**2 - self.squares, 0.0))
        self.offered = np.clip(wanted, -room, room)
        self.squares += self.offered**2
        most = self.terms.largest / self.terms.grid  # clipped, not wrapped: neighbours stay as close as they are
        exact = np.rint(np.clip(self.offered @ self.increments / self.terms.grid, -most, most))
        return np.asarray((exact.astype(np.int64) + self._noise(epoch)).view(np.uint64))

    def _noise(self, epoch: int) -> NDArray[np.int64]:
        """This client's share of the noise in one sum."""
        source, stds = self.source(epoch), self.terms.stds
        noise = np.empty(stds.size, dtype=np.int64)
        for std in np.unique(stds):
            here = stds == std
            noise[here] = draw_integers(source, float(std), int(here.sum()))
        return noise

    def state(self) -> dict[str, Any]:
        """What must survive a crash: arrays and whole numbers."""
        names = ("contributed", "epoch", "spent", "row", "increments", "weight", "squares", "offered", "entered")
        return {**{name: getattr(self, name) for name in names}, "memory": self.memory}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from there."""
        require_arrays_like(saved, self.state())
        for name, now in self.state().items():
            setattr(self, name, int(saved[name]) if isinstance(now, int) else np.array(saved[name], dtype=np.float64))


class Noisy(NamedTuple):
    """A noisy total, and the variance of an entry of its V (off the diagonal)."""

    V: Array
    b: Array
    variance: float


class OpenedTotal:
    """The coordinator's half: it decodes opened sums into the running total."""

    def __init__(self, terms: SumTerms) -> None:
        self.terms = terms
        self.epoch = 0
        """The last epoch that was opened."""
        factorisation = terms.mechanism.factorisation
        self._memory = factorisation.start((terms.words,))
        self._shares = factorisation.start((terms.epochs,))  # the decoder's, for √(shares of noise in each sum)
        self._spread: Array = np.zeros(terms.epochs)  # row of B times that
        self._row = 0

    @property
    def epochs(self) -> int:
        """The most sums there will be."""
        return self.terms.epochs

    @property
    def quorum(self) -> int:
        """The fewest members in a sum that is opened."""
        return self.terms.quorum

    def opened(self, epoch: int, total: Words, members: int) -> Noisy:
        """The running total after this sum over so many members."""
        require(
            self.epoch < epoch <= self.terms.epochs, "the epoch", epoch, f"above {self.epoch}: no sum is over twice"
        )
        require(members >= self.quorum, "the number of members in a sum", members, f"{self.quorum} or more")
        factorisation, terms = self.terms.mechanism.factorisation, self.terms
        for k in range(self._row + 1, epoch + 1):
            u, noise = (terms.grid * (k == epoch)) * total.view(np.int64).astype(np.float64), np.zeros(terms.epochs)
            noise[k - 1] = math.sqrt(members / terms.honest) * (k == epoch)
            decoded, self._memory = factorisation.step(self._memory, k, u)
            spread, self._shares = factorisation.step(self._shares, k, noise)
            self._spread = spread.copy()
        self._row = self.epoch = epoch
        V, b = terms.unflat(decoded)
        return Noisy(V, b, self._variance)

    @property
    def variance(self) -> float | None:
        """Of an entry of V (off the diagonal) in the last total; None before the first."""
        return None if self.epoch == 0 else self._variance

    @property
    def _variance(self) -> float:
        return self.terms.mechanism.scale**2 * float(self._spread @ self._spread)

    def state(self) -> dict[str, Any]:
        """What must survive a crash."""
        return {"epoch": self.epoch, "memory": self._memory, "shares": self._shares, "spread": self._spread}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from there."""
        require_arrays_like(saved, self.state())
        self.epoch = self._row = int(saved["epoch"])
        self._memory, self._shares, self._spread = (
            np.array(saved[key], dtype=np.float64) for key in ("memory", "shares", "spread")
        )
