"""Pure privacy of rewards by whichever mechanism has the smaller noise at this horizon."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from fedbandit.errors import unknown
from fedbandit.privacy.guarantee import Guarantee
from fedbandit.privacy.mechanism import noise_std, reward_mechanism
from fedbandit.privacy.noise import Source
from fedbandit.privacy.noisy_rewards import NoisyRewards
from fedbandit.privacy.privacy import Perturbs, Privacy
from fedbandit.privacy.reward_stream import RewardStream
from fedbandit.privacy.reward_sums import RewardSums, SumsNoise, Trust, expected_share
from fedbandit.rewards import RewardRule
from fedbandit.world import World

Mechanisms = Literal["best", "rewards", "sums"]
MECHANISMS = ("best", "rewards", "sums")


@dataclass(frozen=True)
class PrivateRewards(Privacy):
    """Noise on each reward (`NoisyRewards`) or on each user's sums (`RewardSums`); settled when the world is known.

    With n = T/N interactions a user, noise in s_u = Σ x y has the expected square 2 n L² R²/ε² in the first case (R is
    the range of rewards), and d times the mean variance of a release in the second; "best" takes the smaller one. With
    δ > 0 it is "sums", with Gaussian noise. Noise on rewards is always drawn by the client, whatever `site` asks for:
    it is the stronger guarantee, at the same price.

    >>> PrivateRewards(epsilon=1.0).told(World(10, 10, 10_000), 1000)
    NoisyRewards(epsilon=1.0, low=0.0, high=1.0, excess='clip')
    >>> type(PrivateRewards(epsilon=1.0).told(World(10, 2, 1_000_000), 100_000)).__name__
    'RewardSums'
    """

    epsilon: float = 1.0
    delta: float = 0.0
    mechanism: Mechanisms = "best"
    site: Trust = "client"
    low: float = 0.0
    high: float = 1.0
    excess: Literal["clip", "refuse"] = "clip"

    keeps_own: ClassVar[bool] = False
    perturbs: ClassVar[Perturbs] = "reward sums"

    def __post_init__(self) -> None:
        """Check the choice, and all numbers as the two mechanisms do."""
        if self.mechanism not in MECHANISMS:
            raise unknown("mechanism", self.mechanism, MECHANISMS)
        self._rewards()
        self._sums()

    def _rewards(self) -> NoisyRewards:
        return NoisyRewards(self.epsilon, self.low, self.high, self.excess)

    def _sums(self) -> RewardSums:
        return RewardSums(self.epsilon, self.delta, self.site, low=self.low, high=self.high, excess=self.excess)

    @property
    def reward_rule(self) -> RewardRule:
        """The range."""
        return self._sums().reward_rule

    def told(self, world: World, releases: int) -> Privacy:
        """One of the two."""
        if self.mechanism == "rewards" and self.delta == 0:
            return self._rewards()
        if (
            self.mechanism == "best"
            and self.delta == 0
            and self.squares(world, releases)[0] <= self.squares(world, releases)[1]
        ):
            return self._rewards()
        return self._sums().told(world, releases)

    def squares(self, world: World, releases: int) -> tuple[float, float]:
        """The expected squared norm of the noise in one user's sum at the horizon: noise on rewards, on sums."""
        if math.isinf(self.epsilon):
            return 0.0, 0.0
        n = world.horizon / world.n_clients
        width = self.high - self.low
        tree = reward_mechanism(
            self.epsilon,
            0.0,
            min(releases, expected_share(world)),
            world.dim,
            context_bound=world.bound,
            reward_range=width,
            kind="tree",
        )
        on_sums = world.dim * float(np.mean(noise_std(tree) ** 2))
        return 2 * n * (world.bound * width / self.epsilon) ** 2, on_sums

    def guarantee(self) -> Guarantee:
        """That of the sums, which asks for more trust."""
        return self._sums().guarantee()

    def stream(self, member: int, source: Callable[[int], Source]) -> RewardStream | None:
        """There is none before it is told the world."""
        return self._sums().stream(member, source)

    def pool_noise(self, *, together: bool) -> SumsNoise | None:
        """Not known before it is told the world."""
        return self._sums().pool_noise(together=together)
