"""The seam between the time loop and what learns: a learner takes blocks of interactions, whatever its model is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from fedbandit.engine.fast.clusters import ClustersLearner
from fedbandit.engine.fast.graph import GraphLearner
from fedbandit.engine.fast.neighbourhoods import NeighbourhoodsLearner
from fedbandit.engine.fast.outcome import Outcome
from fedbandit.engine.fast.rows import RowsLearner
from fedbandit.engine.fast.split import SplitLearner
from fedbandit.engine.ledger import Ledger
from fedbandit.engine.partitions import Partitions
from fedbandit.environments.block import Block, Environment
from fedbandit.state import State
from fedbandit.structures import Clustering, GlobalLocal, Neighbourhoods, OnGraph, Structure
from fedbandit.system import System
from fedbandit.world import World


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

    @property
    def clusters(self) -> Partitions | None:
        """Who was together, over time, if the system finds clusters."""
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

    def state(self) -> State:
        """What a checkpoint keeps."""
        ...

    def restore(self, state: State) -> None:
        """Go on from there."""
        ...


@runtime_checkable
class Bookkeeper(Protocol):
    """A learner that knows what privacy has cost its clients."""

    def ledger(self) -> Ledger | None:
        """The books, if the system has a privacy part."""
        ...


def _kind(structure: Structure) -> Callable[..., Learner]:
    if isinstance(structure, Clustering):
        return ClustersLearner
    if isinstance(structure, Neighbourhoods):
        return NeighbourhoodsLearner
    if isinstance(structure, OnGraph) and not structure.separate:
        return GraphLearner
    return SplitLearner if isinstance(structure, GlobalLocal) else RowsLearner


def make_learner(system: System, env: Environment, world: World, seed: int, *, fuse: bool) -> Learner:
    """The learner of a system that has been told its world; `fuse=False` sends every message through the machines."""
    return _kind(system.structure)(system, env, world, seed, fuse=fuse)
