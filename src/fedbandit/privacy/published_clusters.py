"""FCLUB's cluster privacy as published: a tree of noise for each local cluster, built anew when clusters change."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from fedbandit.errors import FedbanditError, number, require, whole_number
from fedbandit.privacy.calibration import check_budget
from fedbandit.privacy.guarantee import Guarantee
from fedbandit.privacy.mechanism import Mechanism
from fedbandit.privacy.noise import Source
from fedbandit.privacy.privacy import Perturbs, Privacy, Site
from fedbandit.privacy.published import fclub_depth, fclub_privatiser
from fedbandit.privacy.release_stream import ReleaseStream
from fedbandit.rewards import AS_THEY_ARE, RewardRule
from fedbandit.sums import Slack
from fedbandit.types import Array, Ints
from fedbandit.world import World

SHIFT_FIRST, SHIFT_MORE = 2.0, 3.0
"""In ρ: what is added to V when a phase begins (Alg. 2 line 5), and at each upload (Alg. 2 line 15, Alg. 3 line 10)."""


@dataclass(frozen=True)
class PublishedClusters(Privacy):
    """Each local cluster uploads V + 2ρI + H and b + h when a phase begins and ΔV + 3ρI + ΔH later, H and h from a tree
    over its uploads whose nodes have the variance 64 ν log(2/δ)²/ε² (Alg. 5).

    epsilon, delta: the budget of a tree. reward_bound: B with |y| ≤ B; `excess` rewards are clipped or refused.
    failure: α of Lemma 1. theta_bound: S with ‖θ‖ ≤ S.

    *Guarantee.* FCLUB claims (ε, δ) for one interaction against everybody outside its local cluster. No finite ε
    holds: uploads come when a determinant of raw data has grown, users are clustered by raw data (Eq. 3) and who is
    with whom is uploaded, and the trees that a new clustering starts release old records again.

    Reference: Liu et al., FCLUB, 2022: Alg. 1–5, Eq. 7, Lemma 1.

    Deviations:
        D1. m and L of ρ and Lemma 1, the numbers of clusters and servers, are both N: they are not known beforehand.
        D2. ρ_max is 2ρ + 3ρ c for the c uploads there were, not for the largest c there could be.
        D3. The condition for an upload has the 3ρI of the buffer, and not its noise H − H̄.
        D4. A local cluster knows its own uploads since its last download as they were before noise.
        D5. A phase that changes no cluster merges by noisy sums from trees of its own, which are then forgotten.
    """

    epsilon: float = 1.0
    delta: float = 1e-5
    reward_bound: float = 1.0
    excess: Literal["clip", "refuse"] = "clip"
    failure: float = 0.1
    theta_bound: float = 1.0
    releases: int | None = None
    world: World | None = field(default=None, repr=False, compare=False)

    site: ClassVar[Site] = "node"
    keeps_own: ClassVar[bool] = False
    perturbs: ClassVar[Perturbs] = "statistics"

    def __post_init__(self) -> None:
        """Check every number."""
        check_budget(self.epsilon, self.delta)
        for name in ("reward_bound", "theta_bound"):
            require(number(getattr(self, name), name, "> 0") > 0, name, getattr(self, name), "a finite number > 0")
        require(0 < number(self.failure, "failure", "between 0 and 1") < 1, "failure", self.failure, "between 0 and 1")
        if self.releases is not None:
            object.__setattr__(self, "releases", whole_number("releases", self.releases))
        require(self.excess in ("clip", "refuse"), "excess", self.excess, "'clip' or 'refuse'")

    @property
    def reward_rule(self) -> RewardRule:
        """|y| ≤ B; nothing where nothing is claimed."""
        if math.isinf(self.epsilon):
            return AS_THEY_ARE
        return RewardRule(-float(self.reward_bound), float(self.reward_bound), self.excess == "clip", 0.0)

    def told(self, world: World, releases: int) -> PublishedClusters:
        """With the number of uploads for which trees are built."""
        return replace(self, world=world, releases=releases if self.releases is None else self.releases)

    @cached_property
    def mechanism(self) -> Mechanism:
        """The tree of one local cluster."""
        if self.world is None or self.releases is None:
            raise FedbanditError("A privacy part has no mechanism before it is told the world.")
        return fclub_privatiser(
            self.epsilon,
            self.delta,
            self.releases,
            self.world.dim,
            context_bound=self.world.bound,
            reward_bound=self.reward_bound,
        )

    def stream(self, member: int, source: Callable[[int], Source]) -> ReleaseStream:  # noqa: ARG002 - all are alike
        """A new tree."""
        return ReleaseStream(self.mechanism, source)

    def pool_noise(self, *, together: bool) -> ClusterNoise | None:  # noqa: ARG002 - the paper's, whoever speaks when
        """The paper's bounds."""
        if math.isinf(self.epsilon):
            return None
        assert self.world is not None
        assert self.releases is not None
        N, d = self.world.n_clients, self.world.dim
        union = 4 * math.sqrt(d) + 2 * math.log(2 * N * N / self.failure)
        depth = fclub_depth(self.releases)
        rho = 8 * math.sqrt(2) * depth * math.log(4 / self.delta) * union / self.epsilon
        return ClusterNoise(rho, self.mechanism.scale * math.sqrt(depth), d, self.theta_bound)

    def guarantee(self) -> Guarantee:
        """The paper's claim, and that it is not true."""
        if math.isinf(self.epsilon):
            return Guarantee()
        return Guarantee(
            basis="as published",
            protects="contexts and rewards",
            against="everybody outside a local cluster",
            neighbours="replace one interaction",
            epsilon=self.epsilon,
            delta=self.delta,
            unit="one interaction",
            mechanism="FCLUB's trees as published",
            true_epsilon=math.inf,
            remark="clusters and triggers read raw data, and new trees release old records again",
        )


