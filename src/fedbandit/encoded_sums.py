"""Sufficient statistics as bytes, little endian.

    one θ:                   n (u64) · b (d floats) · the lower triangle of V (d(d+1)/2 floats)
    one θ for each action:   n (u64) · A (u32) · m (u32) · m actions (u64, ascending) · their b (m·f floats) · their
                             triangles (m·f(f+1)/2 floats); the blocks of all other actions are zero

`docs/protocol.md` has them for clients in other languages.
"""

from __future__ import annotations

import math
import struct
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError
from fedbandit.sums import BlockSums, FactoredSums, Slack, Sums, in_blocks
from fedbandit.types import Array

COUNT = struct.Struct("<Q")
SLACK = struct.Struct("<6d")
_LARGEST = 2**16
"""Features of a block that a message without any may declare."""
_MOST_SCALARS = 2**28
"""Scalars of all blocks together: 2 GB."""
_BLOCKS = struct.Struct("<II")


def statistics_scalars(dim: int) -> int:
    """Numbers in one transfer of statistics: b and the triangle of V.

    >>> statistics_scalars(25)
    350
    """
    return dim * (dim + 1) // 2 + dim


def factor_size(dim: int, rank: int) -> int:
    """Bytes of statistics as a factor: n, c and L."""
    return COUNT.size + 8 * rank * (dim + 1)


def encode_factor(sums: FactoredSums) -> bytes:
    """n, c, and L row by row."""
    return COUNT.pack(sums.n) + sums.c.astype("<f8").tobytes() + sums.L.astype("<f8").tobytes()


def decode_factor(data: bytes, dim: int, rank: int, start: int) -> FactoredSums:
    """What `encode_factor` gave."""
    (n,) = COUNT.unpack_from(data, start)
    numbers = np.frombuffer(data, "<f8", rank * (dim + 1), start + COUNT.size).astype(np.float64)
    if not (np.abs(numbers) < 1e150).all():  # squares are finite
        raise FedbanditError("The message carries statistics that are not finite.")
    return FactoredSums(numbers[rank:].reshape(dim, rank), numbers[:rank], n)


def dim_of(scalars: int) -> int:
    """The d with so many numbers in a transfer of statistics.

    >>> dim_of(350)
    25
    """
    return (math.isqrt(9 + 8 * scalars) - 3) // 2


def sums_size(dim: int, blocks: int | None = None) -> int:
    """Bytes of encoded statistics, or of so many blocks of them."""
    if blocks is None:
        return COUNT.size + 8 * statistics_scalars(dim)
    return COUNT.size + _BLOCKS.size + 8 * blocks * (1 + statistics_scalars(dim))


def blocks_in(data: bytes, start: int) -> int:
    """How many blocks encoded statistics say that they have; 0 if they end before they say it."""
    at = start + COUNT.size
    return int(_BLOCKS.unpack_from(data, at)[1]) if len(data) >= at + _BLOCKS.size else 0


def count_blocks(sums: Sums) -> int:
    """How many blocks statistics have, one for each action, that are not zero."""
    if isinstance(sums, BlockSums):
        return sums.actions.size
    return int(np.count_nonzero(sums.b.any(axis=1) | sums.V.any(axis=(1, 2))))


