"""Models of very few observations, without matrices of their own.

With many clients that act seldom, most models have a handful of observations. Such a row is *light*: how often it has
chosen, and its observations (x, y). It is made a full row when its client acts, on what its coordinator last gave it,
so that no download ever has to be applied to it; and it takes an eighth of the memory at d = 10, a fifteenth at d = 25.
"""

from __future__ import annotations

from fedbandit.algebra import Array, add_scaled, clear, copy
from fedbandit.compiled import compiled_lean
from fedbandit.statistics import LINE, N_LISTED, N_OWN, N_PENDING, STEPS, VERSION, build_on, listed_of, pending_b_of

LIGHTLY = 4
"""How many observations a light row may have."""

CHOSEN, COUNT, FIRST = 0, 1, 2  # arms chosen, observations, where they begin


def light_length(dim: int) -> int:
    """How many numbers a light row has."""
    needed = FIRST + LIGHTLY * (dim + 1)
    return needed + -needed % LINE


@compiled_lean
def load_light(light: Array, given: Array, row: Array, d: int, scratch: Array) -> None:
    """Make `row` the full row of a light one, whose coordinator gave it `given`; base is left to `share_base`."""
    row[STEPS] = light[CHOSEN]
    row[VERSION] = 0
    k = int(light[COUNT])
    row[N_OWN] = row[N_PENDING] = row[N_LISTED] = k
    listed, pending_b = listed_of(row, d), pending_b_of(row, d)
    clear(pending_b)
    for i in range(k):
        at = FIRST + i * (d + 1)
        x = light[at : at + d]
        copy(x, listed[i])
        add_scaled(x, light[at + d], pending_b)
    build_on(row, given, d, scratch)


@compiled_lean
def note_observation(light: Array, row: Array, x: Array, y: float) -> None:
    """A light row, for which `row` has chosen, has seen (x, y)."""
    d = x.shape[0]
    k = int(light[COUNT])
    at = FIRST + k * (d + 1)
    light[CHOSEN] = row[STEPS]
    light[COUNT] = k + 1
    copy(x, light[at : at + d])
    light[at + d] = y
