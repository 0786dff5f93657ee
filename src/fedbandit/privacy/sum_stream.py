"""Secure sums, the arithmetic: what each client puts into a sum of many, and how the coordinator decodes opened sums.

Only sums over many clients are ever opened (`machines.sums` has the cryptography), so one client's noise is
enough for all of them together. In epoch e client i contributes its *innovation* and a share of the noise,

    u_e = c_e + z_e,        z_e: discrete Gaussians of variance σ²/h on the grid 2^g,       h: honest clients in a sum

as whole numbers modulo 2⁶⁴, and the coordinator decodes the running total from opened sums U_e = Σ u_e as D_e = (B U)_e
(`privacy.factorisation`: A = BC). If everybody always answers, c_e = (C x)_e and D is the running total with noise B z.

*Excess noise.* Shares are enough for the fewest clients with which a sum is opened. If more are in it, each takes back
what is too much, and s clients have σ²/(s − c) each, where c may collude: z_e is drawn in independent portions, and
those that the list of clients in the sum makes superfluous are told after it is settled (`SumTerms.portions`). The rest
is as good as if nothing else had been drawn, so that it costs no privacy. Whoever tells nothing leaves its noise in.

*Absences.* A client that was not in all sums chooses c_e so that the decoder has all of it again. The records that
entered in epoch τ weigh w_{eτ} in c_e; what the decoder has of them is d_e = Σ_{k ≤ e, included} B_ek w_kτ, so

    w_eτ = (1 − d⁰_e)/B_ee,      d⁰_e: the same without epoch e.

Weights depend on nothing but who was in which sum, which is public. The plan has no room for absences: with it (5 %
more noise at 8 epochs, 25 % at 128) nothing is held back, without it 1 % of what clients know if 10 % of them are
absent, and 3 % if 30 % are (14 epochs).

*Guarantee.* One replaced record changes one x_τ by Δ at most, and what was opened by w_eτ Δ in epoch e. Every opened
sum has fresh noise of variance σ² or more, so all of them together are a Gaussian mechanism with the distance
Δ √(Σ_e w_eτ²)/σ, *whatever the pattern of absences*, also one chosen by what was opened before (Smith & Thakurta 2022:
Gaussian budgets add up for adaptively chosen mechanisms while their sum is bounded). A client bounds it itself: Σ w²
counts everything that left, opened or not, and a weight that would exceed the planned norm is cut. What is held back
is sent later, or never. (Cumulative releases with correlated noise have no such claim: of two totals that differ by one
client the noise cancels.) The proof is in docs/privacy-proofs.md, "Secure sums".

*Whole contributions.* If n_τ records entered in epoch τ, replacing all of them changes what is opened in epoch e by
ℓ_e Δ at most, ℓ_e = Σ_τ |w_eτ| n_τ. Then a client bounds √(Σ ℓ_e²), by ‖C P‖ for the portions P that are planned: if
all answer and n ≤ P, that is never exceeded. Whoever comes late, with more at once, is cut: its weights in V and b.

Reference: Kairouz, Liu & Steinke 2021 (sums of discrete Gaussians), Denisov et al. 2022 (B and C), Jiang, Wang & Chen
2024 (taking back excess noise after dropouts).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError, require
from fedbandit.privacy.calibration import gaussian_epsilon
from fedbandit.privacy.mechanism import distance
from fedbandit.privacy.noise import Size, Source
from fedbandit.privacy.sum_terms import SumTerms, Words
from fedbandit.state import StateError, require_arrays_like
from fedbandit.sums import Sums
from fedbandit.types import Array


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


@lru_cache(maxsize=4096)
def _epsilon(far: float, delta: float) -> float:
    return gaussian_epsilon(far, delta) if far > 0 else 0.0


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
        self.excess: Words = np.zeros((terms.portions.size - 1, terms.words), dtype=np.uint64)
        """Portions of the noise in the last contribution that may be taken back; not kept: it is then left in."""
        n = terms.epochs
        self.increments = np.zeros((n, terms.words))  # x_τ, exact
        self.weight = np.zeros(n)  # d_row: what the decoder has of each x_τ
        self.squares = np.zeros(n)  # Σ w² of what has left; where a contribution is the unit Σ ℓ², the same for all τ
        self.offered = np.zeros(n)  # w of the last contribution, of which it is not known whether it was opened
        self.entered = np.zeros(n)  # 1 for each τ at which something entered; where a contribution is the unit n_τ
        self.memory = self.mechanism.factorisation.start((n,))  # the decoder's, for each x_τ

    @property
    def spent_epsilon(self) -> float:
        """The ε of what has left so far, at the mechanism's δ: of the record with the largest Σ w², or of all together.

        Not of the *number* of contributions: a record that enters late weighs as much as one that enters first.
        """
        most = math.sqrt(float(self.squares.max())) / (self.terms.load * self.terms.planned)
        return _epsilon(most * distance(self.mechanism), self.mechanism.delta)

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
        whole = self.terms.contribution is not None
        self.increments[epoch - 1], self.entered[epoch - 1] = self.terms.flat(sums), float(sums.n if whole else 1)
        self.contributed += sums.n
        self.epoch, self.spent = epoch, self.spent + 1
        without, _ = self.mechanism.factorisation.step(self.memory, epoch, 0 * self.offered)
        wanted = (self.entered > 0) * (1 - without) / self.terms.diagonal(epoch)
        room = np.sqrt(np.maximum((self.terms.load * self.terms.planned) ** 2 - self.squares, 0.0))
        if whole:
            weight, left = float(np.abs(wanted) @ self.entered), float(room.min())
            self.offered = wanted * (left / weight) if weight > left else wanted
            self.squares += (np.abs(self.offered) @ self.entered) ** 2
        else:
            self.offered = np.clip(wanted, -room, room)
            self.squares += self.offered**2
        most = self.terms.largest / self.terms.grid  # clipped, not wrapped: neighbours stay as close as they are
        exact = np.rint(np.clip(self.offered @ self.increments / self.terms.grid, -most, most))
        return np.asarray((exact.astype(np.int64) + self._noise(epoch)).view(np.uint64))

    def _noise(self, epoch: int) -> NDArray[np.int64]:
        """This client's share of the noise in one sum: all portions of it."""
        source, stds = self.source(epoch), self.terms.unit_stds
        portions = np.empty((self.terms.portions.size, stds.size), dtype=np.int64)
        for portion, variance in zip(portions, self.terms.portions, strict=True):
            for std in np.unique(stds):
                here = stds == std
                portion[here] = draw_integers(source, float(std) * math.sqrt(variance), int(here.sum()))
        self.excess = portions[1:].view(np.uint64)
        return np.asarray(portions.sum(axis=0))

    def state(self) -> dict[str, Any]:
        """What must survive a crash: arrays and whole numbers."""
        names = ("contributed", "epoch", "spent", "row", "increments", "weight", "squares", "offered", "entered")
        return {**{name: getattr(self, name) for name in names}, "memory": self.memory}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from there."""
        require_arrays_like(saved, self.state())
        if self.terms.contribution is not None and float(np.sum(saved["entered"])) != float(saved["contributed"]):
            raise StateError("The stored contributions do not say how many interactions entered in each epoch.")
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

    def taken_back(self, members: int) -> int:
        """How many portions of their noise members take back in a sum over so many."""
        return self.terms.taken_back(members)

    def opened(self, epoch: int, total: Words, members: int, returned: int) -> Noisy:
        """The running total after this sum over so many members, of whom so many have taken excess noise back."""
        require(
            self.epoch < epoch <= self.terms.epochs, "the epoch", epoch, f"above {self.epoch}: no sum is over twice"
        )
        require(members >= self.quorum, "the number of members in a sum", members, f"{self.quorum} or more")
        factorisation, terms = self.terms.mechanism.factorisation, self.terms
        for k in range(self._row + 1, epoch + 1):
            u, noise = (terms.grid * (k == epoch)) * total.view(np.int64).astype(np.float64), np.zeros(terms.epochs)
            noise[k - 1] = math.sqrt(terms.variance(members, returned)) * (k == epoch)
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
