"""Rounds at which everybody is looked at: at first often, then ever more seldom. They depend on the clock alone."""

from __future__ import annotations

import math

from fedbandit.model import TIE
from fedbandit.world import World


def own_rounds(actions: int, world: World) -> int:
    """After how many rounds each client has acted `actions` times, on average if one client acts a round."""
    return -(-actions * world.n_clients // world.per_round)


def next_growth(done: int, first: int, growth: float, batch: int, world: World) -> int:
    """After `done` rounds: the next round by which everybody's actions are first · growth^k, and `batch` more at least.

    >>> world = World(n_clients=3, dim=2, horizon=300, per_round=3)
    >>> [next_growth(done, 4, 1.5, 1, world) for done in (0, 4, 5, 6, 9)]
    [4, 6, 6, 9, 14]
    """
    actions = first
    while own_rounds(actions, world) <= done:
        actions = max(math.ceil(growth * actions - TIE), actions + batch)
    return own_rounds(actions, world)
