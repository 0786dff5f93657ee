"""Groups that are known beforehand: everyone, nobody, one model for all, or given ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedbandit.errors import require
from fedbandit.model import Model
from fedbandit.sharing import LocalModel
from fedbandit.state import State
from fedbandit.structures.serving import NoiseOnGraph, Serving
from fedbandit.structures.structure import Structure
from fedbandit.types import Array, Ints
from fedbandit.world import World


@dataclass(frozen=True)
class Everyone(Structure):
    """One model for each client, and all of them share with one another (Async-LinUCB, Eq. 1)."""

    homogeneous: ClassVar[bool] = True


@dataclass(frozen=True)
class FixedGroups(Structure):
    """One model for each client; clients with the same label share, others never do.

    For federations with known sites or segments, and as the oracle that clustering is compared with.

    >>> FixedGroups([0, 0, 1]).labels
    (0, 0, 1)
    """

    labels: tuple[int, ...] | ArrayLike

    homogeneous: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the labels."""
        labels = np.asarray(self.labels)
        require(
            labels.ndim == 1 and labels.size > 0,
            "labels",
            self.labels,
            "a list with one label for each client",
        )
        object.__setattr__(self, "labels", tuple(labels.tolist()))

    def groups(self, world: World) -> Ints:
        """A group a label."""
        labels = np.asarray(self.labels)
        require(
            labels.size == world.n_clients,
            "the number of labels",
            labels.size,
            f"{world.n_clients}, one a client",
        )
        return np.unique(labels, return_inverse=True)[1].astype(np.int64)


@dataclass(frozen=True)
class Alone(Structure):
    """Nobody shares with anybody, and a model learns from what its client's own privacy mechanism releases.

    Then the arms that are pulled depend on the data only through releases. Releases stay in the house: they are not
    messages.
    """

    fresh: ClassVar[bool] = False
    counted: ClassVar[bool] = False

    def groups(self, world: World) -> Ints:
        """A group a client."""
        return np.arange(world.n_clients)


@dataclass(frozen=True)
class Central(Structure):
    """A single model serves every client: all data are in one place and nothing has to be exchanged.

    Policies that draw at random use the stream of client 0, one step for each action of anybody.
    """

    separate: ClassVar[bool] = False

    def serve(self, world: World, users: Ints, ridge: float, noise: NoiseOnGraph | None = None) -> Serving:  # noqa: ARG002
        """One model for all."""
        return OneModel(self.model(world, 0, ridge))


class OneModel(Serving):
    """The model of everybody."""

    def __init__(self, model: LocalModel) -> None:
        self._model = model

    def stream_of(self, user: int) -> int:  # noqa: ARG002
        """That of client 0, for everybody."""
        return 0

    def model(self, user: int) -> Model:  # noqa: ARG002
        """The one there is."""
        return self._model

    def observe(self, user: int, x: Array, y: float) -> None:  # noqa: ARG002
        """Learn at once."""
        self._model.observe(x, y)

    def state(self) -> State:
        """The model."""
        return State(*self._model.dump())

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        self._model.load(*state)
