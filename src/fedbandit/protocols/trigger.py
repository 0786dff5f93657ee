"""When a client speaks: the condition it checks after each of its own observations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

import numpy as np

from fedbandit.engine.fast.jit import compiled_inline
from fedbandit.engine.fast.statistics import BASE_LOGDET, LOGDET, N_OWN, N_PENDING, TIE
from fedbandit.types import Array

Says = Literal["nothing", "upload", "request", "gossip"]
"""What a client sends when its trigger fires."""

Joining = Literal["cold", "warm", "member"]
"""How a client that first acts joins: with nothing, with a download, or as a member from the start."""

Reads = Literal["nothing", "counts", "released", "raw"]
"""What a trigger looks at. A trigger that reads raw data tells an observer about it by its timing."""


class Kind(IntEnum):
    """Which compiled condition a trigger uses."""

    NEVER = 0
    LOGDET = 1
    TIMED_LOGDET = 2
    COUNT = 3


ON_LOGDET, ON_TIMED_LOGDET, ON_COUNT = int(Kind.LOGDET), int(Kind.TIMED_LOGDET), int(Kind.COUNT)


@dataclass(frozen=True)
class Trigger:
    """A condition with one threshold for all clients or one for each, and what it reads.

    `batch` is the least number of pending observations with which a COUNT trigger fires.
    """

    kind: Kind
    thresholds: Array
    reads: Reads
    batch: int = 1

    @classmethod
    def of(cls, kind: Kind, thresholds: float | Array, reads: Reads, batch: int = 1) -> Trigger:
        """A trigger with a threshold, or with one for each client."""
        return cls(kind, np.atleast_1d(np.asarray(thresholds, dtype=np.float64)).copy(), reads, batch)


@compiled_inline
def pick(per_client: Array, i: int) -> float:
    """Entry i of an array with one entry for each client or one for all."""
    return per_client[i] if per_client.shape[0] > 1 else per_client[0]


@compiled_inline
def timed_growth(row: Array) -> float:
    """Δn · log(det V(λ)/det (V − ΔV)(λ))."""
    return row[N_PENDING] * (row[LOGDET] - row[BASE_LOGDET])


@compiled_inline
def triggered(kind: int, threshold: float, batch: int, row: Array) -> bool:
    """Whether a row speaks now.

    - LOGDET: log det V(λ) − log det (V − ΔV)(λ) > threshold                 (Async-LinUCB, Eq. 3)
    - TIMED_LOGDET: Δn · (the same) > threshold                              (Async-LinUCB, Alg. 4 line 10)
    - COUNT: own observations ≥ threshold × those sent so far, ≥ batch pending   (reads no data; ∞: never)
    """
    if kind == ON_LOGDET:
        return row[LOGDET] - row[BASE_LOGDET] > threshold + TIE
    if kind == ON_TIMED_LOGDET:
        return timed_growth(row) > threshold + TIE
    if kind == ON_COUNT:
        sent = row[N_OWN] - row[N_PENDING]
        return row[N_PENDING] >= batch and threshold < math.inf and row[N_OWN] >= threshold * sent - TIE
    return False
