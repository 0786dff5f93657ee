"""Who contradicts the others? Each member's sums are compared with every other's, and whoever contradicts more members
than can be liars is put in quarantine.

Theory of operation
-------------------
Members i and j that observe rewards with the same θ, sub-Gaussian with σ, have b_i = V_i θ + S_i. Whatever their
contexts depend on, and at all times at once, with probability 1 − δ (method of mixtures, both martingales together)

    ‖S_i‖²_{W_i⁻¹} + ‖S_j‖²_{W_j⁻¹} ≤ log det(I + V_i/λ) + log det(I + V_j/λ) + 2 log 1/δ,       W_i = σ²(V_i + λI).

The left-hand side is at least s(i, j), its minimum over θ, which is the statistic of `structures.homogeneity` with
A_i = V_i W_i⁻¹ V_i and c_i = V_i W_i⁻¹ b_i. A pair *conflicts* if s(i, j) exceeds the right-hand side.

With at most K liars an honest member conflicts with more than K others only if it conflicts with an honest one. So, of
the members of a group with N places, whoever conflicts with more than K = ⌊liars · N⌋ is a liar, and with δ =
false_alarm/N an honest member is ever accused with probability at most false_alarm: whenever liars joined, and however
they conspire. A liar is accused as soon as K + 1 others have seen enough to contradict it.

Before pairs can tell, a member is a *suspect* if what it has uploaded fits something else better than what the others
have together. What a suspect has uploaded is in nobody's share, but it is heard, and shared again when the suspicion
ends. That is no accusation, and wrong now and then. There are two ways to become one:

- *Two parameters.* With θ̂ of all, h_i = W_i^(−1/2)(b_i − V_i θ̂) is noise of variance 1 if all have one θ, and the
  largest singular value of the N rows h_i is below √N + √d (Bai–Yin). If it is above, there is a second θ; its members
  are found by fitting both in turn: those who fit the second one better, at most the part `liars` of all. Liars who
  agree with each other are found like that long before any of them contradicts somebody by itself, since noise in
  other directions does not count, and none is taken for honest because it lies without noise and fits well.
- *Far.* Else, least trimmed squares: θ̂ of those 1 − liars of the members that fit best, then of those that fit this θ̂
  best, and so on. Far is ‖b_i − V_i θ̂‖²_{W_i⁻¹} beyond what noise exceeds once in a thousand times (`SURPRISE`).

Whoever has uploaded `GROWTH` times as much as when it was last compared is compared again. Nothing of this is stored:
what was decided is in the journal, and comparisons are made anew after a restart.

Reference: Abbasi-Yadkori et al. 2011, Thm. 1 (mixtures); Blaser et al., HetoFedBandit, 2024, Eq. 1 (the statistic);
Bai & Yin 1993 (singular values of noise); Rousseeuw & Van Driessen 2006 (least trimmed squares by concentration steps);
Wilson & Hilferty 1931 (quantiles of χ²).
"""

from __future__ import annotations

import numpy as np

from fedbandit.network.coordinator.rules import Robust
from fedbandit.structures.homogeneity import LEAST_NOISE, compare, eliminate
from fedbandit.sums import Sums
from fedbandit.types import Array, Ints

GROWTH = 1.25
LEAST_COMPARED, STEPS = 4, 10
SURPRISE = 3.09
"""Standard deviations that a normal number exceeds once in a thousand times."""


