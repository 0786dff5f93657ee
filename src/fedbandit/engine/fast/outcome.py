"""What happens when an arm is pulled, compiled."""

from __future__ import annotations

from fedbandit.engine.fast.algebra import largest
from fedbandit.engine.fast.jit import compiled_inline
from fedbandit.engine.outcome import Outcome
from fedbandit.environments.block import Block


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
