"""Users who share models in one place: what a structure without separate clients (`Structure.separate`) has to give.

A *local server* serves several users, and sees their raw data. `Structure.servers` says who is on which server (all on
one by default), `Structure.serve` makes the models of one server's users: a `Serving`, which a local server's machine
(`fedbandit.machines.local_server`) chooses with and tells what was observed. One class of about fifty lines is a new
clustering; copy `pruned_graph.py`.
"""

from __future__ import annotations

from typing import Protocol

from fedbandit.model import Model
from fedbandit.state import State
from fedbandit.sums import Sums
from fedbandit.types import Array


class Serving(Protocol):
    """The models of the users of one server. Users have their numbers of the whole world."""

    def stream_of(self, user: int) -> int:
        """Whose random streams this user's choices and rewards take: by default its own, as clusters come and go."""
        return user

    def model(self, user: int) -> Model:
        """What the user's arms are scored with now."""
        ...

    def observe(self, user: int, x: Array, y: float) -> None:
        """Learn that the user's arm with context x gave the reward y."""
        ...

    def groups(self) -> list[list[int]] | None:
        """Who learns together now, the same object while nothing changes; None if that is not followed meanwhile."""
        return None

    def groups_at_end(self) -> list[list[int]] | None:
        """Who learns together when everything is over; it may take long to find out."""
        return self.groups()

    def state(self) -> State:
        """What it has learnt, as statistics."""
        ...

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        ...


class FederatedServing(Protocol):
    """The users of one server, in local clusters that take part in a federation.

    The clusters' models belong to their exchanges (`fedbandit.machines.cluster_server`); here is who is in which
    cluster, and each user's own statistics. A local cluster has the number of its smallest user.
    """

    def cluster_of(self, user: int) -> int:
        """The local cluster of a user."""
        ...

    def observe(self, user: int, x: Array, y: float) -> None:
        """Add to the user's own statistics."""
        ...

    def groups(self) -> list[list[int]]:
        """The local clusters, in the order of their numbers."""
        ...

    def regroup(self) -> None:
        """A phase begins: find the local clusters anew. They only ever come apart."""
        ...

    def sums(self) -> dict[int, Sums]:
        """All that was observed in each local cluster."""
        ...

    def state(self) -> State:
        """Clusters and statistics."""
        ...

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        ...


class NoiseOnGraph(Protocol):
    """Noise in the sums s_u of a graph model whose data are all in one place, drawn anew after each observation.

    The estimates of all users become θ̃ = P (vec(s) + h) + g, in the notation of `structures.user_graph`.
    """

    @property
    def shift(self) -> Array:
        """h, (dN,)."""
        ...

    @property
    def lift(self) -> Array | None:
        """g, (dN,), if there is one."""
        ...

    def observed(self, user: int, V: Array) -> None:
        """The user has one more observation, and so one more release; V (N, d, d) is every user's Σ x xᵀ by now."""
        ...

    def radius(self, user: int, block: Array, columns: Array) -> float:
        """What the noise adds to a user's width, given P_uu and all P_uj side by side."""
        ...

    def state(self) -> State:
        """What must survive a crash."""
        ...

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        ...
