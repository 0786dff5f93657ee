"""What checkpoints keep of rows, hub and delayed rewards: statistics (V, b, n …), never the layout of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit.engine.fast.algebra import copy
from fedbandit.engine.fast.jit import compiled_apart
from fedbandit.engine.fast.packed import add_unpacked, pack
from fedbandit.engine.fast.rewards import Late
from fedbandit.engine.fast.row import (
    BASE_LOGDET,
    HEAD,
    N_OWN,
    N_PENDING,
    SLACK,
    STEPS,
    VERSION,
    N,
    base_b_of,
    base_of,
    folded_of,
    pending_b_of,
    start_row,
)
from fedbandit.engine.fast.statistics import add_pending_unpacked, refresh, scratch_matrix
from fedbandit.state import State, stored
from fedbandit.types import Array

Arrays = dict[str, NDArray[Any]]

NUMBERS = (N, N_OWN, N_PENDING, VERSION, STEPS, BASE_LOGDET)
"""Of each row, beside its statistics and its slack."""


def dump_rows(rows: Array, d: int, prefix: str) -> Arrays:
    """The statistics of full rows."""
    R = len(rows)
    V, pending_V = np.zeros((R, d, d)), np.zeros((R, d, d))
    b, pending_b = np.zeros((R, d)), np.zeros((R, d))
    _read(rows, d, V, b, pending_V, pending_b)
    kept = {"V": V, "b": b, "pending_V": pending_V, "pending_b": pending_b}
    kept |= {"numbers": rows[:, NUMBERS], "slack": rows[:, SLACK:HEAD].copy()}
    return {f"{prefix}.{name}": array for name, array in kept.items()}


def load_rows(rows: Array, d: int, prefix: str, state: State, ridge: float, *, fresh: bool = True) -> None:
    """Make rows of these statistics; inverses, θ̂ and log-determinants are computed, without pending if not `fresh`."""
    R = len(rows)
    shapes = {"V": (R, d, d), "b": (R, d), "pending_V": (R, d, d), "pending_b": (R, d), "numbers": (R, len(NUMBERS))}
    got = {name: stored(state, f"{prefix}.{name}", shape) for name, shape in shapes.items()}
    rows[:] = 0.0
    rows[:, SLACK:HEAD] = stored(state, f"{prefix}.slack", (R, HEAD - SLACK))
    rows[:, NUMBERS] = got["numbers"]
    _write(rows, d, got["V"], got["b"], got["pending_V"], got["pending_b"], ridge, scratch_matrix(d), fresh)
    rows[:, BASE_LOGDET] = got["numbers"][:, NUMBERS.index(BASE_LOGDET)]


def dump_given(rows: Array, d: int, prefix: str) -> Arrays:
    """The statistics of rows without pending observations: a coordinator's sums, and snapshots of them."""
    V, b = np.zeros((len(rows), d, d)), np.zeros((len(rows), d))
    _read_given(rows, d, V, b)
    kept = {"V": V, "b": b, "n": rows[:, N].copy(), "slack": rows[:, SLACK:HEAD].copy()}
    return {f"{prefix}.{name}": array for name, array in kept.items()}


def load_given(rows: Array, d: int, prefix: str, state: State, ridge: float) -> None:
    """Make such rows of these statistics."""
    R = len(rows)
    V, b = stored(state, f"{prefix}.V", (R, d, d)), stored(state, f"{prefix}.b", (R, d))
    rows[:] = 0.0
    rows[:, N] = stored(state, f"{prefix}.n", (R,))
    rows[:, SLACK:HEAD] = stored(state, f"{prefix}.slack", (R, HEAD - SLACK))
    _write_given(rows, d, V, b, ridge, scratch_matrix(d))


def dump_late(late: Late) -> Arrays:
    """Rewards under way, in the order in which they will be seen, by the place in the ring at which they are due."""
    entries = []
    for due, entry in enumerate(late.first.tolist()):
        while entry >= 0:
            entries.append((due, entry))
            entry = int(late.following[entry])
    at = np.array([entry for _, entry in entries], dtype=np.int64)
    kept = {"due": np.array([due for due, _ in entries], dtype=np.int64), "entry": at}
    return {f"late.{k}": v for k, v in (kept | {"row": late.row[at], "x": late.x[at], "y": late.y[at]}).items()}


def load_late(late: Late, state: State) -> None:
    """Put them back into an empty ring."""
    dues, entries = state.arrays["late.due"], stored(state, "late.entry", state.arrays["late.due"].shape)
    late.first[:] = late.last[:] = late.following[:] = -1
    late.row[entries] = stored(state, "late.row", entries.shape)
    late.x[entries] = stored(state, "late.x", (entries.size, late.x.shape[1]))
    late.y[entries] = stored(state, "late.y", entries.shape)
    for due, entry in zip(dues.tolist(), entries.tolist(), strict=True):
        if late.first[due] < 0:
            late.first[due] = entry
        else:
            late.following[late.last[due]] = entry
        late.last[due] = entry


@compiled_apart
def _read(rows: Array, d: int, V: Array, b: Array, pending_V: Array, pending_b: Array) -> None:
    for k in range(rows.shape[0]):
        add_unpacked(base_of(rows[k], d), V[k])
        copy(base_b_of(rows[k], d), b[k])
        add_pending_unpacked(rows[k], d, pending_V[k])
        copy(pending_b_of(rows[k], d), pending_b[k])


@compiled_apart
def _write(
    rows: Array,
    d: int,
    V: Array,
    b: Array,
    pending_V: Array,
    pending_b: Array,
    ridge: float,
    scratch: Array,
    fresh: bool,
) -> None:
    for k in range(rows.shape[0]):
        pack(V[k], base_of(rows[k], d))
        copy(b[k], base_b_of(rows[k], d))
        if not fresh:
            refresh(rows[k], d, ridge, scratch)
        pack(pending_V[k], folded_of(rows[k], d))
        copy(pending_b[k], pending_b_of(rows[k], d))
        if fresh:
            refresh(rows[k], d, ridge, scratch)


@compiled_apart
def _read_given(rows: Array, d: int, V: Array, b: Array) -> None:
    for k in range(rows.shape[0]):
        add_unpacked(base_of(rows[k], d), V[k])
        copy(base_b_of(rows[k], d), b[k])


@compiled_apart
def _write_given(rows: Array, d: int, V: Array, b: Array, ridge: float, scratch: Array) -> None:
    for k in range(rows.shape[0]):
        if rows[k, N] == 0:
            start_row(rows[k], d, ridge)
        else:
            pack(V[k], base_of(rows[k], d))
            copy(b[k], base_b_of(rows[k], d))
            refresh(rows[k], d, ridge, scratch)
