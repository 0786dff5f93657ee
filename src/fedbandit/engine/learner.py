"""The seam between the time loop and what learns: both engines take blocks of interactions."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple, Protocol

import numpy as np

from fedbandit.engine.ledger import Ledger
from fedbandit.engine.partitions import Partitions
from fedbandit.engine.services import Services
from fedbandit.environments.block import Block, RewardKind
from fedbandit.state import State
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


class Learner(Protocol):
    """All machines of a simulation."""

    @property
    def dim(self) -> int:
        """The length of the vectors that messages carry."""
        ...

    @property
    def control_messages(self) -> int:
        """Messages that carried no statistics."""
        ...

    @property
    def by_client(self) -> tuple[Counter[int], Counter[int]] | None:
        """Messages with statistics from and to each client; None if that was not counted."""
        ...

    @property
    def clusters(self) -> Partitions | None:
        """Who was together, over time, if the system finds clusters."""
        ...

    @property
    def services(self) -> Services | None:
        """Whom a server with a queue has served, over time."""
        ...

    def run(self, start: int, stop: int, before: int, block: Block, out: Outcome) -> int:
        """Interactions start, …, stop − 1 of a block that `before` interactions precede; where to go on."""
        ...

    def next_wake(self, done: int) -> int:
        """After `done` rounds: the number of rounds after which `end_round` must be called next (or a large one)."""
        ...

    def end_round(self, done: int, out: Outcome, s: int) -> None:
        """Do what is due after `done` rounds; what is sent counts for interaction s of the block."""
        ...

    def ledger(self) -> Ledger | None:
        """What privacy has cost, if the system has a privacy part."""
        ...

    def state(self) -> State:
        """What a checkpoint keeps."""
        ...

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        ...
