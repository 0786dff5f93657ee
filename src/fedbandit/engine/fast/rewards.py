"""Rewards, compiled: drawn when an arm is pulled, checked and noised before they are learnt from, or seen later."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedbandit.engine.fast.algebra import copy, largest
from fedbandit.engine.fast.jit import compiled_apart, compiled_inline
from fedbandit.engine.fast.streams import philox
from fedbandit.engine.learner import Outcome
from fedbandit.environments.block import Block
from fedbandit.rewards import RewardPlan
from fedbandit.types import Array, Ints


@compiled_inline
def draw_reward(block: Block, s: int, a: int) -> float:
    """The reward of arm a in interaction s of the block."""
    if block.reward_kind == 0:
        return block.means[s, a] + block.noise[s]
    if block.reward_kind == 1:
        return 1.0 if block.noise[s] < block.means[s, a] else 0.0
    return block.rewards[s, a]


@compiled_inline
def pull(block: Block, s: int, a: int, out: Outcome) -> float:
    """Note that arm a was pulled in interaction s of the block, and what was missed; its reward."""
    y = draw_reward(block, s, a)
    means = block.means[s]
    out.arms[s] = a
    out.reward[s] = y
    out.regret[s] = largest(means, block.counts[s]) - means[a]
    return y


@compiled_apart
def learnt(plan: RewardPlan, y: float, client: int, step: int) -> float:
    """The reward that a client learns from as its observation number `step`; NaN if y is refused."""
    if y < plan.low or y > plan.high:
        if not plan.clip:
            return math.nan
        plan.clipped[0] += 1
        y = min(max(y, plan.low), plan.high)
    if plan.scale > 0.0:
        words = philox(plan.key, client, step, 0)
        magnitude = -math.log((float(words[0]) + 0.5) / 4294967296.0)
        y += plan.scale * (magnitude if words[1] & np.uint64(1) else -magnitude)
    return y


class Late(NamedTuple):
    """Rewards that are still under way: a list for each interaction at which some are due, in a ring."""

    first: Ints  # (M+1,) by due interaction mod M+1: the first entry, −1 for none
    last: Ints
    following: Ints  # (M+1,) by entry
    row: Ints
    x: Array  # (M+1, d)
    y: Array


def no_late(longest: int, dim: int) -> Late:
    """An empty ring for delays of up to `longest` interactions."""
    size = longest + 1
    return Late(
        np.full(size, -1),
        np.full(size, -1),
        np.full(size, -1),
        np.zeros(size, dtype=np.int64),
        np.zeros((size, dim)),
        np.zeros(size),
    )


@compiled_apart
def send_later(late: Late, now: int, delay: int, r: int, x: Array, y: float) -> None:
    """Row r will see the reward y of context x after `delay` more interactions; first chosen, first seen."""
    ring = late.first.shape[0]
    entry = now % ring
    due = (now + min(delay, ring - 1)) % ring  # the ring is as long as the run: what is later is never seen
    late.following[entry] = -1
    late.row[entry] = r
    copy(x, late.x[entry])
    late.y[entry] = y
    if late.first[due] < 0:
        late.first[due] = entry
    else:
        late.following[late.last[due]] = entry
    late.last[due] = entry
