"""What each member of a federation has released, at its coordinator."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbandit.forgetting import Forgetting
from fedbandit.state import named
from fedbandit.sums import Form, Relayed, Sums, nothing, place
from fedbandit.types import Array, Ints

if TYPE_CHECKING:
    from fedbandit.sharing import Noise, Share


@dataclass(eq=False)
class Members:
    """What each member has released so far: its own data, never what it downloaded.

    V and b stand in slots: one a member, or where groups never change one a group (`Groups`).
    """

    V: Array  # (slots, d, d), or with a θ for each action (slots, A, f, f)
    b: Array  # (slots, d), or (slots, A, f)
    n: Ints  # (N,)
    releases: Ints  # (N,) uploads that carried something
    variance: float | None = None  # of an entry of V, where the noise is in one total of everybody's
    changes: int = 0
    forgetting: Forgetting = field(default_factory=Forgetting)
    round: int = 0  # V and b are in units of this one
    told: dict[int, float] = field(default_factory=dict)  # of relays: the variance of an entry of what they forwarded
    _shares: dict[Hashable, Share] = field(default_factory=dict, repr=False)

    def add(self, member: int, slot: int, sums: Sums) -> None:
        """A member releases these statistics."""
        if sums.n == 0 and sums is nothing(len(sums.b)):
            return
        at = place(slot, sums)
        self.V[at] += sums.V
        self.b[at] += sums.b
        self.n[member] += sums.n
        self.releases[member] += sums.n > 0
        self.forget_shares()

    def noise_in(self, member: int, noise: Noise) -> float:
        """The variance of an entry of what a member has released: as a relay has told it, or as its releases say."""
        releases = int(self.releases[member])
        if releases == 0:
            return 0.0
        return self.told[member] if member in self.told else noise.variance(member, releases)

    def move(self, round: int) -> None:
        """It is this round now: some of what was released before is forgotten."""
        self.forgetting.move(self.V, self.b, self.round, round)
        self.round = round
        self.forget_shares()

    def note_relayed(self, member: int, relayed: Relayed | None) -> None:
        """What a member that is a relay says about the noise in what it has forwarded."""
        if relayed is not None:
            self.told[member] = relayed.variance
            self.forget_shares()

    def relays(self) -> dict[str, Any]:
        """What relays have told, as arrays."""
        return {f"relayed.{i}": np.array(variance) for i, variance in self.told.items()}

    def restore_relays(self, arrays: Mapping[str, Any]) -> None:
        """Go on from `relays`."""
        self.told = {int(i): float(variance) for i, variance in named(arrays, "relayed.").items()}
        self.forget_shares()

    def forget_shares(self) -> None:
        """Statistics have changed."""
        self.changes += 1
        self._shares.clear()

    def once(self, key: Hashable, share: Callable[[], Share]) -> Share:
        """The share of this key, computed once until somebody releases something: many are sent the same one."""
        if key not in self._shares:
            self._shares[key] = share()
        return self._shares[key]


def no_members(n_clients: int, form: Form, slots: int | None = None) -> Members:
    """Nobody has released anything."""
    shape = (n_clients if slots is None else slots, *form.blocks, form.dim)
    counts = np.zeros(n_clients, dtype=np.int64)
    return Members(np.zeros((*shape, form.dim)), np.zeros(shape), counts, counts.copy())
