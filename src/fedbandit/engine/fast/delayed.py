"""Rewards that come later than their arms are pulled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedbandit.engine.fast.algebra import copy
from fedbandit.engine.fast.jit import compiled_apart
from fedbandit.types import Array, Ints


class Late(NamedTuple):
    """Rewards that are still under way: a list for each interaction at which some are due, in a ring."""

    first: Ints  # (M+1,) by due interaction mod M+1: the first entry, −1 for none
    last: Ints
    following: Ints  # (M+1,) by entry
    row: Ints
    x: Array  # (M+1, d)
    y: Array


def no_late(longest: int, dim: int) -> Late:
    """An empty ring for delays of up to `longest` interactions."""
    size = longest + 1
    return Late(
        np.full(size, -1),
        np.full(size, -1),
        np.full(size, -1),
        np.zeros(size, dtype=np.int64),
        np.zeros((size, dim)),
        np.zeros(size),
    )


@compiled_apart
def send_later(late: Late, now: int, delay: int, r: int, x: Array, y: float) -> None:
    """Row r will see the reward y of context x after `delay` more interactions; first chosen, first seen."""
    ring = late.first.shape[0]
    entry = now % ring
    due = (now + min(delay, ring - 1)) % ring  # the ring is as long as the run: what is later is never seen
    late.following[entry] = -1
    late.row[entry] = r
    copy(x, late.x[entry])
    late.y[entry] = y
    if late.first[due] < 0:
        late.first[due] = entry
    else:
        late.following[late.last[due]] = entry
    late.last[due] = entry
