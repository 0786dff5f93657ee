"""One client's stream of noised sums Σ x y: contexts are public, rewards are not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedbandit.privacy.mechanism import Mechanism, StreamState, release, start
from fedbandit.privacy.noise import Source
from fedbandit.state import require_arrays_like
from fedbandit.sums import Sums
from fedbandit.types import Array


class RewardStream:
    """Turns increments (ΔV, Δb) into (ΔV, noisy Δb), each exactly once.

    When a mechanism has made all the releases it was calibrated for, a new one begins for the records that follow:
    every record is in exactly one of them, so that the guarantee for one interaction does not change. Only the noise
    grows, as the sum of what each left behind.
    """

    def __init__(self, mechanism: Mechanism, source: Callable[[int], Source]) -> None:
        self.mechanism = mechanism
        self.source = source
        self.releases = 0
        self._state = start(mechanism)

    @property
    def spent(self) -> int:
        """Releases so far."""
        return self.releases

    def may_release(self, n: int) -> bool:  # noqa: ARG002 - always
        """Whether statistics of n more interactions may leave."""
        return True

    def release(self, sums: Sums) -> Sums:
        """What may leave in place of `sums`."""
        if self._state.spent == self.mechanism.n_max:
            self._state = start(self.mechanism)
        before = self._state.noisy
        noisy, self._state = release(self.mechanism, self._state, sums.b, self.source(self.releases))
        self.releases += 1
        return Sums(sums.V, noisy - before, sums.n)

    def noise(self) -> Array:
        """How the noise changes by one more release: what `release` would add to its increment."""
        nothing = np.zeros(self.mechanism.dim)
        return self.release(Sums(np.zeros((0, 0)), nothing, 1)).b

    def state(self) -> dict[str, Any]:
        """What must survive a crash, noise included: arrays and whole numbers."""
        return {"releases": self.releases, **self._state._asdict()}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.releases = int(saved["releases"])
        if saved["memory"].shape != self._state.memory.shape:  # of another factorisation: it ends here
            self._state = start(self.mechanism)
            return
        require_arrays_like(saved, self.state())
        self._state = StreamState(
            int(saved["spent"]), *(np.asarray(saved[key], dtype=np.float64) for key in StreamState._fields[1:])
        )
