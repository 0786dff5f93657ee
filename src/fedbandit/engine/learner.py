"""The seam between the time loop and what learns: a learner takes blocks of interactions, whatever its model is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from fedbandit.engine.graph import GraphLearner
from fedbandit.engine.loop import Outcome
from fedbandit.engine.rows import RowsLearner
from fedbandit.engine.split import SplitLearner
from fedbandit.environments.block import Block, Environment
from fedbandit.system import System
from fedbandit.world import World

Arrays = dict[str, Any]


class Learner(Protocol):
    """All clients of a simulation, and their coordinator if there is one."""

    @property
    def dim(self) -> int:
        """The length of the vectors that messages carry."""
        ...

    @property
    def control_messages(self) -> int:
        """Messages that carried no statistics."""
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

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """What a checkpoint keeps: plain values and arrays."""
        ...

    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Go on from there."""
        ...


LEARNERS: dict[str, Callable[..., Learner]] = {
    "rows": RowsLearner,
    "kernel": GraphLearner,
    "split": SplitLearner,
}
"""By `Structure.model`."""


def make_learner(system: System, env: Environment, world: World, seed: int, *, fuse: bool) -> Learner:
    """The learner of a system that has been told its world; `fuse=False` sends every message through the machines."""
    return LEARNERS[system.structure.model](system, env, world, seed, fuse=fuse)
