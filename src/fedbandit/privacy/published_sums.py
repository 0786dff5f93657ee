"""The collaborative paper's noise on b = Σ x̃ y, as published."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from fedbandit.errors import FedbanditError, number, require, unknown
from fedbandit.privacy.calibration import check_epsilon
from fedbandit.privacy.guarantee import Guarantee
from fedbandit.privacy.mechanism import Mechanism
from fedbandit.privacy.noise import Source
from fedbandit.privacy.privacy import Perturbs, Privacy
from fedbandit.privacy.published import l2_laplace_tree
from fedbandit.privacy.reward_stream import RewardStream
from fedbandit.privacy.reward_sums import Trust
from fedbandit.privacy.trust import against
from fedbandit.rewards import RewardRule
from fedbandit.types import Array, Ints
from fedbandit.world import World


@dataclass(frozen=True)
class PublishedSums(Privacy):
    """Laplace noise on each of the dN coordinates of b, in a tree, with an ℓ2 sensitivity and the paper's width.

    site "coordinator" (DP-): one tree for all, Δ = max_u L‖m_u‖, at most T releases; site "client" (LDP-): a tree for
    each user, Δ_u = L‖m_u‖, T/N releases, and b has the noise of all of them. m_u is row u of W, or of G^{-1/2}.

    *Guarantee.* The paper claims ε. Coordinate-wise Laplace noise pays for the ℓ1 norm of a change, which is up to
    L√d‖m_u‖₁, so the true ε is larger: `Guarantee.true_epsilon` says by how much. For one reward; a user's T_u rewards
    compose.

    Reference: Wang et al. 2020, Alg. 1, 2; Lemmas 1–6; Eq. (5).

    Deviations:
        D1. For a complete graph Δ = L √(2/(N+1)); the paper's 2L/√(N+1) is a slip.
        D2. The levels of a tree are counted as `Tree.levels`, where the paper has log T.
        D3. The term for the noise, (Δ/ε) log T √(log t) log 1/δ or (1/ε) log 1/δ √(Σ_i log t_i (Δ_i log T_i)²), is
            added to the width of `UCB` with the structure's `width`: that of Lemmas 2 and 4 if it is "printed", as
            in presets, with σ where the paper assumes σ = 1. (That the term bounds ‖η‖_{A⁻¹} needs λ ≥ 1, which is
            what presets take.)
        D4. Rewards outside [0, 1] are clipped; the paper assumes that there are none.
    """

    epsilon: float = 1.0
    site: Trust = "coordinator"
    failure: float = 0.1
    excess: Literal["clip", "refuse"] = "clip"
    world: World | None = field(default=None, repr=False, compare=False)

    keeps_own: ClassVar[bool] = False
    perturbs: ClassVar[Perturbs] = "reward sums"
    separate: ClassVar[bool] = False
    """Whether noise is on each user's own sums."""

    def __post_init__(self) -> None:
        """Check the budget."""
        check_epsilon(self.epsilon)
        require(0 < number(self.failure, "failure", "between 0 and 1") < 1, "failure", self.failure, "between 0 and 1")
        require(self.excess in ("clip", "refuse"), "excess", self.excess, "'clip' or 'refuse'")
        if self.site not in ("client", "coordinator"):
            raise unknown("site", self.site, ("client", "coordinator"))

    @property
    def reward_rule(self) -> RewardRule:
        """[0, 1]."""
        return RewardRule(0.0, 1.0, self.excess == "clip", 0.0)

    def told(self, world: World, releases: int) -> PublishedSums:  # noqa: ARG002 - the paper's, not the protocol's
        """With the users' mixing matrix."""
        if world.mixing is None:
            raise FedbanditError("PublishedSums is noise on the model of a graph of users, but the structure has none.")
        if self.separate and not np.array_equal(world.mixing, np.eye(world.n_clients)):
            raise FedbanditError("SeparateSums needs a graph without edges: one's own sums do not cover the others'.")
        return replace(self, world=world)

    @cached_property
    def _facts(self) -> tuple[Array, float, int]:
        """Δ of every user, the largest ratio of true to claimed ε, and the cap on releases."""
        world = self.world
        if world is None or world.mixing is None:
            raise FedbanditError("A privacy part has no mechanism before it is told the world.")
        sensitivity = world.bound * np.linalg.norm(world.mixing, axis=1)
        moved = world.bound * math.sqrt(world.dim) * np.abs(world.mixing).sum(axis=1)
        if self.site == "coordinator" and not self.separate:
            return np.full(len(moved), sensitivity.max()), float(moved.max() / sensitivity.max()), world.horizon
        return sensitivity, float((moved / sensitivity).max()), math.ceil(world.horizon / world.n_clients)

    def mechanism_of(self, member: int) -> Mechanism:
        """The tree of all, or of one user."""
        sensitivity, _, releases = self._facts
        assert self.world is not None
        return l2_laplace_tree(
            self.epsilon,
            releases,
            self.world.dim * (1 if self.separate else self.world.n_clients),
            float(sensitivity[min(member, -1 + len(sensitivity))]),
        )

    def stream(self, member: int, source: Callable[[int], Source]) -> RewardStream:
        """A stream of vectors in R^dN."""
        return RewardStream(self.mechanism_of(member), source)

    def pool_noise(self, *, together: bool) -> None:
        """The width has a term of its own (`wider`)."""

    def wider(self, observed: Ints, user: int = 0) -> float:
        """What the paper adds to this user's width after so many observations of each (Lemmas 2 and 4)."""
        if math.isinf(self.epsilon):
            return 0.0
        sensitivity, _, releases = self._facts
        factor = math.log(1 / self.failure) * math.log(releases) / self.epsilon
        if self.separate:
            observed, sensitivity = observed[user : user + 1], sensitivity[user : user + 1]
        elif self.site == "coordinator":
            return factor * float(sensitivity[0]) * math.sqrt(math.log(max(int(observed.sum()), 1)))
        return factor * math.sqrt(float((np.log(np.maximum(observed, 1)) * sensitivity**2).sum()))

    def guarantee(self) -> Guarantee:
        """The paper's claim, and what is true of it."""
        if math.isinf(self.epsilon):
            return Guarantee()
        trusted = self.site == "coordinator"
        return Guarantee(
            basis="as published",
            protects="rewards",
            against=against("coordinator" if trusted else "nobody"),
            neighbours="replace one reward",
            epsilon=self.epsilon,
            unit="one interaction",
            mechanism="a coordinate-wise Laplace tree with an ℓ2 sensitivity",
            true_epsilon=None if self.world is None else self.epsilon * self._facts[1],
        )


@dataclass(frozen=True)
class SeparateSums(PublishedSums):
    """The same for N learners with nothing in common: a tree for each user's own d numbers, Δ = L, T/N releases.

    Reference: DP-LinUCB of Wang et al. 2020, [29] there. It needs a graph without edges (`Unconnected`).
    """

    separate: ClassVar[bool] = True
