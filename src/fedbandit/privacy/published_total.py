"""A trusted coordinator's total: clients tell it their statistics as they are, and it noises once what it publishes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fedbandit.privacy.mechanism import Mechanism, noise_std
from fedbandit.privacy.noise import Source
from fedbandit.privacy.release_stream import ReleaseStream
from fedbandit.privacy.sum_stream import Noisy
from fedbandit.sums import Sums, zero_sums


class PublishedTotal:
    """Everybody's statistics together, with the noise of one client.

    *Guarantee.* One replaced record changes one increment of the total by Δ at most, whoever has it, so the published
    running totals are what one client's stream would be (`gram_mechanism`): (ε, δ)-DP against all other clients and
    whoever else sees downloads. The coordinator sees everything.
    """

    def __init__(self, mechanism: Mechanism, source: Callable[[int], Source]) -> None:
        self.stream = ReleaseStream(mechanism, source)
        self._std = noise_std(mechanism)
        self._new = zero_sums(mechanism.dim)  # what no publication has yet
        self._noisy = zero_sums(mechanism.dim)

    @property
    def epochs(self) -> int:
        """The most publications there will be."""
        return self.stream.mechanism.n_max

    @property
    def epoch(self) -> int:
        """Publications so far."""
        return self.stream.spent

    def add(self, sums: Sums) -> None:
        """A client has uploaded this."""
        self._new = Sums(self._new.V + sums.V, self._new.b + sums.b, self._new.n + sums.n)

    def publish(self) -> Noisy | None:
        """The running total with fresh noise, drawn once; None if nothing is new or the budget is spent."""
        if self._new.n == 0 or not self.stream.may_release(self._new.n):
            return None
        noisy = self.stream.release(self._new)
        self._new = zero_sums(self._new.b.size)
        self._noisy = Sums(self._noisy.V + noisy.V, self._noisy.b + noisy.b, self._noisy.n + noisy.n)
        assert self.variance is not None
        return Noisy(self._noisy.V, self._noisy.b, self.variance)

    @property
    def variance(self) -> float | None:
        """Of an entry of V (off the diagonal) in the last publication; None before the first."""
        streams, k = divmod(self.epoch, self._std.size)
        last = float(self._std[k - 1]) ** 2 if k else 0.0
        return None if self.epoch == 0 else streams * float(self._std[-1]) ** 2 + last

    def state(self) -> dict[str, Any]:
        """What must survive a crash, noise included."""
        kept = {f"stream_{key}": value for key, value in self.stream.state().items()}
        for name, sums in (("new", self._new), ("noisy", self._noisy)):
            kept |= {f"{name}_{key}": value for key, value in sums._asdict().items()}
        return kept

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.stream.restore({key: saved[f"stream_{key}"] for key in self.stream.state()})
        self._new, self._noisy = (
            Sums(saved[f"{name}_V"].copy(), saved[f"{name}_b"].copy(), int(saved[f"{name}_n"]))
            for name in ("new", "noisy")
        )
