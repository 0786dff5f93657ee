"""What a compiled loop is told of the protocol, and what it says when it comes back."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from fedbandit.rewards import RewardPlan
from fedbandit.types import Array


class Rules(NamedTuple):
    """The protocol as the loop sees it."""

    kind: int
    thresholds: Array
    ridge: float
    speaks: bool  # there is a coordinator
    fused: bool  # an upload may be handled here
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
