"""What privacy has cost in a run: the books of all clients together."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from fedbandit.privacy.mechanism import Mechanism, epsilon_of
from fedbandit.privacy.privacy import Releases
from fedbandit.privacy.sum_stream import SumStream
from fedbandit.types import Array, Ints


@dataclass(frozen=True)
class Ledger:
    """One entry for each client that has released something: how often, and the ε that costs if it stops now.

    `exhausted` are the clients whose cap or contribution is reached: they upload no more and learn alone. `clipped`
    counts rewards beyond the range for which privacy is claimed.

    >>> print(Ledger(np.array([4]), np.array([12]), np.array([1.0]), np.array([4]), clipped=3))
    at most 12 releases and ε = 1 spent by a client; 1 client has reached its cap; 3 rewards clipped
    """

    clients: Ints = field(repr=False)
    releases: Ints = field(repr=False)
    epsilon: Array = field(repr=False)
    exhausted: Ints
    clipped: int

    def summary(self) -> dict[str, Any]:
        """The largest entries, as one JSON-ready object."""
        return {
            "releases": int(self.releases.max(initial=0)),
            "epsilon": float(self.epsilon.max(initial=0.0)),
            "exhausted": self.exhausted.size,
            "clipped": self.clipped,
        }

    def __str__(self) -> str:
        """One line."""
        most, done = self.summary(), self.exhausted.size
        spent = f"at most {most['releases']} releases and ε = {most['epsilon']:.3g} spent by a client; "
        caps = f"{done} client{' has' if done == 1 else 's have'} reached {'its' if done == 1 else 'their'} cap; "
        return (spent if self.clients.size else "") + (caps if done else "") + f"{self.clipped} rewards clipped"

    def arrays(self) -> dict[str, Array | Ints]:
        """For a file."""
        return {f"ledger.{key}": getattr(self, key) for key in ("clients", "releases", "epsilon", "exhausted")}


def read_ledger(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> Ledger | None:
    """From a file."""
    if "ledger.clients" not in arrays:
        return None
    parts = {key.removeprefix("ledger."): value for key, value in arrays.items() if key.startswith("ledger.")}
    return Ledger(**parts, clipped=header["clipped"])


def keep_books(streams: Mapping[int, Releases], exhausted: Collection[int], clipped: int) -> Ledger:
    """The ledger of these streams; of a client that asked for no privacy there is nothing to keep."""
    kept = ((i, stream) for i, stream in sorted(streams.items()) if math.isfinite(stream.mechanism.epsilon))
    spent = {i: stream for i, stream in kept if stream.spent > 0}
    return Ledger(
        np.array(list(spent), dtype=np.int64),
        np.array([stream.spent for stream in spent.values()], dtype=np.int64),
        np.array([_spent_epsilon(stream) for stream in spent.values()], dtype=np.float64),
        np.array(sorted(exhausted), dtype=np.int64),
        clipped,
    )


def _spent_epsilon(stream: Releases) -> float:
    """In secure sums weights decide, not how many there were."""
    return stream.spent_epsilon if isinstance(stream, SumStream) else _epsilon(stream.mechanism, stream.spent)


@lru_cache(maxsize=4096)
def _epsilon(mechanism: Mechanism, releases: int) -> float:
    return epsilon_of(mechanism, releases=releases)
