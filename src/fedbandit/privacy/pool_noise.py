"""What a coordinator can say about the noise in a sum of clients' releases, and how it makes that sum usable.

Clients send V̂_i = V_i + N_i and b̂_i = b_i + h_i. Their sum has noise N and h of known scale, so with probability 1 − α,
at every release together (α/3 for each line),

    ‖N‖ ≤ Λ,        ‖h − Nθ‖ ≤ ν,        θ the true parameter, ‖θ‖ ≤ S: fixed, hence independent of the noise.

The second line is what makes privacy affordable: Nθ has covariance s²(‖θ‖²I + θθᵀ), so its norm is about s√d S, where
Λ S would be more than 2s√d S; and it enters an arm's bound as ν ‖V⁻¹x‖₂, which for a well-explored direction is far
smaller than ν λ_min(V)^-½ ‖x‖_{V⁻¹}.

`repair` makes the noisy matrix positive definite by lifting eigenvalues below a floor μ₀ = Λ/2 up to it, by at most ρ.
It reads released numbers only, so it costs no privacy. Then with G = Σ x xᵀ, V = the repaired matrix + λI:

    G + λI ⪯ f² V,   f² = 1 + (Λ − ρ)₊/λ_min(V),        ‖Σ x η‖_{V⁻¹} ≤ f σ √(log det(f² V)/det λI + 2 log 1/δ),
    |xᵀ(θ̂ − θ)| ≤ f σ √(…) ‖x‖_{V⁻¹} + √λ S ‖x‖_{V⁻¹} + (ν + ρS) ‖V⁻¹x‖₂.

These are the numbers of `Slack`. Own data that a client puts on top only make V larger, and change none of them.

Reference: FedUCB (Dubey & Pentland 2020), Def. 2 and Prop. 2, of which this is a recomputation for the noise that is
really added. With `published`, Prop. 2 and 4 as they are: every client shifts by 2Λ, width + S √(Mρ_max) + κ √M.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from fedbandit.privacy.bounds import NoiseBounds, chi_bound, gram_bound
from fedbandit.statistics import EXACT, Array, Ints, Slack

FLOOR = 0.5
"""μ₀/Λ: where eigenvalues are lifted to. Lower floors have less bias ρ and more inflation f."""


@dataclass(frozen=True)
class PoolNoise:
    """The noise of each client's releases, as far as anybody may know it.

    `std[i]` is the largest standard deviation of an entry of client i's V̂ (off the diagonal), that of b̂ is
    1/reward_weight times as large; `looks` is how many different sums are ever looked at.
    """

    std: Array
    reward_weight: float
    looks: int
    dim: int
    failure: float = 0.01
    theta_bound: float = 1.0
    published: NoiseBounds | None = None

    def repair(self, V: Array, released: Ints, ridge: float) -> tuple[Array, Slack]:
        """A matrix to use in place of the noisy sum V of these clients' releases, and what is to be known about it."""
        if self.published is not None:
            return self._as_published(V, released.size, ridge)
        s = math.sqrt(float((self.std[released] ** 2).sum()))
        if s == 0:
            return V, EXACT
        spectral, deviation = self.bounds(s)
        values, vectors = np.linalg.eigh(V)
        floor = FLOOR * spectral
        lift = max(0.0, floor - float(values[0]))
        if lift > 0:
            V = (vectors * np.maximum(values, floor)) @ vectors.T
            V = (V + V.T) / 2
        inflation = math.sqrt(1 + max(0.0, spectral - lift) / (max(float(values[0]), floor) + ridge))
        return V, Slack(
            offset=2 * self.dim * math.log(inflation),
            inflation=inflation - 1,
            noise=deviation + lift * self.theta_bound,
        )

    def deviations(self, released: Ints) -> Array:
        """The standard deviation of a coordinate of h − Nθ, at most: N has it s along θ twice, h is s/κ."""
        spread = math.hypot(math.sqrt(2) * self.theta_bound, 1 / self.reward_weight)
        return np.where(released > 0, self.std * spread, 0.0)

    def bounds(self, s: float) -> tuple[float, float]:
        """Λ and ν for entries of standard deviation s."""
        share, looks = self.failure / 3, np.array([float(self.looks)])
        S, s_b = self.theta_bound, s / self.reward_weight
        spectral = gram_bound(np.array([s]), looks, self.dim, share)
        # h − Nθ = isotropic part + one more normal along θ
        isotropic = chi_bound(np.array([math.hypot(s * S, s_b)]), looks, self.dim, share)
        along = s * S * -float(ndtri(share / self.looks / 2))
        return spectral, isotropic + along

    def _as_published(self, V: Array, M: int, ridge: float) -> tuple[Array, Slack]:
        assert self.published is not None
        low, high, kappa = self.published
        shifted = V + M * self.published.shift * np.eye(self.dim)
        values, vectors = np.linalg.eigh(shifted)
        if values[0] < 0:  # printed to happen with probability α/nM: the paper has no answer, a solver needs one
            shifted = (vectors * np.maximum(values, 0.0)) @ vectors.T
        return shifted, Slack(
            offset=-self.dim * math.log((ridge + M * low) / ridge),
            bias=self.theta_bound * math.sqrt(M * high) + kappa * math.sqrt(M),
        )
