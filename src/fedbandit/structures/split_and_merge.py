"""SCLUB: sets of users that single users leave and that merge again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedbandit.model import TIE
from fedbandit.state import State, stored
from fedbandit.structures.clustering import Clustering, ServedClusters, alike, check_alpha, differ, radius
from fedbandit.structures.serving import NoiseOnGraph, Serving
from fedbandit.types import Ints
from fedbandit.world import World


@dataclass(frozen=True)
class SplitAndMerge(Clustering):
    """Clusters of users on each local server: sets that users leave and that merge again (SCLUB).

    Each server keeps sets of its users, at first one. With τ its interactions so far, n_i those of user i,
    p_i = n_i/τ, n_C = Σ n_i and p_C = n_C/(|C| τ), and θ̃_C, ñ_C what the set C had when its phase began:

    - after an observation user i leaves its set C for one of its own if

          ‖θ̂_i − θ̃_C‖ > α₁ (F(n_i) + F(ñ_C))   or   |p_i − p_j| > 2 α_p F(τ) for some j in C;

    - two sets merge whose users have all acted in this phase ("checked"), if

          ‖θ̂_B − θ̂_C‖ < α₂ (F(n_B) + F(n_C))   and   |p_B − p_C| < α_p F(τ).

    Phase s has 2^s interactions. F(n) = √((1 + ln(1 + n))/(1 + n)).

    alpha_split, alpha_merge, alpha_frequency: α₁, α₂ (the paper has one α_θ, and α₁ = α_θ, α₂ = α_θ/2) and α_p.
    n_servers: blocks of consecutive users, each with an SCLUB of its own; None for the servers of the environment, or
        one server for all where it has none.

    Reference: Li et al., Improved Algorithm on Online Clustering of Bandits (SCLUB), 2019: Alg. 1–3; per local server
    as in FCLUB §5.

    Deviations:
        D1. τ and the phases are those of the server: it knows no other clock (FCLUB's code takes the global one).
        D2. A set that a user forms by leaving, or that two form by merging, has θ̃ and ñ of that moment.
        D3. α_θ = 3 (FCLUB's authors run SCLUB with 1.5, which tears true clusters apart).
        D4. If several pairs could merge, the first in the order of their smallest users does, until none can.
    """

    alpha_split: float = 3.0
    alpha_merge: float = 1.5
    alpha_frequency: float = 1.0
    n_servers: int | None = None

    def __post_init__(self) -> None:
        """Check the factors."""
        for name in ("alpha_split", "alpha_merge", "alpha_frequency"):
            object.__setattr__(self, name, check_alpha(name, getattr(self, name)))

    def serve(self, world: World, users: Ints, ridge: float, noise: NoiseOnGraph | None = None) -> Serving:  # noqa: ARG002
        """One set of all users."""
        return Sets(users, world.dim, ridge, self)


class Sets(ServedClusters):
    """The sets of one server."""

    def __init__(self, users: Ints, dim: int, ridge: float, rule: SplitAndMerge) -> None:
        super().__init__(users, dim, ridge)
        self.rule = rule
        self.served = 0
        """τ: interactions of this server so far."""
        self.checked = np.zeros(users.size, dtype=np.bool_)
        """Whether a user has acted in this phase."""
        self.pivot = {0: (np.zeros(dim), 0)}
        """θ̃ and ñ of each set."""
        self._waiting = {0: users.size}  # users of each set that have not acted in this phase

    def rearrange(self, i: int) -> None:
        """The user at place i has acted: it leaves its set if it must, then sets merge while they can (Alg. 1)."""
        self.served += 1
        if self._must_leave(i):
            self._leave(i)
        if not self.checked[i]:
            self.checked[i] = True
            self._waiting[int(self.clusters.home[i])] -= 1
        while (pair := self._mergeable()) is not None:
            self._merge(*pair)
        if (self.served + 2) & (self.served + 1) == 0:  # phase s has 2^s interactions, so it ends after 2^(s+1) − 2
            self._begin_phase()

    def _must_leave(self, i: int) -> bool:
        """Whether user i does not belong to its set (Alg. 2)."""
        r = int(self.clusters.home[i])
        members = self.clusters.members(r)
        if members.size == 1:
            return False
        theta, n = self.pivot[r]
        if differ(self.own.theta[i], int(self.own.n[i]), theta, n, self.rule.alpha_split):
            return True
        apart = np.abs(self.own.n[members] - self.own.n[i]).max() / self.served
        return bool(apart > 2 * self.rule.alpha_frequency * radius(self.served) + TIE)

    def _leave(self, i: int) -> None:
        """User i leaves its set; what remains keeps θ̃ and ñ, under another number if i was its smallest user."""
        home = self.clusters.home.copy()
        r = int(home[i])
        rest = np.flatnonzero(home == r)
        rest = rest[rest != i]
        q = int(rest[0])
        home[rest], home[i] = q, i
        self.pivot[q] = self.pivot.pop(r)
        del self._waiting[r]
        self.regroup(home)
        self._take_pivot(i)
        self._waiting[q] = rest.size - int(self.checked[rest].sum())
        self._waiting[i] = 1 - int(self.checked[i])

    def _mergeable(self) -> tuple[int, int] | None:
        """The first two sets that can merge, all of whose users are checked (Alg. 3)."""
        sets = [r for r in sorted(self.models) if self._waiting[r] == 0]
        if len(sets) < 2:
            return None
        theta = np.array([self.models[r].theta for r in sets])
        n = np.array([self.models[r].n for r in sets], dtype=np.float64)
        frequency = n / np.bincount(self.clusters.home, minlength=1)[sets] / self.served
        first, second = np.triu_indices(len(sets), 1)
        near = np.abs(frequency[first] - frequency[second]) < self.rule.alpha_frequency * radius(self.served) - TIE
        first, second = first[near], second[near]
        found = np.flatnonzero(alike(theta, n, first, second, self.rule.alpha_merge))
        return (sets[first[found[0]]], sets[second[found[0]]]) if found.size else None

    def _merge(self, p: int, q: int) -> None:
        """Sets p < q become one."""
        self.regroup(np.where(self.clusters.home == q, p, self.clusters.home))
        del self.pivot[q], self._waiting[q]
        self._take_pivot(p)

    def _take_pivot(self, r: int) -> None:
        """θ̃ and ñ of a set are those of now."""
        self.pivot[r] = self.models[r].theta.copy(), self.models[r].n

    def _begin_phase(self) -> None:
        self.checked[:] = False
        for r in self.models:
            self._waiting[r] = self.clusters.members(r).size
            self._take_pivot(r)

    def state(self) -> State:
        """Also the phase: τ, who has acted in it, and what sets had when it began."""
        header, arrays = super().state()
        sets = self.clusters.leaders()
        phase = {
            "checked": self.checked.astype(np.uint8),
            "pivot": np.array([self.pivot[r][0] for r in sets]),
            "pivot_n": np.array([self.pivot[r][1] for r in sets], dtype=np.int64),
        }
        return State({**header, "served": self.served}, {**arrays, **phase})

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        super().restore(state)
        sets = self.clusters.leaders()
        self.served = state.header["served"]
        self.checked = stored(state, "checked", self.checked.shape).astype(np.bool_)
        theta, n = stored(state, "pivot", (len(sets), self.dim)), stored(state, "pivot_n", (len(sets),))
        self.pivot = {r: (theta[k].copy(), int(n[k])) for k, r in enumerate(sets)}
        self._waiting = {r: int((~self.checked[self.clusters.members(r)]).sum()) for r in sets}
