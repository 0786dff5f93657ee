"""Local privacy of rewards: every reward is noised by the client before anything is done with it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from fedbandit.errors import number, require
from fedbandit.privacy.calibration import check_epsilon
from fedbandit.privacy.guarantee import Guarantee
from fedbandit.privacy.noise import Source
from fedbandit.privacy.privacy import Perturbs, Privacy, Site
from fedbandit.privacy.trust import against
from fedbandit.rewards import AS_THEY_ARE, RewardRule
from fedbandit.world import World


@dataclass(frozen=True)
class NoisyRewards(Privacy):
    """Learn from r + Laplace((high − low)/ε) instead of r, with r in [low, high].

    *Guarantee.* Pure ε, local: everything that leaves the client, the arms it pulls and the times at which it speaks
    are functions of noised rewards, so every protocol and every structure is sound with it. One interaction's reward
    is the unit; a user's T rewards together have Tε. Contexts are not protected.

    `excess` says what happens to rewards outside the range: "clip" (they are counted) or "refuse".

    >>> NoisyRewards(epsilon=2.0).guarantee().unit
    'one interaction'
    """

    epsilon: float
    low: float = 0.0
    high: float = 1.0
    excess: Literal["clip", "refuse"] = "clip"

    site: ClassVar[Site] = "client"
    keeps_own: ClassVar[bool] = False
    perturbs: ClassVar[Perturbs] = "rewards"

    def __post_init__(self) -> None:
        """Check the budget and the range."""
        check_epsilon(self.epsilon)
        low, high = number(self.low, "low", "a finite number"), number(self.high, "high", "a finite number")
        require(low < high, "high", high, f"above low = {low:g}")
        require(self.excess in ("clip", "refuse"), "excess", self.excess, "'clip' or 'refuse'")

    @property
    def reward_rule(self) -> RewardRule:
        """The range, and the noise; nothing where nothing is claimed."""
        if math.isinf(self.epsilon):
            return AS_THEY_ARE
        return RewardRule(self.low, self.high, self.excess == "clip", (self.high - self.low) / self.epsilon)

    def told(self, world: World, releases: int) -> NoisyRewards:  # noqa: ARG002 - nothing is open
        """Itself."""
        return self

    def guarantee(self) -> Guarantee:
        """Local and pure, for each reward."""
        if math.isinf(self.epsilon):
            return Guarantee()
        return Guarantee(
            basis="proven",
            protects="rewards",
            against=against("nobody"),
            neighbours="replace one reward",
            epsilon=self.epsilon,
            unit="one interaction",
            mechanism="Laplace noise on each reward",
            definition="local",
            trust="nobody",
            own="released",
            public=("contexts", "that and when it took part", "how many rewards it observed"),
            reward_bound=max(abs(self.low), abs(self.high)),
            proof="Noise on rewards",
        )

    def stream(self, member: int, source: Callable[[int], Source]) -> None:
        """Statistics are noised already."""

    def pool_noise(self, *, together: bool) -> None:
        """What the noise does to the width is part of σ."""
