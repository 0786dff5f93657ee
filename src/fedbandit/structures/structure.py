"""What a structure is: who shares with whom, and which model a client has."""

from __future__ import annotations

from typing import ClassVar, Literal, Protocol, runtime_checkable

import numpy as np

from fedbandit.errors import FedbanditError, require
from fedbandit.model import RidgeModel
from fedbandit.sharing import Groups, LocalModel, Sharing
from fedbandit.structures.action_model import ActionModel
from fedbandit.structures.serving import NoiseOnGraph, Serving
from fedbandit.types import Ints
from fedbandit.world import World

Explore = Literal["random", "widest"]
"""How clients choose while a structure has them explore: random arms, or those they know least about."""


@runtime_checkable
class Structure(Protocol):
    """Subclass it as a frozen dataclass.

    Groups that are known beforehand: write `groups`. Groups that are found while running: set `by_member`, and write
    `sharing`. Users who share models in one place: `separate` is False, see `fedbandit.structures.serving`.
    """

    @property
    def separate(self) -> bool:
        """Whether each client has a model of its own, so that it can be a machine of its own on a network."""
        return True

    @property
    def by_member(self) -> bool:
        """Whether the coordinator has to know its members one by one, because `sharing` looks at them."""
        return False

    @property
    def asks_to_regroup(self) -> bool:
        """Whether `sharing` says itself when groups are to be looked for; if not, the protocol has to."""
        return True

    @property
    def fresh(self) -> bool:
        """Whether a model learns from its own observations at once, not only from what was released."""
        return True

    counted: ClassVar[bool] = True
    """Whether releases are messages that cross the network."""

    homogeneous: ClassVar[bool] = False
    """Whether groups are known beforehand, and members of one have the same parameter: their sums may be dated (models
    that forget), padded, of one θ for each action, and compared (`robust`)."""

    has_personal_part: ClassVar[bool] = False
    """Whether a client keeps a part of its model to itself: what it shares then holds rewards minus that part's
    estimate, which have no bound and no known sensitivity."""

    @property
    def explore(self) -> Explore:
        """How clients choose while `Sharing.exploring`."""
        return "random"

    def explores_again(self, world: World, acted: int) -> bool:  # noqa: ARG002 - once is enough
        """Whether a client that has acted so often explores, though clusters have been found before."""
        return False

    def groups(self, world: World) -> Ints:  # noqa: ARG002 - one for all
        """The group of each client, numbered from 0, for groups that are known beforehand; (1,) if it holds for all."""
        return np.zeros(1, dtype=np.int64)

    def sharing(self, world: World, ridge: float) -> Sharing:  # noqa: ARG002 - groups know no ridge
        """Who is sent what, at the coordinator, before anything has happened."""
        return Groups(known_groups(self, world), world.n_clients)

    def model(self, world: World, member: int, ridge: float) -> LocalModel:  # noqa: ARG002 - all are alike
        """What a client chooses with and learns, before it has heard anything."""
        if world.actions:
            return ActionModel(world.actions, world.dim, ridge)
        return RidgeModel(world.dim, ridge, fresh=self.fresh)

    def shared_dim(self, world: World) -> int:
        """The length of the vectors that messages carry."""
        return world.dim

    # Users who share models in one place (`separate` is False)

    def servers(self, world: World) -> Ints:
        """The local server of each user, numbered from 0: one for all."""
        return np.zeros(world.n_clients, dtype=np.int64)

    def serve(self, world: World, users: Ints, ridge: float, noise: NoiseOnGraph | None = None) -> Serving:  # noqa: ARG002
        """The models of the users of one server, before anything has happened; `noise` is that of sums of rewards."""
        raise FedbanditError(f"{type(self).__name__} has a model for each client, so no server serves many users.")


def known_groups(structure: Structure, world: World) -> Ints:
    """What `groups` says, if it is a label for each client, or one for all."""
    labels, N = structure.groups(world), world.n_clients
    whole = isinstance(labels, np.ndarray) and labels.dtype.kind in "iu" and labels.shape in ((1,), (N,))
    require(
        whole and labels.min() >= 0 and labels.max() < N,
        f"{type(structure).__name__}.groups(world)",
        labels,
        f"an array of {N} whole numbers from 0 to {N - 1}, one a client, or of a single one for all",
    )
    return labels
