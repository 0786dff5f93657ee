"""What happens when an arm is pulled, and where it is written down."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedbandit.environments.block import Block, RewardKind
from fedbandit.types import Array, Ints


class Outcome(NamedTuple):
    """What happened in each interaction of a block."""

    arms: Ints
    regret: Array
    reward: Array
    uploads: Ints
    downloads: Ints


def outcome(n: int, n_arms: int) -> Outcome:
    """Memory for n interactions or rounds, and for the arms of n_arms; little of it is handed out before it is used."""
    arms, uploads, downloads = (np.zeros(size, dtype=np.int64) for size in (n_arms, n, n))
    return Outcome(arms, np.zeros(n), np.zeros(n), uploads, downloads)


def draw_reward(block: Block, s: int, a: int) -> float:
    """The reward of arm a in interaction s of the block."""
    if block.reward_kind == RewardKind.GAUSSIAN:
        return float(block.means[s, a] + block.noise[s])
    if block.reward_kind == RewardKind.BERNOULLI:
        return 1.0 if block.noise[s] < block.means[s, a] else 0.0
    return float(block.rewards[s, a])


def pull(block: Block, s: int, a: int, out: Outcome) -> float:
    """Note that arm a was pulled in interaction s of the block, and what was missed; its reward."""
    y = draw_reward(block, s, a)
    means = block.means[s, : block.counts[s]]
    out.arms[s] = a
    out.reward[s] = y
    out.regret[s] = means.max() - means[a]
    return y