@dataclass(frozen=True)
class ClusterNoise:
    """FCLUB's ρ (Eq. 7), and the standard deviation of an entry of H in the fullest sum of a tree."""

    rho: float
    std: float
    dim: int
    theta_bound: float

    weighed: ClassVar[bool] = False
    with_own: ClassVar[bool] = False

    def variance(self, member: int, releases: int) -> float:  # noqa: ARG002 - all are alike
        """Of an entry of H."""
        return self.std**2 if releases > 0 else 0.0

    def slack_of(self, variance: float) -> Slack:
        """Nobody mixes such sums with data of its own."""
        raise NotImplementedError("FCLUB's noisy sums are used as they are.")

    def deviations(self, releases: Ints) -> Array:
        """Of a coordinate of b − Vθ, at most."""
        return np.where(releases > 0, self.std * math.hypot(math.sqrt(2) * self.theta_bound, 1.0), 0.0)

    def repair(self, V: Array, releases: Mapping[int, int], ridge: float) -> tuple[Array, Slack]:
        """Shifted by 2ρ a local cluster and 3ρ for each of its later uploads; widths as in Lemma 1."""
        clusters = len(releases)
        if clusters == 0:
            return V, Slack()
        shift = self.rho * sum(SHIFT_FIRST + SHIFT_MORE * (uploads - 1) for uploads in releases.values())
        V = V + shift * np.eye(self.dim)
        values, vectors = np.linalg.eigh((V + V.T) / 2)
        if values[0] < 0:  # printed to have probability α at most, and a solver needs an answer
            V = (vectors * np.maximum(values, 0.0)) @ vectors.T
        values = np.maximum(values, 0.0) + ridge
        kappa = self.std * math.sqrt(self.dim / self.rho)  # ‖h‖/√ρ
        largest = shift / clusters + self.rho
        return V, Slack(
            offset=-self.dim * math.log((ridge + clusters * self.rho) / ridge),
            bias=self.theta_bound * math.sqrt(clusters * largest) + kappa * math.sqrt(clusters),
            headstart=float(np.log1p(SHIFT_MORE * self.rho / values).sum()),
        )
