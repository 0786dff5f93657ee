"""Rounds at which everybody is looked at, such as at first often, then ever more seldom: by the clock alone."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right

from fedbandit.errors import whole_number
from fedbandit.model import TIE
from fedbandit.sharing import NEVER, Sharing
from fedbandit.world import World


def own_rounds(actions: int, world: World) -> int:
    """After how many rounds each client has acted `actions` times, on average if one client acts a round."""
    return -(-actions * world.n_clients // world.per_round)


def next_growth(done: int, first: int, growth: float, batch: int, world: World) -> int:
    """After `done` rounds: the next round by which everybody's actions are first · growth^k, and `batch` more at least.

    For `Sharing.next_wake`: everybody is looked at when each client has acted `first` times, on average if one client
    acts a round, and then every time that number has grown by the factor `growth`, and by `batch` at the least.

    >>> world = World(n_clients=3, dim=2, horizon=300, per_round=3)
    >>> [next_growth(done, first=4, growth=1.5, batch=1, world=world) for done in (0, 4, 5, 6, 9)]
    [4, 6, 6, 9, 14]
    """
    actions = first
    while own_rounds(actions, world) <= done:
        actions = max(math.ceil(growth * actions - TIE), actions + batch)
    return own_rounds(actions, world)


class Wakes:
    """The rounds after which a sharing looks at everybody: w₁ = next_wake(0), w₂ = next_wake(w₁), ….

    It is asked when its last answer is reached and never before, so that one that says `done + 5` looks every five
    rounds however often a coordinator wants to know. All of it follows from `next_wake`: no state has it.
    """

    def __init__(self, sharing: Sharing) -> None:
        self._sharing, self._times = sharing, array("q", [0])

    def after(self, done: int) -> int:
        """The first of these rounds after `done`."""
        while (last := self._times[-1]) <= done:
            name = f"{type(self._sharing).__name__}.next_wake({last})"
            self._times.append(min(whole_number(name, self._sharing.next_wake(last), last + 1), NEVER))
        return self._times[bisect_right(self._times, done)]
