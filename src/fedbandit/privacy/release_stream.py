"""One client's stream of noised statistics: what leaves the client, and how much of its budget is spent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedbandit.errors import FedbanditError
from fedbandit.privacy.mechanism import Mechanism, StreamState, epsilon_of, release, stack, start, unstack
from fedbandit.privacy.noise import Source
from fedbandit.state import require_arrays_like
from fedbandit.sums import Sums


class ReleaseStream:
    """Turns a client's increments (ΔV, Δb) into noisy ones, each exactly once.

    The mechanism releases noisy running sums; what is sent is the difference of two, which tells the same. A retry
    sends the same upload again: asking for noise twice for the same data is not possible.

    Where one interaction is the unit, a mechanism that has made all its releases is followed by a new one for the
    records that follow: each record is in exactly one of them, so that the claim does not change; only noise adds up.
    Where a client's `contribution` is the unit, nothing more leaves it then. `portions` are the most interactions that
    each release may have: one that is too large for the next takes the place of a later one.

    `source(k)` gives the random numbers of release k. Where no noise is asked for (ε = ∞), statistics leave as they
    are, and nothing is capped. `former` makes the mechanism of streams that were begun by an older version.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        source: Callable[[int], Source],
        contribution: int | None = None,
        *,
        portions: tuple[int, ...] = (),
        former: Callable[[], Mechanism] | None = None,
    ) -> None:
        self.mechanism = self._planned = mechanism
        self.source = source
        self.contribution = contribution
        self.portions = portions
        self.contributed = 0
        self._former = former
        self._state = start(mechanism)
        self._earlier = 0  # releases of mechanisms before this one

    @property
    def spent(self) -> int:
        """Releases so far: the client's ledger. It never goes back."""
        return self._earlier + self._state.spent

    @property
    def spent_epsilon(self) -> float:
        """The ε of the releases so far, at the mechanism's δ, if it stopped here."""
        return 0.0 if self.spent == 0 else epsilon_of(self.mechanism, releases=min(self.spent, self.mechanism.n_max))

    @property
    def own(self) -> Sums:
        """The exact sums of what has been released: the client's own knowledge."""
        V, b = unstack(self._state.total, self.mechanism.reward_weight)
        return Sums(V.copy(), b.copy(), self.contributed)

    def may_release(self, n: int) -> bool:
        """Whether statistics of n more interactions may leave."""
        if self.mechanism.scale == 0 or self.contribution is None:
            return True
        return self.contributed + n <= self.contribution and self._skipped(n) is not None

    def _skipped(self, n: int) -> int | None:
        """How many releases are too small for n interactions; None if all that are left are."""
        left = range(self._state.spent, self.mechanism.n_max)
        if not self.portions:
            return 0 if left else None
        return next((e - self._state.spent for e in left if e < len(self.portions) and n <= self.portions[e]), None)

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
            self._state = self._state._replace(spent=self._state.spent + 1, total=total, noisy=total)
            self.contributed += sums.n
            return sums
        if self.contribution is None and self._state.spent >= self.mechanism.n_max:
            self._begin_anew()
        before = self._state.noisy
        increment = stack(sums.V, sums.b, weight)
        for _ in range(self._skipped(sums.n) or 0 if self.contribution is not None else 0):
            _, self._state = release(self.mechanism, self._state, np.zeros_like(increment), self.source(self.spent))
        noisy, self._state = release(self.mechanism, self._state, increment, self.source(self.spent))
        self.contributed += sums.n
        V, b = unstack(noisy - before, weight)
        return Sums(np.ascontiguousarray(V), np.ascontiguousarray(b), sums.n)

    def _begin_anew(self) -> None:
        self._earlier, total = self.spent, self._state.total
        self.mechanism = self._planned
        self._state = start(self.mechanism)._replace(total=total)

    def state(self) -> dict[str, Any]:
        """What must survive a crash, noise included: arrays and whole numbers; `spent` counts all releases."""
        return {"contributed": self.contributed, **self._state._asdict(), "spent": self.spent}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from there."""
        if saved["memory"].shape != self._state.memory.shape and self._former is not None:
            self.mechanism = self._former()
            self._state = start(self.mechanism)
        require_arrays_like(saved, self.state())
        self.contributed, spent = int(saved["contributed"]), int(saved["spent"])
        # Each mechanism makes all its releases before the next begins; without noise there is but one.
        last = spent if self.mechanism.scale == 0 or spent == 0 else (spent - 1) % self.mechanism.n_max + 1
        self._earlier = spent - last
        self._state = StreamState(last, *(np.asarray(saved[key], dtype=np.float64) for key in StreamState._fields[1:]))
