"""What a coordinator can say about the noise in a sum of clients' releases, and how it makes that sum usable.

Clients send V̂_i = V_i + N_i and b̂_i = b_i + h_i. Their sum has noise N and h of known scale, so with probability 1 − α,
at every release together (α/3 for each line),

    ‖N‖ ≤ Λ,        ‖h − Nθ‖ ≤ ν,        θ the true parameter, ‖θ‖ ≤ S: fixed, hence independent of the noise.

The second line is what makes privacy affordable: Nθ has covariance s²(‖θ‖²I + θθᵀ), so its norm is about s√d S, where
Λ S would be more than 2s√d S; and it enters an arm's bound as ν ‖V⁻¹x‖₂, which for a well-explored direction is far
smaller than ν λ_min(V)^-½ ‖x‖_{V⁻¹}.

`repair` makes the noisy matrix positive definite by lifting eigenvalues v_i below a floor μ₀ = Λ/2 up to it: by p_i, at
most ρ. It reads released numbers only, so it costs no privacy. Then with G = Σ x xᵀ, V = the repaired matrix + λI, and
the lift P, G + λI = V − N − P ⪯ V + ΛI − P, so that

    G + λI ⪯ f² V,      f² = 1 + max_i (Λ − p_i)₊/(v_i + p_i + λ),
    ‖Σ x η‖_{V⁻¹} ≤ f σ √(log det(f² V)/det λI + 2 log 1/δ),
    |xᵀ(θ̂ − θ)| ≤ f σ √(…) ‖x‖_{V⁻¹} + √λ S ‖x‖_{V⁻¹} + (ν + ρS) ‖V⁻¹x‖₂.

These are the numbers of `Slack`. Own data that a client puts on top only make V larger, and change none of them.

Reference: FedUCB (Dubey & Pentland 2020), Def. 2 and Prop. 2, of which this is a recomputation for the noise that is
really added. With `published`, Prop. 2 and 4 as they are: every client shifts by 2Λ, and the width is

    β = σ √(2 log 2/α + log det V − d log(Mρ_min)) + S √(Mρ_max) + κ √M,

with `log det V` where `d log det V` is printed, a slip; α is the policy's `confidence`. With `printed` it is that slip,

    2 log 2/α + d log det V − d log(Mρ_min) = d ((2 log 2/α)/d + log det V − log(Mρ_min)),

a `Slack` of inflation √d − 1, for an α that must be known here (`failure`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedbandit.privacy.bounds import NoiseBounds, chi_bound, gram_bound
from fedbandit.privacy.calibration import special_functions
from fedbandit.sharing import Share
from fedbandit.sums import EXACT, Slack, Sums
from fedbandit.types import Array, Ints

FLOOR = 0.5
"""μ₀/Λ: where eigenvalues are lifted to. Lower floors have less bias ρ and more inflation f."""


@dataclass(frozen=True)
class PoolNoise:
    """The noise of each client's releases, as far as anybody may know it.

    `std[i][k]` is the standard deviation of an entry of client i's V̂ (off the diagonal) after k + 1 releases, or of
    everybody's if there is only one i; that of b̂ is 1/reward_weight times as large. `looks` is how many different sums
    are ever looked at.
    """

    std: tuple[Array, ...]
    reward_weight: float
    looks: int
    dim: int
    failure: float = 0.05
    theta_bound: float = 1.0
    published: NoiseBounds | None = None
    printed: bool = False
    lifted: bool = False  # triggers add M(ρ_max − ρ_min)I to V themselves, as Alg. 1 line 12 prints it
    with_own: bool = False
    mixing: str = "worth"

    @property
    def weighed(self) -> bool:
        """FedUCB trusts noisy sums, those of a client's own data too, as if they were exact."""
        return self.published is None

    def deviation(self, releases: Mapping[int, int]) -> float:
        """The standard deviation of an entry of a sum of these clients' releases."""
        return math.sqrt(sum(self.variance(i, k) for i, k in releases.items()))

    def variance(self, member: int, releases: int) -> float:
        """The variance of an entry of a client's V̂ after that many releases, in as many streams as they need."""
        std = self.std[member if len(self.std) > 1 else 0]
        streams, k = divmod(releases, std.size)
        return streams * float(std[-1]) ** 2 + (float(std[k - 1]) ** 2 if k else 0.0)

    def slack_of(self, variance: float) -> Slack:
        """Λ, ν, and by worth the standard deviations of h − Nθ, Nθ and N, of a sum whose entries have this variance."""
        s, S = math.sqrt(variance), self.theta_bound
        spectrum, noise = self.bounds(s)
        if self.mixing == "bound":
            return Slack(noise=noise, spectrum=spectrum)
        return Slack(s * S, s * math.hypot(S, 1 / self.reward_weight), s, noise, spectrum=spectrum)

    def repair(self, V: Array, releases: Mapping[int, int], ridge: float) -> tuple[Array, Slack]:
        """A matrix to use in place of the noisy sum V of these clients' releases, and what is to be known about it."""
        s = self.deviation(releases)
        if s == 0:
            return V, EXACT
        if self.published is not None:
            return self._as_published(V, len(releases), ridge)
        spectral, deviation = self.bounds(s)
        values, vectors = np.linalg.eigh(V)
        floor = FLOOR * spectral
        lifts = np.maximum(floor - values, 0.0)
        lift = float(lifts[0])
        if lift > 0:
            V = (vectors * (values + lifts)) @ vectors.T
            V = (V + V.T) / 2
        inflation = math.sqrt(1 + max(0.0, float(((spectral - lifts) / (values + lifts + ridge)).max())))
        return V, Slack(
            offset=2 * self.dim * math.log(inflation),
            inflation=inflation - 1,
            noise=deviation + lift * self.theta_bound,
        )

    def deviations(self, releases: Ints) -> Array:
        """The standard deviation of a coordinate of h − Nθ, at most: N has it s along θ twice, h is s/κ."""
        spread = math.hypot(math.sqrt(2) * self.theta_bound, 1 / self.reward_weight)
        return spread * np.sqrt([self.variance(i, int(k)) for i, k in enumerate(releases)])

    def bounds(self, s: float) -> tuple[float, float]:
        """Λ and ν for entries of standard deviation s."""
        spectral, isotropic, along = self._unit_bounds
        S = self.theta_bound
        # h − Nθ = an isotropic part + one more normal along θ
        return s * spectral, s * (math.hypot(S, 1 / self.reward_weight) * isotropic + S * along)

    @cached_property
    def _unit_bounds(self) -> tuple[float, float, float]:
        share, looks, one = self.failure / 3, np.array([float(self.looks)]), np.ones(1)
        return (
            gram_bound(one, looks, self.dim, share),
            chi_bound(one, looks, self.dim, share),
            -float(special_functions().ndtri(share / self.looks / 2)),
        )

    def _as_published(self, V: Array, M: int, ridge: float) -> tuple[Array, Slack]:
        assert self.published is not None
        low, high, kappa = self.published
        shifted = V + M * self.published.shift * np.eye(self.dim)
        values, vectors = np.linalg.eigh(shifted)
        if values[0] < ridge:  # printed to happen with probability α/nM: the paper has no answer, a solver needs one
            values = np.maximum(values, ridge)
            shifted = (vectors * values) @ vectors.T
        offset, inflation = 2 * math.log(2) - self.dim * math.log(M * low / ridge), 0.0
        if self.printed:
            surprise = 2 * math.log(1 / self.failure)
            offset = self.dim * math.log(ridge) - math.log(M * low)
            offset += (2 * math.log(2) + surprise) / self.dim - surprise
            inflation = math.sqrt(self.dim) - 1
        return shifted - ridge * np.eye(self.dim), Slack(  # models add λI, which the paper does not have
            offset=offset,
            inflation=inflation,
            bias=self.theta_bound * math.sqrt(M * high) + kappa * math.sqrt(M) - math.sqrt(ridge),
            headstart=0.0 if self.lifted else float(np.log1p(M * (high - low) / values).sum()),
        )

    def prior(self, M: int, ridge: float) -> Share:
        """Mρ_min I, before anybody has released anything (Alg. 1 line 1)."""
        assert self.published is not None
        low, shift = M * self.published.rho_min, M * self.published.shift
        V, slack = self._as_published((low - shift) * np.eye(self.dim), M, ridge)
        return Share(Sums(V, np.zeros(self.dim), 0), slack)
