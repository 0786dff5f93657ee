"""What is in blocks of an environment, for comparing them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedbandit.environments import Block


def contents(block: Block) -> dict[str, Any]:
    """What a block says, however it stores its contexts."""
    return {
        "clients": block.clients,
        "contexts": block.X[block.arms],
        "counts": block.counts,
        "means": block.means,
        "kind": block.reward_kind,
        "noise": block.noise,
        "rewards": block.rewards,
        "delays": block.delays,
    }


def joined(blocks: list[Block]) -> dict[str, Any]:
    """The contents of consecutive blocks, one after the other."""
    parts = [contents(block) for block in blocks]
    return {
        name: parts[0][name] if name == "kind" else np.concatenate([part[name] for part in parts]) for name in parts[0]
    }


def check_same(left: dict[str, Any], right: dict[str, Any]) -> None:
    """Equal to the last bit."""
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)