@lru_cache(maxsize=8)
def _triangle(dim: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    return np.tril_indices(dim)


@lru_cache(maxsize=8)
def _square(dim: int) -> NDArray[np.intp]:
    """Where each entry of a symmetric matrix stands in its triangle: one gather is faster than two scatters."""
    rows, columns = _triangle(dim)
    index = np.empty((dim, dim), dtype=np.intp)
    index[rows, columns] = index[columns, rows] = np.arange(rows.size)
    return index


def encode_sums(sums: Sums, actions: int = 0) -> bytes:
    """Statistics as bytes; with `actions`, those blocks that are not zero."""
    if not actions:
        rows, columns = _triangle(sums.b.size)
        return COUNT.pack(sums.n) + sums.b.astype("<f8").tobytes() + sums.V[rows, columns].astype("<f8").tobytes()
    given = in_blocks(sums)
    head = COUNT.pack(sums.n) + _BLOCKS.pack(actions, given.actions.size)
    if given.actions.size == 0:
        return head
    rows, columns = _triangle(sums.b.shape[-1])
    arrays = given.actions.astype("<u8"), given.b.astype("<f8"), given.V[:, rows, columns].astype("<f8")
    return head + b"".join(array.tobytes() for array in arrays)


def decode_sums(data: bytes, dim: int, start: int) -> Sums:
    """The statistics that begin there."""
    (n,) = COUNT.unpack_from(data, start)
    numbers = _finite(data, statistics_scalars(dim), start + COUNT.size)
    return Sums(_squares(numbers[dim:], dim), numbers[:dim].astype(np.float64), n)


def decode_blocks(data: bytes, dim: int, start: int) -> tuple[BlockSums, int]:
    """The statistics of some actions that begin there, and of how many actions they are."""
    (n,) = COUNT.unpack_from(data, start)
    total, m = _BLOCKS.unpack_from(data, start + COUNT.size)
    begin = start + COUNT.size + _BLOCKS.size
    if m == 0:  # no length tells whether `dim` is plausible: nothing may be made of it
        if dim > _LARGEST:
            raise FedbanditError(f"The message has blocks of {dim:,} features, but at most {_LARGEST:,} are taken.")
        return BlockSums(np.empty((0, dim, dim)), np.empty((0, dim)), n, np.empty(0, dtype=np.int64)), total
    actions = np.frombuffer(data, "<u8", m, begin)
    if not ((actions[1:] > actions[:-1]).all() and actions[-1] < total):
        raise FedbanditError(f"The message has statistics of actions that are not ascending numbers below {total}.")
    numbers = _finite(data, m * statistics_scalars(dim), begin + 8 * m)
    V = _squares(numbers[m * dim :].reshape(m, dim * (dim + 1) // 2), dim)
    return BlockSums(V, numbers[: m * dim].reshape(m, dim).astype(np.float64), n, actions.astype(np.int64)), total


def all_blocks(sums: BlockSums, actions: int) -> Sums:
    """The same statistics with the blocks of all actions, zero or not; how many there are was said by a stranger."""
    dim = sums.b.shape[-1]
    if actions * dim**2 > _MOST_SCALARS:
        raise FedbanditError(f"The message is of {actions:,} actions with {dim:,} features each: more than fits.")
    V, b = np.zeros((actions, *sums.V.shape[1:])), np.zeros((actions, *sums.b.shape[1:]))
    V[sums.actions], b[sums.actions] = sums.V, sums.b
    return Sums(V, b, sums.n)


def _finite(data: bytes, count: int, start: int) -> Array:
    numbers = np.frombuffer(data, "<f8", count, start)
    if not np.isfinite(numbers).all():
        raise FedbanditError("The message carries statistics that are not finite.")
    return numbers


def _squares(triangles: Array, dim: int) -> Array:
    return triangles.take(_square(dim), axis=-1).astype(np.float64, copy=False)


def on_grid(known: float) -> float:
    """What an upload says of what is known, to the nearest multiple of 2⁻³⁰: less than `TIE`.

    Log-determinants differ in their last bits from one machine to another. Whole uploads should not.

    >>> on_grid(0.1) == on_grid(0.1 + 1e-12), on_grid(-1e300)
    (True, -1e+300)
    """
    return round(known * 2**30) / 2**30 if abs(known) < 2**20 else known


def decode_slack(data: bytes) -> Slack:
    """The numbers that end a download."""
    slack = Slack(*SLACK.unpack_from(data, len(data) - SLACK.size))
    if not all(math.isfinite(number) for number in slack):
        raise FedbanditError(f"The message carries {slack}, which is not finite.")
    return slack
