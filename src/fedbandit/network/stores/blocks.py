"""A long snapshot is kept in blocks, of which only those that have changed are written.

A coordinator that keeps each member's sums has d² numbers a member: 160 MB for 2,000 members at d = 100, of which those
members have changed that have uploaded since the last snapshot. Each block is kept with its digest, so that the store
itself knows what it has, whoever wrote it; the whole snapshot has a checksum of its own (`fedbandit.state`).

Arrays stand at the same places in one snapshot as in the next, as the head before them is filled up to a multiple of
`BLOCK`.

The beginning is kept under a mark of its own (`MARK`): a version of fedbandit that knows no blocks, and is the standby
of a newer coordinator, would take the first 64 KiB of a snapshot for a damaged one. It does not know the mark, and says
so. A beginning without the mark is a whole snapshot, whatever blocks there are: a short one, or one of such a version;
unless it is as long as a block: so the first version that knew blocks wrote it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from fedbandit.network.stores.store import Damaged
from fedbandit.state import BLOCK, LONG

MARK = b"FBL1"
_DIGEST = 16


class Block(NamedTuple):
    """A part of a snapshot: its place behind the beginning, counted from 0, its digest, and its bytes."""

    place: int
    digest: bytes
    data: memoryview


def in_blocks(snapshot: bytes) -> tuple[bytes, list[Block]]:
    """The beginning of a snapshot as it is kept, and the rest in blocks; a short one is all beginning.

    >>> begin, blocks = in_blocks(bytes(LONG + 1))
    >>> len(begin), len(blocks), sum(len(block.data) for block in blocks) + BLOCK == LONG + 1
    (65540, 16, True)
    >>> in_blocks(b"short")
    (b'short', [])
    """
    if len(snapshot) <= LONG:
        return snapshot, []
    whole = memoryview(snapshot)
    rest = [whole[start : start + BLOCK] for start in range(BLOCK, len(whole), BLOCK)]
    return MARK + whole[:BLOCK], [Block(place, _digest(data), data) for place, data in enumerate(rest)]


def of_blocks(begin: bytes, blocks: Iterable[tuple[int, bytes, bytes]], journal: str, where: str) -> bytes:
    """The snapshot that `in_blocks` took apart; refused if a block is not the one that was written there.

    >>> snapshot = bytes(LONG) + b"end"
    >>> begin, blocks = in_blocks(snapshot)
    >>> kept = [(place, digest, bytes(data)) for place, digest, data in blocks]
    >>> of_blocks(begin, kept, "shops", "memory") == snapshot
    True
    >>> of_blocks(begin, [*kept[:2], (2, kept[2][1], b"rot"), *kept[3:]], "shops", "memory")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fedbandit.network.stores.store.Damaged: The store memory is damaged: block 2 of the snapshot of 'shops' is not ...
    """
    if begin.startswith(MARK):
        begin = begin[len(MARK) :]
    elif len(begin) != BLOCK:
        return begin
    parts = [begin]
    for expected, (place, digest, data) in enumerate(blocks):
        if place != expected or _digest(data) != digest:
            why = f"block {expected} of the snapshot of {journal!r} is not as it was written"
            raise Damaged(f"The store {where} is damaged: {why}; keep it and restore its newest backup.", why, journal)
        parts.append(data)
    return b"".join(parts)


def _digest(data: bytes | memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST).digest()
