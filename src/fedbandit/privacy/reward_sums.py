"""Privacy of rewards by noise on each user's sum of x y, where the contexts themselves are public."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from fedbandit.errors import FedbanditError, number, require, unknown, whole_number
from fedbandit.privacy.calibration import check_epsilon
from fedbandit.privacy.guarantee import Guarantee
from fedbandit.privacy.mechanism import FactorisationKind, Mechanism, distance, noise_std, reward_mechanism
from fedbandit.privacy.noise import Source
from fedbandit.privacy.privacy import Perturbs, Privacy
from fedbandit.privacy.reward_stream import RewardStream
from fedbandit.privacy.trust import against
from fedbandit.rewards import RewardRule
from fedbandit.sums import Slack
from fedbandit.types import Array, Ints
from fedbandit.world import World

Trust = Literal["client", "coordinator"]
SPREAD = 2.0
"""How many times its root mean square the noise is taken to be in widths. Regret depends on it, privacy does not."""


def expected_share(world: World) -> int:
    """About as many interactions as a user has: twice its even share."""
    return min(world.horizon, 2 * math.ceil(world.horizon / world.n_clients))


@dataclass(frozen=True)
class SumsNoise:
    """What a coordinator knows about the noise in users' sums: a coordinate's standard deviation, root mean square."""

    std: float

    weighed: ClassVar[bool] = False
    with_own: ClassVar[bool] = False

    def variance(self, member: int, releases: int) -> float:  # noqa: ARG002 - all are alike
        """Of a coordinate of a client's sum after that many releases."""
        return self.std**2 if releases > 0 else 0.0

    def deviations(self, releases: Ints) -> Array:
        """Of a coordinate of each client's sum."""
        return np.where(releases > 0, self.std, 0.0)

    def slack_of(self, variance: float) -> Slack:
        """Only clients that learn from their own data at once mix others' in."""
        raise NotImplementedError("Sums of rewards are not mixed with a client's own.")

    def repair(self, V: Array, releases: Mapping[int, int], ridge: float) -> tuple[Array, Slack]:  # noqa: ARG002
        """V as it is; the noise of all sums together has the norm std √(d · clients)."""
        return V, Slack(noise=SPREAD * self.std * math.sqrt(len(V) * len(releases)))

    def radius(self, precision: Array, columns: Array, released: Ints) -> float:
        """A bound of ‖C h‖ in the norm of P_uu⁻¹, for C = (P_u1, …, P_uN) and noise h in the sums of users that have
        released something: SPREAD √(Σ_j s_j² tr P_uu⁻¹ P_uj P_ju).
        """
        d = len(precision)
        C = columns[:, np.repeat(released > 0, d)]
        return SPREAD * self.std * math.sqrt(max(float((precision * (C @ C.T)).sum()), 0.0))


@dataclass(frozen=True)
class RewardSums(Privacy):
    """Every user's running sum s_u = Σ x y is released with noise; Σ x xᵀ as it is.

    epsilon, delta: pure gamma noise in a tree if δ = 0, else Gaussian noise (the best there is, or as `kind` says).
    site: who draws the noise: "client" (local: nobody else sees s_u) or "coordinator" (global: it is trusted).
    low, high, excess: the range of rewards, and what happens to others: "clip" or "refuse".
    releases: how many releases a mechanism is calibrated for, by default what a user is expected to need; when they
        are spent a new one begins (`RewardStream`).

    *Guarantee.* ε (or (ε, δ)) for one reward, replaced by any other in the range, against all who see the releases and
    everything computed from them. One reward is in one user's sum, and graphs and groups come afterwards. Models must
    learn from releases only, since the contexts of chosen arms are sent as they are: `System` sees to that.

    Reference: Wang et al. 2020, whose noise is on b ∈ R^dN; here s_u ∈ R^d, of which b is a function.
    """

    epsilon: float = 1.0
    delta: float = 0.0
    site: Trust = "client"
    kind: FactorisationKind | None = None
    releases: int | None = None
    low: float = 0.0
    high: float = 1.0
    excess: Literal["clip", "refuse"] = "clip"
    world: World | None = field(default=None, repr=False, compare=False)

    keeps_own: ClassVar[bool] = False
    perturbs: ClassVar[Perturbs] = "reward sums"

    def __post_init__(self) -> None:
        """Check every number."""
        check_epsilon(self.epsilon)
        between = "0 (pure) or between 0 and 1"
        require(0 <= number(self.delta, "delta", between) < 1, "delta", self.delta, between)
        if self.site not in ("client", "coordinator"):
            raise unknown("site", self.site, ("client", "coordinator"))
        if self.releases is not None:
            object.__setattr__(self, "releases", whole_number("releases", self.releases))
        low, high = number(self.low, "low", "a finite number"), number(self.high, "high", "a finite number")
        require(low < high, "high", high, f"above low = {low:g}")
        require(self.excess in ("clip", "refuse"), "excess", self.excess, "'clip' or 'refuse'")

    @property
    def reward_rule(self) -> RewardRule:
        """The range."""
        return RewardRule(self.low, self.high, self.excess == "clip", 0.0)

    def told(self, world: World, releases: int) -> RewardSums:
        """With as many releases as a user is expected to need."""
        needed = min(releases, expected_share(world)) if self.releases is None else self.releases
        return replace(self, world=world, releases=needed)

    @cached_property
    def mechanism(self) -> Mechanism:
        """The same for every user."""
        if self.world is None or self.releases is None:
            raise FedbanditError("A privacy part has no mechanism before it is told the world.")
        return reward_mechanism(
            self.epsilon,
            self.delta,
            self.releases,
            self.world.dim,
            context_bound=self.world.bound,
            reward_range=self.high - self.low,
            kind=self.kind or "best",
        )

    def stream(self, member: int, source: Callable[[int], Source]) -> RewardStream:  # noqa: ARG002
        """One user's stream."""
        return RewardStream(self.mechanism, source)

    def pool_noise(self, *, together: bool) -> SumsNoise:  # noqa: ARG002 - either way
        """Its scale is public."""
        return SumsNoise(float(np.sqrt(np.mean(noise_std(self.mechanism) ** 2))))

    def guarantee(self) -> Guarantee:
        """The claim."""
        if math.isinf(self.epsilon):
            return Guarantee()
        trusted = self.site == "coordinator"
        return Guarantee(
            basis="proven",
            protects="rewards",
            against=against("coordinator" if trusted else "nobody"),
            neighbours="replace one reward",
            epsilon=self.epsilon,
            delta=self.delta,
            unit="one interaction",
            mechanism="noise on each user's sums" if self.world is None else self.mechanism.description,
            definition="local",
            trust="coordinator" if trusted else "nobody",
            own="released",
            public=("contexts", "that and when it took part", "how many rewards it observed"),
            mu=None if self.world is None or self.delta == 0 else distance(self.mechanism),
            context_bound=None if self.world is None else self.world.bound,
            reward_bound=max(abs(self.low), abs(self.high)),
            releases=self.releases,
            proof="Noise on sums of rewards",
        )
