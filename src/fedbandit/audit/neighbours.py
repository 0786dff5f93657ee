"""Pairs of records to tell apart: the worst there are for sums of [x; κy][x; κy]ᵀ, for triggers, and for rewards."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedbandit.privacy.mechanism import Mechanism
from fedbandit.rewards import RewardRule
from fedbandit.types import Array
from fedbandit.world import World


class Record(NamedTuple):
    """One interaction."""

    x: Array
    y: float


Pair = tuple[Record, Record]
History = list[Record]


class RecordLimits(NamedTuple):
    """What records may be: ‖x‖ ≤ bound in `dim` dimensions, low ≤ y ≤ high; and whether contexts are protected."""

    bound: float
    dim: int
    low: float
    high: float
    contexts: bool

    @classmethod
    def of(cls, world: World, rule: RewardRule, protects: str) -> RecordLimits:
        """Those of a world, and of the rewards for which privacy is claimed."""
        return cls(world.bound, world.dim, rule.low, rule.high, "contexts" in protects)


def worst_records(limits: RecordLimits, reward_weight: float) -> Pair:
    """Records whose [x; κy] are orthogonal, or as nearly as can be: see `privacy.noise.gram_sensitivity`.

    >>> a, b = worst_records(RecordLimits(1.0, 2, -1.0, 1.0, True), 0.5)
    >>> float(a.x @ b.x + 0.25 * a.y * b.y)
    0.0
    """
    L, B = limits.bound, max(abs(limits.low), abs(limits.high))
    cosine = max(-1.0, -((reward_weight * B / L) ** 2)) if limits.dim > 1 else -1.0
    x, other = np.zeros((2, limits.dim))
    x[0] = L
    other[0] = L * cosine
    if limits.dim > 1:
        other[1] = L * math.sqrt(1 - cosine**2)
    y = limits.high if abs(limits.high) == B else limits.low
    return Record(x, y), Record(other, y)


def pairs_of(limits: RecordLimits, mechanism: Mechanism | None) -> dict[str, Pair]:
    """By what they are meant to move; the first one is the worst for sums."""
    x = np.zeros(limits.dim)
    x[0] = limits.bound
    dense = np.full(limits.dim, limits.bound / math.sqrt(limits.dim))
    rewards = Record(dense, limits.high), Record(dense, limits.low)
    if not limits.contexts:
        return {"reward": rewards}
    pairs = {
        "sums": worst_records(limits, 1.0 if mechanism is None else mechanism.reward_weight),
        "length": (Record(x, limits.high), Record(np.zeros(limits.dim), limits.high)),
        "reward": rewards,
    }
    if limits.dim > 1:
        turned = np.roll(x, 1)
        pairs["direction"] = Record(x, limits.high), Record(turned, limits.high)
    return pairs


def some_history(limits: RecordLimits, length: int, rng: np.random.Generator, spread: float = 1.0) -> History:
    """Records as they may be; with less `spread` contexts stay close to one direction."""
    X = rng.standard_normal((length, limits.dim)) * spread
    X[:, 0] += 1 - spread
    X *= limits.bound * rng.random((length, 1)) / np.linalg.norm(X, axis=1, keepdims=True)
    return [Record(x, y) for x, y in zip(X, rng.uniform(limits.low, limits.high, length).tolist(), strict=True)]


def unrewarded(limits: RecordLimits, length: int) -> History:
    """The same context again and again, and never a reward."""
    x = np.zeros(limits.dim)
    x[0] = limits.bound
    return [Record(x, min(max(0.0, limits.low), limits.high))] * length


def with_first(history: History, record: Record, records: int) -> History:
    """The history with its first record, or as many as are the unit of privacy, replaced."""
    return [record] * min(records, len(history)) + history[records:]
