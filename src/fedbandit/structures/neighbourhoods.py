"""Everybody learns with those whom a test finds like them: no clusters, a neighbourhood for each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit.errors import number, require, whole_number
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
    window: τ, if users' parameters may change: an observation that its user's own least squares, once regular, finds
        unlikely at `change_level` (χ², one degree of freedom) is not learnt from; and when of the last τ, or as many
        as there are, more than change_level + √(log(1/change_failure)/(2τ)) were unlikely, the user begins anew. What
        it had learnt stays as a user who never acts again, and is like others or not.

    Reference: Li, Wu & Wang, DyClu (Unifying clustered and non-stationary bandits), 2021; its code for change points.

    Deviations:
        D1. Without `window` there are no change points: one model a user, for ever. The code compares the share of
            unlikely observations with 0.1 + …, whatever the level of the test, which is 0.01.
        D2. `retest` is 1.02: neighbours' data are always up to date, who is a neighbour may be 2 % of the data late.
    """

    test_level: float | None = None
    test_threshold: float | None = None
    retest: float = 1.02
    noise: float | None = None
    pair_level: float | None = None
    window: int | None = None
    change_level: float = 0.01
    change_failure: float = 0.1

    separate: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check every parameter."""
        check_test(self.test_level, self.test_threshold, self.pair_level)
        number(self.retest, "retest", "a finite number ≥ 1", at_least=1.0)
        if self.noise is not None:
            number(self.noise, "noise", "a finite number ≥ 0, or None", at_least=0.0)
        if self.window is not None:
            whole_number("window", self.window)
        for name in ("change_level", "change_failure"):
            value, between = getattr(self, name), "a probability strictly between 0 and 1"
            require(0 < number(value, name, between) < 1, name, value, between)

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
    """All users' statistics in one place, and a graph of who is like whom.

    A slot of V, b and n for each user, and after them one for each model that a change has left behind.
    """

    def __init__(self, world: World, ridge: float, structure: Neighbourhoods) -> None:
        n, d = world.n_clients, world.dim
        self.ridge, self.structure = ridge, structure
        self.retest = float(structure.retest)
        sigma = max(world.noise if structure.noise is None else structure.noise, LEAST_NOISE)
        self.thresholds = structure.thresholds(world) * sigma**2  # of s σ², by degrees of freedom
        self.V: Array = np.zeros((n, d, d))
        self.b: Array = np.zeros((n, d))
        self.n: Ints = np.zeros(n, dtype=np.int64)
        self.near = np.ones((n, n), dtype=np.bool_)  # user, slot
        self._sigma = sigma
        self._unlikely = critical_value(structure.change_level, 1, 0.0)
        self._recent: list[list[int]] = [[] for _ in range(n)]  # of each user: which of the last observations were
        self._tested = np.zeros(n, dtype=np.int64)  # observations at the last test
        self._form, self._rank = np.zeros(n), np.zeros(n, dtype=np.int64)  # bᵀV⁻b and rank V
        self._formed = np.zeros(n, dtype=np.int64)  # the observations in these

    def model(self, user: int) -> Model:
        """The ridge regression of the user's whole neighbourhood."""
        near = self.near[user].astype(np.float64)
        V = (near @ self.V.reshape(near.size, -1)).reshape(self.V.shape[1:])
        return FittedModel(Sums(V, near @ self.b, int(self.n[self.near[user]].sum())), self.ridge)

    def observe(self, user: int, x: Array, y: float) -> None:
        """Learn; test the user against all others when it has enough new observations; begin anew after a change."""
        window = self.structure.window
        if window is not None:
            unlikely = self._is_unlikely(user, x, y)
            self._recent[user] = [*self._recent[user], int(unlikely)][-window:]
            if unlikely:
                self._begin_anew_if_changed(user)
                return
        self.V[user] += np.multiply.outer(x, x)
        self.b[user] += y * x
        self.n[user] += 1
        if self.n[user] >= self.retest * self._tested[user] - TIE:
            self._test(user)

    def _is_unlikely(self, user: int, x: Array, y: float) -> bool:
        """(y − xᵀϑ)² > v σ² (1 + xᵀV⁻¹x), with the user's own least squares ϑ, if its V is regular."""
        V, d = self.V[user], x.size
        if self.n[user] < d or eliminate(V[None], self.b[user][None]).rank[0] < d:
            return False
        theta, u = np.linalg.solve(V, np.stack([self.b[user], x], axis=1)).T
        return bool((y - x @ theta) ** 2 > self._unlikely * self._sigma**2 * (1 + x @ u) + TIE)

    def _begin_anew_if_changed(self, user: int) -> None:
        """Too many unlikely observations: what the user had learnt is that of a user who never acts again."""
        recent, known = self._recent[user], self.structure
        allowed = known.change_level + math.sqrt(math.log(1 / known.change_failure) / (2 * len(recent)))
        if sum(recent) <= (allowed + TIE) * len(recent):
            return
        own = slice(user, user + 1)
        self.V, self.b = np.append(self.V, self.V[own], axis=0), np.append(self.b, self.b[own], axis=0)
        self.n = np.append(self.n, self.n[own])
        self.V[user], self.b[user], self.n[user] = 0.0, 0.0, 0
        left = self.near[:, user].copy()
        left[user] = False
        self.near = np.append(self.near, left[:, None], axis=1)
        self.near[user, : len(self.near)] = self.near[:, user] = True
        self._tested[user], self._recent[user] = 0, []
        more = self.n.size - self._formed.size
        self._form, self._rank = np.append(self._form, np.zeros(more)), np.append(self._rank, np.zeros(more, np.int64))
        self._formed = np.append(self._formed, np.full(more, -1))
        self._formed[user] = -1

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
        self.near[i] = near
        self.near[:, i] = near[: len(self.near)]
        self._tested[i] = self.n[i]

    def groups_at_end(self) -> list[list[int]]:
        """The maximal cliques of the graph."""
        return cliques(self.near[:, : len(self.near)])

    def state(self) -> State:
        """Users' statistics, the graph, and when each was tested."""
        near = self.near.astype(np.uint8)
        header = {} if self.structure.window is None else {"recent": self._recent}
        return State(header, {"V": self.V, "b": self.b, "n": self.n, "near": near, "tested": self._tested})

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        slots = self.n.size if self.structure.window is None else len(state.arrays["n"])
        self.V, self.b, self.n = (
            stored(state, name, (slots, *getattr(self, name).shape[1:])).copy() for name in ("V", "b", "n")
        )
        self.near = stored(state, "near", (len(self.near), slots)).astype(np.bool_)
        self._tested = stored(state, "tested", self._tested.shape).copy()
        self._form, self._rank = np.zeros(slots), np.zeros(slots, dtype=np.int64)
        self._formed = np.full(slots, -1)
        if self.structure.window is not None:
            self._recent = state.header["recent"]
