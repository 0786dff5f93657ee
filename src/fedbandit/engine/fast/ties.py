"""Which arm wins: one rule for every policy."""

from __future__ import annotations

from fedbandit.engine.fast.algebra import largest
from fedbandit.engine.fast.jit import compiled_inline
from fedbandit.engine.fast.statistics import TIE
from fedbandit.types import Array


@compiled_inline
def winner(scores: Array, n: int) -> int:
    """The lowest of the first n positions whose score is within TIE of the largest."""
    best = largest(scores, n)
    for a in range(n):
        if scores[a] >= best - TIE:
            return a
    return 0
