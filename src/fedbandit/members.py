"""What each member of a federation has released, at its coordinator."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedbandit.forgetting import Forgetting
from fedbandit.sums import Form, Sums, nothing, place
from fedbandit.types import Array, Ints

if TYPE_CHECKING:
    from fedbandit.sharing import Share


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

    def move(self, round: int) -> None:
        """It is this round now: some of what was released before is forgotten."""
        self.forgetting.move(self.V, self.b, self.round, round)
        self.round = round
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
