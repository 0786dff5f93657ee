"""Triggers and download conditions of the known protocols, compiled."""

from __future__ import annotations

import math
from enum import IntEnum

import numpy as np

from fedbandit.engine.fast.jit import compiled_inline
from fedbandit.engine.fast.statistics import BASE_LOGDET, LOGDET, N_OWN, N_PENDING, TIE
from fedbandit.protocols import CountGrowth, CountTriggered, EventTriggered, Growth, MessageProtocol, TimedGrowth
from fedbandit.protocols.factors import settled
from fedbandit.protocols.trigger import Trigger
from fedbandit.types import Array


class Kind(IntEnum):
    """Which compiled condition stands for a trigger."""

    NEVER = 0
    LOGDET = 1
    TIMED_LOGDET = 2
    COUNT = 3


ON_LOGDET, ON_TIMED_LOGDET, ON_COUNT = int(Kind.LOGDET), int(Kind.TIMED_LOGDET), int(Kind.COUNT)


def kind_of(trigger: Trigger) -> Kind:
    """The condition of a trigger that has a kernel."""
    kinds = {Growth: Kind.LOGDET, TimedGrowth: Kind.TIMED_LOGDET, CountGrowth: Kind.COUNT}
    return kinds.get(type(trigger), Kind.NEVER)


def batch_of(trigger: Trigger) -> int:
    """The least number of pending observations with which a trigger on counts fires."""
    return trigger.batch if isinstance(trigger, CountGrowth) else 1


def log_gamma_download(protocol: MessageProtocol) -> Array:
    """log γ_D of a protocol whose exchange is compiled, of all clients or of each."""
    if isinstance(protocol, EventTriggered):
        return np.log(settled(protocol.gamma_download))
    return np.log(settled(protocol.factor_download)) if isinstance(protocol, CountTriggered) else np.array([math.inf])


@compiled_inline
def pick(per_client: Array, i: int) -> float:
    """Entry i of an array with one entry for each client or one for all."""
    return per_client[i] if per_client.shape[0] > 1 else per_client[0]


@compiled_inline
def triggered(kind: int, threshold: float, batch: int, row: Array) -> bool:
    """Whether a row speaks now (`fedbandit.protocols.trigger`)."""
    if kind == ON_LOGDET:
        return row[LOGDET] - row[BASE_LOGDET] > threshold + TIE
    if kind == ON_TIMED_LOGDET:
        return row[N_PENDING] * (row[LOGDET] - row[BASE_LOGDET]) > threshold + TIE
    if kind == ON_COUNT:
        sent = row[N_OWN] - row[N_PENDING]
        return row[N_PENDING] >= batch and threshold < math.inf and row[N_OWN] >= threshold * sent - TIE
    return False
