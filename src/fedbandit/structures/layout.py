"""The seam between structures and the rest: which row serves a user, and which rows share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from fedbandit.types import Ints
from fedbandit.world import World

Model = Literal["rows", "clusters", "neighbourhoods", "split", "kernel"]
"""How arms are scored: with one row, the row of a cluster that changes while running, the sum over a user's
neighbours, a global and a local part, or through a kernel over users."""


@dataclass(frozen=True)
class Layout:
    """Where every user, row and node belongs.

    `row_of[user]` is the model row that serves a user; None when each user has its own row of the same number.
    `group_of[row]` is the set of rows that share with one another; an array of length one holds for all rows.
    Each row is a node of its own that speaks for itself, unless there is only one row, which has nobody to speak to.
    `fresh` says that a model learns from its own observations at once, not only from what was released; `counted` that
    releases are messages, which cross the network.
    """

    n_rows: int
    n_groups: int
    row_of: Ints | None
    group_of: Ints
    fresh: bool = True
    counted: bool = True


@runtime_checkable
class Structure(Protocol):
    """Parameters of a structure, and the layout it gives in a world."""

    @property
    def model(self) -> Model:
        """How arms are scored."""
        ...

    @property
    def separate(self) -> bool:
        """Whether each client has a model row of its own, so that it can be a machine of its own on a network."""
        ...

    def layout(self, world: World) -> Layout:
        """Who is where."""
        ...
