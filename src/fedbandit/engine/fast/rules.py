"""What a compiled loop is told of the protocol, its triggers, and what it says when it comes back."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from fedbandit.engine.fast.jit import compiled_inline
from fedbandit.engine.fast.row import BASE_LOGDET, LOGDET, N_OWN, N_PENDING
from fedbandit.model import TIE
from fedbandit.protocols import (
    CountGrowth,
    CountTriggered,
    EventTriggered,
    Growth,
    MessageProtocol,
    Silence,
    Synchronous,
    TimedGrowth,
)
from fedbandit.protocols.factors import settled
from fedbandit.protocols.trigger import Trigger
from fedbandit.rewards import RewardPlan
from fedbandit.types import Array


class LoopRules(NamedTuple):
    """The protocol as the loop sees it."""

    kind: int
    thresholds: Array
    ridge: float
    speaks: bool  # there is a coordinator
    fused: bool  # an upload may be handled here
    calls: bool  # whoever speaks has everybody upload and download
    counting: bool
    warm: bool  # a row that first acts has what there is
    joining_counts: bool  # and that is a download
    blank: Array  # a full row without observations
    batch: int  # the least number of pending observations with which a COUNT trigger fires
    fresh: bool  # a model learns from observations at once, not only from what is released
    perturbed: bool  # rewards are checked, and may be noised, before anything is learnt from them
    rewards: RewardPlan


class Pause(NamedTuple):
    """Where the loop stopped: continue at `resume`; the cause arose in interaction `at`, at `slot`."""

    resume: int
    status: int
    slot: int
    at: int


class Status(IntEnum):
    """Why the loop came back."""

    DONE = 0  # the block is finished
    ROWS_FULL = 1  # a new row is needed
    HUB_FULL = 2  # the hub may not have room for another upload
    EVENT = 3  # a row wants to speak
    REFUSED = 4  # a reward is outside the range that was promised
    NEWCOMER = 5  # a client acts that has to join first


DONE, ROWS_FULL, HUB_FULL, EVENT, REFUSED, NEWCOMER = (int(status) for status in Status)


class TriggerKind(IntEnum):
    """Which compiled condition stands for a trigger."""

    NEVER = 0
    LOGDET = 1
    TIMED_LOGDET = 2
    COUNT = 3


KINDS: dict[type[Trigger], TriggerKind] = {
    Silence: TriggerKind.NEVER,
    Growth: TriggerKind.LOGDET,
    TimedGrowth: TriggerKind.TIMED_LOGDET,
    CountGrowth: TriggerKind.COUNT,
}
ON_LOGDET, ON_TIMED_LOGDET, ON_COUNT = int(TriggerKind.LOGDET), int(TriggerKind.TIMED_LOGDET), int(TriggerKind.COUNT)


def kind_of(trigger: Trigger) -> TriggerKind:
    """The condition of a trigger that has a kernel; a subclass may fire otherwise, so it has none."""
    return KINDS[type(trigger)]


def batch_of(trigger: Trigger) -> int:
    """The least number of pending observations with which a trigger on counts fires."""
    return trigger.batch if isinstance(trigger, CountGrowth) else 1


def log_gamma_download(protocol: MessageProtocol) -> Array:
    """log γ_D of a protocol whose exchange is compiled, of all clients or of each; everybody is stale after a call."""
    if isinstance(protocol, Synchronous):
        return np.zeros(1)
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
