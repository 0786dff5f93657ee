"""The seam between the time loop and what learns: both engines take blocks of interactions."""

from __future__ import annotations

from typing import Protocol

from fedbandit.engine.ledger import Ledger
from fedbandit.engine.outcome import Outcome
from fedbandit.engine.partitions import Partitions
from fedbandit.engine.services import Services
from fedbandit.environments.block import Block
from fedbandit.state import State


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
        """Go on from there."""
        ...
