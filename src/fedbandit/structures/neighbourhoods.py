"""Everybody learns with those whom a test finds like them: no clusters, a neighbourhood for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit.errors import number
from fedbandit.model import TIE, FittedModel, Model
from fedbandit.state import State, stored
from fedbandit.structures.cliques import cliques
from fedbandit.structures.homogeneity import LEAST_NOISE, compare, critical_value, eliminate
from fedbandit.structures.homogeneity_cliques import check_test, tail_of
from fedbandit.structures.serving import NoiseOnGraph, Serving
from fedbandit.structures.structure import Structure
from fedbandit.sums import Sums
from fedbandit.types import Array, Ints
from fedbandit.world import World


@dataclass(frozen=True)
class Neighbourhoods(Structure):
    """A user's arms are scored with the statistics of all users j for which s(i, j) ≤ v, summed; all data are central.

    test_level: δ of v = F⁻¹(1 − δ/N²; df), χ² with df = rank X_i + rank X_j − rank [X_i; X_j].
    pair_level: δ of one pair instead, v = F⁻¹(1 − δ; df), as in the authors' code.
    test_threshold: v itself, instead.
    retest: a user is tested against all others when the number of its observations has grown by this factor; 1 for
        after each observation.
    noise: σ of the test, by default what the world declares.

    Reference: Li, Wu & Wang, DyClu (Unifying clustered and non-stationary bandits), 2021, for parameters that stay.

    Deviations:
        D1. There are no change points: one model a user, for ever.
        D2. `retest` is 1.02: neighbours' data are always up to date, who is a neighbour may be 2 % of the data late.
    """

    test_level: float | None = None
    test_threshold: float | None = None
    retest: float = 1.02
    noise: float | None = None
    pair_level: float | None = None

    separate: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check every parameter."""
        check_test(self.test_level, self.test_threshold, self.pair_level)
        number(self.retest, "retest", "a finite number ≥ 1", at_least=1.0)
        if self.noise is not None:
            number(self.noise, "noise", "a finite number ≥ 0, or None", at_least=0.0)

    def thresholds(self, world: World) -> Array:
        """v for df = 0, …, d; without degrees of freedom nothing is tested."""
        if self.test_threshold is not None:
            return np.array([np.inf] + [self.test_threshold] * world.dim)
        tail = tail_of(self.test_level, self.pair_level, world.n_clients)
        return np.array([critical_value(tail, df, 0.0) for df in range(world.dim + 1)])

    def serve(self, world: World, users: Ints, ridge: float, noise: NoiseOnGraph | None = None) -> Serving:  # noqa: ARG002
        """Everybody is near everybody."""
        return Neighbours(world, ridge, self)


class Neighbours(Serving):
    """All users' statistics in one place, and a graph of who is like whom."""

    def __init__(self, world: World, ridge: float, structure: Neighbourhoods) -> None:
        n, d = world.n_clients, world.dim
        self.ridge = ridge
        self.retest = float(structure.retest)
        sigma = max(world.noise if structure.noise is None else structure.noise, LEAST_NOISE)
        self.thresholds = structure.thresholds(world) * sigma**2  # of s σ², by degrees of freedom
        self.V, self.b, self.n = np.zeros((n, d, d)), np.zeros((n, d)), np.zeros(n, dtype=np.int64)
        self.near = np.ones((n, n), dtype=np.bool_)
        self._tested = np.zeros(n, dtype=np.int64)  # observations at the last test
        self._form, self._rank = np.zeros(n), np.zeros(n, dtype=np.int64)  # bᵀV⁻b and rank V
        self._formed = np.zeros(n, dtype=np.int64)  # the observations in these

    def model(self, user: int) -> Model:
        """The ridge regression of the user's whole neighbourhood."""
        near = self.near[user].astype(np.float64)
        V = (near @ self.V.reshape(near.size, -1)).reshape(self.V.shape[1:])
        return FittedModel(Sums(V, near @ self.b, int(self.n[self.near[user]].sum())), self.ridge)

    def observe(self, user: int, x: Array, y: float) -> None:
        """Learn; test the user against all others when it has enough new observations."""
        self.V[user] += np.multiply.outer(x, x)
        self.b[user] += y * x
        self.n[user] += 1
        if self.n[user] >= self.retest * self._tested[user] - TIE:
            self._test(user)

    def _test(self, i: int) -> None:
        """Who is like user i now?"""
        old = np.flatnonzero(self._formed != self.n)
        self._form[old], self._rank[old], _ = eliminate(self.V[old], self.b[old])
        self._formed[old] = self.n[old]
        seen = np.flatnonzero(self.n)  # nothing speaks against the others
        s, df = compare(np.full(seen.size, i), seen, self.V, self.b, self._form, self._rank)
        near = np.ones(self.n.size, dtype=np.bool_)
        near[seen] = s <= self.thresholds[df] + TIE * (1.0 + self._form[i])
        near[i] = True
        self.near[i] = self.near[:, i] = near
        self._tested[i] = self.n[i]

    def groups_at_end(self) -> list[list[int]]:
        """The maximal cliques of the graph."""
        return cliques(self.near)

    def state(self) -> State:
        """Users' statistics, the graph, and when each was tested."""
        near = self.near.astype(np.uint8)
        return State({}, {"V": self.V, "b": self.b, "n": self.n, "near": near, "tested": self._tested})

    def restore(self, state: State) -> None:
        """Go on from there."""
        self.V, self.b, self.n = (stored(state, name, getattr(self, name).shape).copy() for name in ("V", "b", "n"))
        self.near = stored(state, "near", self.near.shape).astype(np.bool_)
        self._tested = stored(state, "tested", self.n.shape).copy()
        self._formed[:] = -1
