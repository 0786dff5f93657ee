"""Clients that a homogeneity test finds alike learn together: clusters are the maximal cliques of a graph of tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError, number, require, unknown, whole_number
from fedbandit.schedule import next_growth, own_rounds
from fedbandit.sharing import NEVER, Members, Noise, Share, Sharing, share_of
from fedbandit.structures.cliques import MOST_CLIQUES, cliques
from fedbandit.structures.exploration import Exploration, doubling_phases, theorem_rounds
from fedbandit.structures.homogeneity import (
    LEAST_NOISE,
    Pairs,
    Weighted,
    critical_value,
    pairwise,
    parallel_sum,
    weighted,
)
from fedbandit.structures.structure import Explore, Structure
from fedbandit.world import World

Margin = Literal["data", "tight", "published", "none"]
MARGINS = ("data", "tight", "published", "none")

Test = Callable[[Members, World], NDArray[np.bool_]]
"""Who is like whom, (N, N), given what everybody has released so far: `members.V`, `.b`, `.n`."""


@dataclass(frozen=True)
class HomogeneityCliques(Structure):
    """An edge between clients whose homogeneity statistic is s ≤ vᶜ; the clusters are the maximal cliques of the graph.

    exploration: T₀, the times that every client first explores, in silence (Alg. 3); then clusters are found. None for
        1.9 d, or 1.65 d with explore="widest": fewer observations tell too little, more cost more than they help.
        "theorem" is T₀ of Theorem 3.3 (`theorem_rounds`), for which `gap` γ and `n_clusters` M must be known;
        "doubling" explores again and again, ever longer and ever more seldom (`doubling_phases`).
    explore: how: "random" arms as in Alg. 3, or "widest", the arm with the largest ‖x‖_{V(λ)⁻¹} (D5).
    test_level: δ of vᶜ = F⁻¹(1 − δ/N²; df, ψᶜ), df = rank X₁ + rank X₂ − rank [X₁; X₂].
    pair_level: δ of one pair instead, vᶜ = F⁻¹(1 − δ; df, ψᶜ), as in the authors' code, which has 0.01.
    test_threshold: vᶜ itself, instead.
    test: an own test instead, see `Test`.
    margin: ψᶜ, how unlike members of a cluster may be: "data" (Alg. 4, ε = 1/(N √λ_max(XᵀX)) for the data there are),
        "tight" 1/(Nσ)², which the proof of Theorem 3.1 gives, "published" 1/σ², which it is rounded up to, or "none",
        0, as in the authors' code.
    recluster: None, or the factor by which the rounds grow between one look at everybody's statistics and the next.
    noise: σ of the test, by default what the world declares.

    Only what clients have released of their *own* data is tested. Cliques may overlap, and their data are never mixed:
    a share is the sum of one clique. Where clients are sent one share (not a queue's), it is that of the clique of
    theirs with most observations.

    Reference: Blaser et al., HetoFedBandit, 2024: Alg. 1, 3, 4 and Theorem 3.1.

    Deviations:
        D1. ψᶜ is not 1/σ² by default: with σ = 0.1 that is 100, and after 70 rounds clusters at distance 0.85 look
            alike. `margin="published"` has it.
        D2. In Alg. 4, ε is that of the client with the larger λ_max, so that an edge has no direction; with the inverse
            that the authors' code leaves out.
        D3. Beyond 1,000 maximal cliques (there may be 3^(N/3)) a cover of everybody by at most N of them is taken.
        D4. Clients about whose difference the data say nothing (df = 0) have an edge.
        D5. With explore="widest" clients look at all directions alike, as tests need it: λ_min of XᵀX, on which
            Theorem 3.1 and T₀ rest, grows faster than with random arms, so that fewer rounds will do.
    """

    exploration: Exploration = 0
    test_level: float | None = None
    test_threshold: float | None = None
    margin: Margin = "data"
    recluster: float | None = None
    noise: float | None = None
    explore: Explore = "random"
    pair_level: float | None = None
    gap: float | None = None
    n_clusters: int | None = None
    regularity: float | None = None
    test: Test | None = None

    by_member: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check every parameter."""
        self._check_exploration()
        require(self.explore in ("random", "widest"), "explore", self.explore, "'random' or 'widest'")
        check_test(self.test_level, self.test_threshold, self.pair_level)
        require(self.margin in MARGINS, "margin", self.margin, f"one of {', '.join(map(repr, MARGINS))}")
        if self.test is not None and not callable(self.test):
            raise FedbanditError(f"test is {self.test!r}, but must be a function of members and world.")
        if self.recluster is not None:
            number(self.recluster, "recluster", "a finite number ≥ 1, or None", at_least=1.0)
        if self.noise is not None:
            number(self.noise, "noise", "a finite number ≥ 0, or None", at_least=0.0)

    def _check_exploration(self) -> None:
        for name in ("gap", "regularity"):
            value = getattr(self, name)
            if value is not None:
                require(number(value, name, "a finite number > 0") > 0, name, value, "a finite number > 0")
        if self.n_clusters is not None:
            whole_number("n_clusters", self.n_clusters)
        if isinstance(self.exploration, str):
            rules = ("theorem", "doubling")
            if self.exploration not in rules:
                raise unknown("rule for exploration", self.exploration, rules)
        elif self.exploration is not None:
            whole_number("exploration", self.exploration, 0)
        if self.exploration == "theorem" and (self.gap is None or self.n_clusters is None):
            raise FedbanditError(
                "exploration is 'theorem', whose T₀ depends on the distance and the number of true clusters; say gap=… "
                "and n_clusters=…, or use 'doubling', which needs neither."
            )

    @property
    def asks_to_regroup(self) -> bool:
        """At the end of exploration, or with `recluster`."""
        return self.exploration != 0 or self.recluster is not None

    def rounds(self, world: World) -> int:
        """T₀, or how long the first phase of the doubling trick explores, in actions of each client."""
        if isinstance(self.exploration, int):
            return self.exploration
        if self.exploration != "theorem":
            return math.ceil(EXPLORE[self.explore] * world.dim)
        assert self.gap is not None
        assert self.n_clusters is not None
        sigma = max(world.noise if self.noise is None else self.noise, LEAST_NOISE)
        level = LEVEL if self.test_level is None else self.test_level
        psi = {"published": sigma**-2, "none": 0.0}.get(self.margin, (world.n_clients * sigma) ** -2)
        return theorem_rounds(
            world,
            self.gap,
            self.n_clusters,
            level=level,
            noncentrality=psi,
            sigma=sigma,
            regularity=self.regularity,
        )

    def explores_again(self, world: World, acted: int) -> bool:
        """In the later phases of the doubling trick."""
        if self.exploration != "doubling":
            return False
        phases = doubling_phases(self.rounds(world))
        return next(start <= acted < end for start, end in phases if acted < end)

    def sharing(self, world: World, ridge: float) -> Cliques:  # noqa: ARG002 - tests know no ridge
        """Everybody alone, exploring if there is a time for that."""
        return Cliques(self, world)


EXPLORE = {"random": 1.9, "widest": 1.65}
"""T₀/d unless another is given."""

LEVEL = 0.01
"""δ of tests unless another is given. At 0.1 one run in ten may miss an edge."""


def check_test(level: float | None, threshold: float | None, pair_level: float | None) -> None:
    """Refuse a level that is no probability, a threshold that nobody can pass, or several of them."""
    given = {"test_level": level, "pair_level": pair_level, "test_threshold": threshold}
    said = [f"{name} {value}" for name, value in given.items() if value is not None]
    if len(said) > 1:
        raise FedbanditError(f"{' and '.join(said)} were both given; one says it all.")
    for name in ("test_level", "pair_level"):
        value, between = given[name], "a probability strictly between 0 and 1"
        if value is not None:
            require(0 < number(value, name, between) < 1, name, value, between)
    if threshold is not None:
        number(threshold, "test_threshold", "a finite number ≥ 0", at_least=0.0)


def tail_of(level: float | None, pair_level: float | None, n_clients: int) -> float:
    """The probability with which a test of one pair may be wrong: what is given for a pair, or δ/N²."""
    return (LEVEL if level is None else level) / n_clients**2 if pair_level is None else pair_level


class Cliques(Sharing):
    """The cliques at a time, at the coordinator."""

    def __init__(self, structure: HomogeneityCliques, world: World) -> None:
        self.structure = structure
        self.world = world
        self.sigma = max(world.noise if structure.noise is None else structure.noise, LEAST_NOISE)
        self.exploration = structure.rounds(world)
        self.exploring = self.exploration > 0
        self._form([[i] for i in range(world.n_clients)], np.zeros(world.n_clients))

    def groups(self) -> list[list[int]]:
        """The cliques."""
        return self._cliques

    def affected(self, member: int) -> Sequence[int]:
        """Those whose share has this member's data."""
        return [j for j in range(self.world.n_clients) if member in self._home[j]]

    def share(self, member: int, members: Members, noise: Noise | None, ridge: float) -> Share:
        """The sum over the clique in which the member is."""
        return share_of(member, members, self._home[member], noise, ridge)

    def next_wake(self, done: int) -> int:
        """The end of exploration, then by growth."""
        end = own_rounds(self.exploration, self.world)
        if done < end:
            return end
        if self.structure.exploration == "doubling":
            ends = (own_rounds(last, self.world) for _, last in doubling_phases(self.exploration))
            return next(last for last in ends if last > done)
        if self.structure.recluster is None:
            return NEVER
        return next_growth(
            done, first=max(self.exploration, 1), growth=self.structure.recluster, batch=1, world=self.world
        )

    def regroup(self, members: Members, done: int, noise: Noise | None = None) -> bool:  # noqa: ARG002
        """Test everybody against everybody; True if cliques have changed."""
        self.exploring = False
        before = self._cliques
        if self.structure.test is None:
            edges = self.edges(weighted(members, self.sigma, noise))
        else:
            edges = symmetric(self.structure.test(members, self.world), self.world.n_clients)
        found = cliques(edges, MOST_CLIQUES)
        self._form(found, members.n)
        return found != before

    def edges(self, data: Weighted) -> NDArray[np.bool_]:
        """Who is like whom: s ≤ vᶜ."""
        pairs = pairwise(data.A, data.c)
        if self.structure.test_threshold is not None:
            return np.asarray((pairs.s <= self.structure.test_threshold) | (pairs.df == 0))
        largest = 1 / (self.sigma if self.structure.margin == "published" else self.world.n_clients * self.sigma) ** 2
        alike = pairs.s <= self._thresholds(pairs, 0.0 if self.structure.margin == "none" else largest)
        if self.structure.margin == "data":
            # ψᶜ is between 0 and 1/(Nσ)²: its eigenvalues matter only where vᶜ of the two differ in their verdict.
            undecided = alike & (pairs.s > self._thresholds(pairs, 0.0))
            for i, j in np.argwhere(np.triu(undecided)):
                psi = largest * self._overlap(data.A[i], data.A[j])
                alike[i, j] = alike[j, i] = pairs.s[i, j] <= critical_value(self._tail, int(pairs.df[i, j]), psi)
        return np.asarray(alike)

    @property
    def _tail(self) -> float:
        return tail_of(self.structure.test_level, self.structure.pair_level, self.world.n_clients)

    def _thresholds(self, pairs: Pairs, noncentrality: float) -> NDArray[np.float64]:
        values = [critical_value(self._tail, df, noncentrality) for df in range(self.world.dim + 1)]
        return np.array(values)[pairs.df]

    @staticmethod
    def _overlap(A: NDArray[np.float64], B: NDArray[np.float64]) -> float:
        """λ_max(B (A + B)⁻ A) / max(λ_max(A), λ_max(B)) ≤ 1."""
        together = parallel_sum(A, B)
        top = max(float(np.linalg.eigvalsh(A)[-1]), float(np.linalg.eigvalsh(B)[-1]))
        return max(float(np.linalg.eigvalsh((together + together.T) / 2)[-1]), 0.0) / top if top > 0 else 0.0

    def _form(self, found: list[list[int]], counts: NDArray[Any]) -> None:
        self._cliques = found
        weight = [(int(counts[clique].sum()), len(clique)) for clique in found]
        self._home: list[list[int]] = [[i] for i in range(self.world.n_clients)]
        for k in sorted(range(len(found)), key=lambda k: weight[k]):
            for i in found[k]:
                self._home[i] = found[k]

    def state(self) -> dict[str, Any]:
        """The cliques, and whose share is which."""
        return {"exploring": self.exploring, "cliques": self._cliques, "home": self._home}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        self.exploring, self._cliques, self._home = state["exploring"], state["cliques"], state["home"]


def symmetric(edges: object, n_clients: int) -> NDArray[np.bool_]:
    """What an own test found, if it is a graph."""
    found = np.asarray(edges)
    if found.shape != (n_clients, n_clients) or found.dtype != np.bool_ or not (found == found.T).all():
        raise FedbanditError(
            f"test gave {found.dtype} of shape {found.shape}, but must give a symmetric ({n_clients}, {n_clients}) "
            "array of booleans: who is like whom."
        )
    return found
