"""A long snapshot is kept in blocks, of which only those that have changed are written.

A coordinator that keeps each member's sums has d² numbers a member: 160 MB for 2,000 members at d = 100, of which those
members have changed that have uploaded since the last snapshot. Each block is kept with its digest, so that the store
itself knows what it has, whoever wrote it; the whole snapshot has a checksum of its own (`fedbandit.state`).

Arrays stand at the same places in one snapshot as in the next, as the head before them is filled up to a multiple of
`BLOCK`.

A beginning that is not as long as a block is a whole snapshot, whatever blocks there are: a short one, or one that a
version wrote which knew no blocks, beside those of a newer coordinator.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from fedbandit.state import BLOCK, LONG

_DIGEST = 16


class Block(NamedTuple):
    """A part of a snapshot: its place behind the beginning, counted from 0, its digest, and its bytes."""

    place: int
    digest: bytes
    data: memoryview


def in_blocks(snapshot: bytes) -> tuple[bytes, list[Block]]:
    """The beginning of a snapshot, and the rest in blocks; a short one is all beginning.

    >>> begin, blocks = in_blocks(bytes(LONG + 1))
    >>> len(begin), len(blocks), sum(len(block.data) for block in blocks) + len(begin) == LONG + 1
    (65536, 16, True)
    >>> in_blocks(b"short")
    (b'short', [])
    """
    if len(snapshot) <= LONG:
        return snapshot, []
    whole = memoryview(snapshot)
    rest = [whole[start : start + BLOCK] for start in range(BLOCK, len(whole), BLOCK)]
    digests = [hashlib.blake2b(data, digest_size=_DIGEST).digest() for data in rest]
    return snapshot[:BLOCK], [Block(*block) for block in zip(range(len(rest)), digests, rest, strict=True)]


def of_blocks(begin: bytes, blocks: Iterable[bytes]) -> bytes:
    """The snapshot that `in_blocks` took apart.

    >>> snapshot = bytes(LONG) + b"end"
    >>> begin, blocks = in_blocks(snapshot)
    >>> of_blocks(begin, [bytes(block.data) for block in blocks]) == snapshot
    True
    """
    return b"".join((begin, *blocks)) if len(begin) == BLOCK else begin
