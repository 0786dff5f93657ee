"""CoLin's graph: a user's reward is a weighted mixture of its neighbours'."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedbandit.errors import FedbanditError
from fedbandit.structures.user_graph import UserGraph
from fedbandit.types import Array
from fedbandit.world import World

STOCHASTIC = 1e-6


@dataclass(frozen=True, eq=False)
class WeightedGraph(UserGraph):
    """x̃ = W_u ⊗ x with W_u the u-th row of W: E y = Σ_j w_uj θ_jᵀx, all θ_j learnt together.

    W has weights ≥ 0, and its rows sum to one, or its columns do.

    Reference: Wu et al. 2016 (CoLin); Wang et al. 2020, §4.1 and Eq. (2).

    Deviations:
        D1. §4.1 normalises columns and then uses rows; either is accepted, and rows are what is used.

    >>> WeightedGraph([[0.5, 0.4], [0.5, 0.4]])
    Traceback (most recent call last):
    fedbandit.errors.FedbanditError: The rows of W sum to 0.9 to 0.9 and its columns to 0.8 to 1; one or the other \
must all be 1.
    """

    def __post_init__(self) -> None:
        """Check the graph, if one is given."""
        super().__post_init__()
        if self.graph is not None:
            check_stochastic(np.asarray(self.graph))

    def mixing(self, world: World) -> Array:
        """W."""
        W = self.weights(world)
        check_stochastic(W)
        return W


@dataclass(frozen=True, eq=False)
class Unconnected(WeightedGraph):
    """W = I: users who have nothing in common, as one model."""

    isolated: bool = True

    def weights(self, world: World) -> Array:
        """I, whatever graph the world has."""
        return np.eye(world.n_clients)


def check_stochastic(W: Array) -> None:
    """Refuse weights that are not normalised."""
    rows, columns = W.sum(axis=1), W.sum(axis=0)
    if max(abs(rows - 1)) > STOCHASTIC and max(abs(columns - 1)) > STOCHASTIC:
        raise FedbanditError(
            f"The rows of W sum to {rows.min():.4g} to {rows.max():.4g} and its columns to {columns.min():.4g} to "
            f"{columns.max():.4g}; one or the other must all be 1."
        )
