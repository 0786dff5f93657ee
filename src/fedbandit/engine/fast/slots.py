"""Where model rows are: those with matrices, those without, and those of clients that have never acted."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.engine.fast.jit import compiled_lean
from fedbandit.types import Ints


class Seats(NamedTuple):
    """Where in the arrays a model row is.

    A row first gets a light seat, where it has no matrices (`light`), and a full one when it needs
    them: when it has more than a few observations to send, or shares something that no snapshot is of.
    """

    seat_of: Ints  # (rows,) −1 before the row has acted, −2 − k in light seat k, else the full seat
    row_at: Ints  # (capacity,) the row in a full seat
    taken: Ints  # full seats and light seats in use
    met: NDArray[np.bool_]  # (rows,) whether its client has joined a coordinator in Python; (0,) if there is none


FULL, LIGHT = 0, 1

BENCH = -1
"""The last of the rows is nobody's seat: light rows are worked on there."""


@compiled_lean
def take_seat(seats: Seats, r: int) -> int:
    """Give row r the next full seat."""
    seat = seats.taken[FULL]
    seats.taken[FULL] += 1
    seats.seat_of[r] = seat
    seats.row_at[seat] = r
    return seat
