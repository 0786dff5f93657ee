"""How long clients explore before clusters are found: a number, T₀ of the theorem, or the doubling trick."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

from fedbandit.structures.homogeneity import critical_value
from fedbandit.tails import chi_square_tail
from fedbandit.world import World

Exploration = int | Literal["theorem", "doubling"] | None
"""T₀ itself, None for a multiple of d, or a rule by name."""


def theorem_rounds(
    world: World,
    gap: float,
    n_clusters: int,
    *,
    level: float = 0.1,
    noncentrality: float | None = None,
    sigma: float | None = None,
    regularity: float | None = None,
) -> int:
    """T₀ of HetoFedBandit's Theorem 3.3, after which all clusters are found with probability 1 − δ.

        T₀ = min{16 ψᵈσ²/(λ_c γ²), 64/(3λ_c) log(2Td/δ)},   F(vᶜ; d, ψᵈ) = δ/(N² max(M − 1, 1)),
        vᶜ = F⁻¹(1 − δ/N²; d, ψᶜ)

    gap, n_clusters: γ, the least distance of parameters of different clusters, and M.
    noncentrality: ψᶜ, by default the 1/σ² of Theorem 3.1.
    regularity: λ_c, the least eigenvalue of E xxᵀ, by default the 1/d of contexts on the unit sphere.

    Reference: Blaser et al. 2024, Theorem 3.3 and Corollary C.2.1; T counts the actions of one client. With M = 1 the
    ratio that M − 1 bounds is "trivially" 1 (App. C).

    >>> theorem_rounds(World(n_clients=30, dim=25, horizon=90_000), gap=0.85, n_clusters=4)
    1774
    """
    N, d, T = world.n_clients, world.dim, world.horizon / world.n_clients
    sigma = world.noise if sigma is None else sigma
    psi = sigma**-2 if noncentrality is None else noncentrality
    tail, least = level / N**2, 1 / d if regularity is None else regularity
    threshold = critical_value(tail, d, psi)
    separated = _noncentrality(threshold, d, tail / max(n_clusters - 1, 1))
    return math.ceil(min(16 * separated * sigma**2 / (least * gap**2), 64 / (3 * least) * math.log(2 * T * d / level)))


def _noncentrality(x: float, df: int, below: float) -> float:
    """The ψ with which χ² is below x with this probability."""
    low, high = 0.0, x
    while 1 - chi_square_tail(x, df, high) > below:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if 1 - chi_square_tail(x, df, middle) > below else (low, middle)
    return high


def doubling_phases(first: int) -> Iterator[tuple[int, int]]:
    """The exploring phases of the doubling trick, for unknown γ, σ and T: their first actions and ends, of each client.

    Epoch e has a horizon of 4 · 4ᵉ T₀ actions, of which the first 2ᵉ T₀ explore: γ is taken to be smaller by √2 from
    epoch to epoch, and the share of exploration falls like 1/√T.

    Reference: Besson & Kaufmann 2018, which HetoFedBandit §4.2 names without more. Unlike there, nothing is forgotten
    at the end of an epoch: clusters are found by all data.

    >>> phases = doubling_phases(10)
    >>> [next(phases) for _ in range(3)]
    [(0, 10), (40, 60), (200, 240)]
    """
    start, explores, horizon = 0, first, 4 * first
    while True:
        yield start, start + explores
        start, explores, horizon = start + horizon, 2 * explores, 4 * horizon
