"""One client's stream of noised statistics: what leaves the client, and how much of its budget is spent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedbandit.errors import FedbanditError
from fedbandit.privacy.mechanism import Mechanism, State, epsilon_of, release, stack, start, unstack
from fedbandit.privacy.noise import Source
from fedbandit.state import require_arrays_like
from fedbandit.sums import Sums


class ReleaseStream:
    """Turns a client's increments (ΔV, Δb) into noisy ones, each exactly once, until the budget is spent.

    The mechanism releases noisy running sums; what is sent is the difference of two, which tells the same. A retry
    sends the same upload again: asking for noise twice for the same data is not possible.

    `source(k)` gives the random numbers of release k. `contribution`, if not None, is how many interactions a client
    may contribute in all. Where no noise is asked for (ε = ∞), statistics leave as they are, and nothing is capped.
    """

    def __init__(self, mechanism: Mechanism, source: Callable[[int], Source], contribution: int | None = None) -> None:
        self.mechanism = mechanism
        self.source = source
        self.contribution = contribution
        self.contributed = 0
        self._state = start(mechanism)

    @property
    def spent(self) -> int:
        """Releases so far: the client's ledger. It never goes back."""
        return self._state.spent

    @property
    def spent_epsilon(self) -> float:
        """The ε of the releases so far, at the mechanism's δ, if it stopped here."""
        return 0.0 if self.spent == 0 else epsilon_of(self.mechanism, releases=self.spent)

    @property
    def own(self) -> Sums:
        """The exact sums of what has been released: the client's own knowledge."""
        V, b = unstack(self._state.total, self.mechanism.reward_weight)
        return Sums(V.copy(), b.copy(), self.contributed)

    def may_release(self, n: int) -> bool:
        """Whether statistics of n more interactions may leave."""
        if self.mechanism.scale == 0:
            return True
        over = self.contribution is not None and self.contributed + n > self.contribution
        return self.spent < self.mechanism.n_max and not over

    def release(self, sums: Sums) -> Sums:
        """The noisy increment that may leave in place of `sums`."""
        if not self.may_release(sums.n):
            raise FedbanditError(
                f"The privacy budget is spent after {self.spent} releases of {self.contributed} interactions; "
                "nothing more may leave this client."
            )
        weight = self.mechanism.reward_weight
        if self.mechanism.scale == 0:
            total = self._state.total + stack(sums.V, sums.b, weight)
            self._state = self._state._replace(spent=self.spent + 1, total=total, noisy=total)
            self.contributed += sums.n
            return sums
        before = self._state.noisy
        source = self.source(self.spent)
        noisy, self._state = release(self.mechanism, self._state, stack(sums.V, sums.b, weight), source)
        self.contributed += sums.n
        V, b = unstack(noisy - before, weight)
        return Sums(np.ascontiguousarray(V), np.ascontiguousarray(b), sums.n)

    def state(self) -> dict[str, Any]:
        """What must survive a crash, noise included: arrays and whole numbers."""
        return {"contributed": self.contributed, **self._state._asdict()}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from there."""
        require_arrays_like(saved, self.state())
        self.contributed = int(saved["contributed"])
        self._state = State(
            int(saved["spent"]), *(np.asarray(saved[key], dtype=np.float64) for key in State._fields[1:])
        )
