"""Models of very few observations, without matrices of their own.

With many clients that act seldom, most models have a handful of observations. Such a row is *light*: how often it has
chosen, how much it has sent, and the observations (x, y) that it has not. When its client acts, they are put on top of
what its coordinator last gave it, so that no download ever has to be applied to it; and it takes a ninth of the memory
at d = 10, a sixteenth at d = 25.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from fedbandit.engine.fast.algebra import add_scaled, clear, copy
from fedbandit.engine.fast.jit import compiled_apart, compiled_inline, compiled_lean, compiled_view
from fedbandit.engine.fast.persist import checked
from fedbandit.engine.fast.statistics import (
    LINE,
    LOGDET,
    N_LISTED,
    N_OWN,
    N_PENDING,
    STEPS,
    UNREFRESHED,
    VERSION,
    base_b_of,
    inverse_of,
    learn,
    listed_of,
    pending_b_of,
    share_base,
    take_scalars,
    theta_of,
)
from fedbandit.types import Array

LIGHTLY = 3
"""How many observations a light row may have."""

CHOSEN, SENT, COUNT, FIRST = range(4)  # arms chosen, observations sent, others, where these begin


def light_length(dim: int) -> int:
    """How many numbers a light row has."""
    needed = FIRST + LIGHTLY * (dim + 1)
    return needed + -needed % LINE


@compiled_view
def context_of(light: Array, i: int, d: int) -> Array:
    """The context of observation i."""
    return light[FIRST + i * (d + 1) : FIRST + i * (d + 1) + d]


@compiled_inline
def reward_of(light: Array, i: int, d: int) -> float:
    """The reward of observation i."""
    return light[FIRST + i * (d + 1) + d]


@compiled_inline
def pending_end(light: Array, d: int) -> int:
    """Where the observations end."""
    return FIRST + int(light[COUNT]) * (d + 1)


@compiled_inline
def load_scalars(light: Array, given: Array, row: Array) -> None:
    """Put what is said about a light row, whose coordinator gave it `given`, on `row`: all of a row without pending."""
    k = int(light[COUNT])
    row[STEPS] = light[CHOSEN]
    row[VERSION] = 0
    row[N_OWN] = light[SENT] + k
    row[N_PENDING] = row[N_LISTED] = row[UNREFRESHED] = k
    take_scalars(row, given)
    row[LOGDET] = given[LOGDET]


@compiled_lean
def load_model(light: Array, given: Array, row: Array, d: int, u: Array) -> None:
    """Put θ̂ and V(λ)⁻¹ of a light row on `row`, where `load_scalars` has been; u is scratch.

    By Sherman–Morrison, as in `observe`. The rest of a row is left to `complete`.
    """
    theta, inverse = theta_of(row, d), inverse_of(row, d)
    copy(theta_of(given, d), theta)
    copy(inverse_of(given, d), inverse)
    if light[COUNT] == 0:
        return
    product = 1.0
    for i in range(int(light[COUNT])):
        product *= learn(theta, inverse, context_of(light, i, d), reward_of(light, i, d), u)
    row[LOGDET] += math.log(product)


@compiled_apart
def complete(light: Array, given: Array, row: Array, d: int, borrows: bool) -> None:
    """Make `row`, whose model is there, a full row: what is pending, and what it shares with `given`.

    A row that `borrows` leaves its base where it is, as in `rest_on`.
    """
    if borrows:
        copy(base_b_of(given, d), base_b_of(row, d))
    else:
        share_base(row, given, d)
    listed, pending_b = listed_of(row, d), pending_b_of(row, d)
    clear(pending_b)
    for i in range(int(light[COUNT])):
        copy(context_of(light, i, d), listed[i])
        add_scaled(context_of(light, i, d), reward_of(light, i, d), pending_b)


@compiled_inline
def start_light(light: Array) -> None:
    """A light row of nothing; what is in the room for its observations does not matter."""
    light[CHOSEN] = light[SENT] = light[COUNT] = 0.0


@compiled_lean
def note_upload(light: Array, row: Array) -> None:
    """A light row, for which `row` has chosen, has sent all that it had and what it then observed."""
    light[CHOSEN] = row[STEPS]
    light[SENT] = row[N_OWN] + 1
    light[COUNT] = 0.0


def dump_light(lights: Array, d: int) -> dict[str, Array]:
    """What light rows have: numbers, and observations, with zeros where there are none."""
    observations = lights[:, FIRST : FIRST + LIGHTLY * (d + 1)].reshape(len(lights), LIGHTLY, d + 1).copy()
    observations[np.arange(LIGHTLY) >= lights[:, COUNT, None]] = 0.0
    return {"light.numbers": lights[:, :FIRST].copy(), "light.observations": observations}


def load_light(lights: Array, d: int, arrays: Mapping[str, Array]) -> None:
    """Make light rows of it."""
    L = len(lights)
    lights[:, :FIRST] = checked(arrays, "light.numbers", (L, FIRST))
    observations = checked(arrays, "light.observations", (L, LIGHTLY, d + 1))
    lights[:, FIRST : FIRST + LIGHTLY * (d + 1)] = observations.reshape(L, LIGHTLY * (d + 1))


@compiled_lean
def note_observation(light: Array, row: Array, x: Array, y: float) -> None:
    """A light row, for which `row` has chosen, has seen (x, y)."""
    d = x.shape[0]
    k = int(light[COUNT])
    light[CHOSEN] = row[STEPS]
    light[COUNT] = k + 1
    copy(x, context_of(light, k, d))
    light[FIRST + k * (d + 1) + d] = y