class Comparison:
    """What is known about who contradicts whom."""

    def __init__(self, rule: Robust, group_of: Ints, dim: int, ridge: float, sigma: float) -> None:
        N = group_of.size
        self.group_of = group_of
        size = np.bincount(group_of)[group_of]
        self.liars = rule.liars
        self.most_liars = np.maximum(1, np.floor(rule.liars * size)).astype(np.int64)
        self.surprise = 2 * np.log(size / rule.false_alarm)
        self.ridge, self.variance = ridge, max(sigma, LEAST_NOISE) ** 2
        self.seen: Ints = np.zeros(N, dtype=np.int64)  # observations when it was last compared; 0: not yet
        self.conflicts = np.zeros((N, N), dtype=np.bool_)
        self._A, self._c = np.zeros((N, dim, dim)), np.zeros((N, dim))
        self._V, self._b, self._weight = np.zeros((N, dim, dim)), np.zeros((N, dim)), np.zeros((N, dim, dim))
        self._form, self._rank = np.zeros(N), np.zeros(N, dtype=np.int64)
        self._logdet: Array = np.zeros(N)

    def compare(self, member: int, sums: Sums) -> list[int]:
        """Compare all that a member has uploaded with the others', if it has grown; who is a liar then."""
        if sums.n < GROWTH * self.seen[member] or sums.n == 0:
            return []
        self.note(member, sums)
        accused: list[int] = []
        while (worst := self._worst()) is not None:
            accused.append(worst)
            self.forget(worst)
        return accused

    def note(self, member: int, sums: Sums) -> None:
        """Whom a member contradicts that has uploaded these sums."""
        if sums.n == 0:
            return
        self.seen[member] = sums.n
        self._weigh(member, sums)
        others = np.flatnonzero((self.seen > 0) & (self.group_of == self.group_of[member]))
        others = others[others != member]
        s, _ = compare(np.full(others.size, member), others, self._A, self._c, self._form, self._rank)
        limit = self._logdet[member] + self._logdet[others] + self.surprise[member]
        self.conflicts[member, others] = self.conflicts[others, member] = s > limit

    def suspects(self) -> set[int]:
        """Members who fit something else than what the others have together, if not for certain liars."""
        seen = [np.flatnonzero((self.seen > 0) & (self.group_of == g)) for g in range(int(self.group_of.max()) + 1)]
        return {int(i) for who in seen if who.size >= LEAST_COMPARED for i in self._unlike(who)}

    def _unlike(self, who: Ints) -> Ints:
        others = self._others(who)
        return self._far(who) if others is None else others

    def _theta(self, who: Ints) -> Array:
        V = self._V[who].sum(axis=0) + self.ridge * np.eye(self._b.shape[1])
        return np.linalg.solve(V, self._b[who].sum(axis=0))

    def _misfit(self, who: Ints, theta: Array) -> Array:
        left = self._b[who] - self._V[who] @ theta
        return np.einsum("mi,mij,mj->m", left, self._weight[who], left)

    def _others(self, who: Ints) -> Ints | None:
        """The members with a second parameter; None if there is no sign of one."""
        left = self._b[who] - self._V[who] @ self._theta(who)
        values, vectors = np.linalg.eigh(self._weight[who])
        h = np.einsum("mij,mj,mkj,mk->mi", vectors, np.sqrt(np.maximum(values, 0.0)), vectors, left)
        u, s, _ = np.linalg.svd(h, full_matrices=False)
        known = np.minimum(self.seen[who], h.shape[1]).mean()  # of d directions, those in which there is noise
        if s[0] <= np.sqrt(who.size) + np.sqrt(known):
            return None
        most, found = int(self.liars * who.size), []
        for direction in (u[:, 0], -u[:, 0]):
            others: Ints = np.argsort(direction, kind="stable")[:most]
            for _ in range(STEPS):
                before = others
                misfit = self._misfit(who, self._theta(np.delete(who, others)))
                gain = misfit - self._misfit(who, self._theta(who[others]))
                others = np.sort(np.argsort(-gain, kind="stable")[:most])
                others = others[gain[others] > 0]
                if np.array_equal(before, others) or not others.size:
                    break
            found.append((float((misfit - np.maximum(gain, 0.0)).sum()), who[others]))
        return min(found, key=lambda fit: fit[0])[1]

    def _far(self, who: Ints) -> Ints:
        V, weight, keep = self._V[who], self._weight[who], np.arange(who.size)
        for _ in range(STEPS):
            inverse = np.linalg.inv(V[keep].sum(axis=0) + self.ridge * np.eye(V.shape[1]))
            # Its mean: of the noise in b_i, and of that in θ̂.
            mean = np.maximum(self.variance * np.einsum("mij,mji->m", weight, V + V @ inverse @ V), 1e-12)
            distance = self._misfit(who, self._theta(who[keep])) / mean
            before, keep = keep, np.sort(np.argsort(distance, kind="stable")[: who.size - int(self.liars * who.size)])
            if np.array_equal(before, keep):
                break
        cube = 2 / (9 * np.maximum(mean, 1.0))
        far = distance > (1 - cube + SURPRISE * np.sqrt(cube)) ** 3
        far[keep] = False
        return who[far]

    def _weigh(self, member: int, sums: Sums) -> None:
        V = (sums.V + sums.V.T) / 2
        W = self.variance * (V + self.ridge * np.eye(len(V)))
        weight = np.linalg.inv(W)
        self._V[member], self._b[member], self._weight[member] = V, sums.b, weight
        self._A[member], self._c[member] = V @ weight @ V, V @ weight @ sums.b
        found = eliminate(self._A[[member]], self._c[[member]])
        self._form[member], self._rank[member] = found.form[0], found.rank[0]
        self._logdet[member] = np.linalg.slogdet(W / (self.variance * self.ridge))[1]

    def _worst(self) -> int | None:
        excess = self.conflicts.sum(axis=1) - self.most_liars
        worst = int(np.argmax(excess))
        return worst if excess[worst] > 0 else None

    def forget(self, member: int) -> None:
        """Nothing is known of this member any more."""
        self.seen[member] = 0
        self.conflicts[member] = self.conflicts[:, member] = False

    def reason(self, member: int) -> str:
        """Why a member is accused."""
        return f"its rewards contradict those of more than {self.most_liars[member]} other members"
