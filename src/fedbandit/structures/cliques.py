"""Maximal cliques of a graph: all of them, or enough to cover everybody where there are too many."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MOST_CLIQUES = 1000
"""A graph can have 3^(N/3) maximal cliques. Beyond this many, `cliques` gives a cover by at most N of them."""

_FEW = 64
_STEPS = 10  # search steps per clique allowed for, so that a search without results ends too


def cliques(edges: NDArray[np.bool_], most: int = MOST_CLIQUES) -> list[list[int]]:
    """All maximal cliques, or, if there are more than `most`, a maximal clique for everyone. Sorted.

    >>> path = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], dtype=bool)
    >>> cliques(path), cliques(path, most=1)
    ([[0, 1], [1, 2]], [[0, 1], [1, 2]])
    """
    neighbours = [_bits(row) & ~(1 << i) for i, row in enumerate(edges)]
    found = _all_cliques(neighbours, most)
    return sorted(_members(clique) for clique in (_cover(neighbours) if found is None else found))


def _all_cliques(neighbours: list[int], most: int) -> list[int] | None:
    """Bron and Kerbosch's search with Tomita's pivot, on sets of bits and without recursion; None if it is too long."""
    found: list[int] = []
    steps = _STEPS * most + 2 * len(neighbours)
    stack = [(0, (1 << len(neighbours)) - 1, 0)]  # in the clique; may be added; were tried before
    while stack:
        clique, free, tried = stack.pop()
        if free == 0:
            if tried == 0:
                found.append(clique)
                if len(found) > most:
                    return None
            continue
        steps -= 1
        if steps < 0:
            return None
        pivot = _best(neighbours, free | tried, free)
        for v in _members(free & ~neighbours[pivot]):
            stack.append((clique | 1 << v, free & neighbours[v], tried & neighbours[v]))
            free &= ~(1 << v)
            tried |= 1 << v
    return found


def _cover(neighbours: list[int]) -> list[int]:
    """A maximal clique for each client that has none yet, grown by others who have none, then by all."""
    found: list[int] = []
    covered = 0
    for i, near in enumerate(neighbours):
        if covered >> i & 1:
            continue
        clique, free = 1 << i, near
        while free:
            v = _best(neighbours, free & ~covered or free, free)
            clique |= 1 << v
            free &= neighbours[v]
        covered |= clique
        found.append(clique)
    return found


def _best(neighbours: list[int], among: int, free: int) -> int:
    """Of the first few, the vertex with most neighbours in `free`; any would do, and to ask all takes longer."""
    return max(_members(among)[:_FEW], key=lambda v: (neighbours[v] & free).bit_count())


def _bits(row: NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(row, bitorder="little").tobytes(), "little")


def _members(bits: int) -> list[int]:
    """The numbers of the bits that are set, ascending."""
    raw = np.frombuffer(bits.to_bytes(bits.bit_length() // 8 + 1, "little"), dtype=np.uint8)
    return np.flatnonzero(np.unpackbits(raw, bitorder="little")).tolist()
