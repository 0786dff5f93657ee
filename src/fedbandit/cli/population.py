"""Simulated users for real clients and peers: demonstrations and first trials."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from fedbandit.machines.client import ClientMachine
from fedbandit.network.client.choices import Arm
from fedbandit.presets import linucb
from fedbandit.streams import Purpose, generator
from fedbandit.types import Array
from fedbandit.world import World


class ServingNode(Protocol):
    """A client or a peer, as its user sees it."""

    facts: dict[str, float]

    def select(self, arms: ArrayLike) -> Arm:
        """Choose one of the arms."""
        ...

    def observe(self, reward: float, choice: Arm | str) -> None:
        """Learn the reward of a choice."""
        ...


class User:
    """A user whose taste is θ = common + spread · own, scaled to length 1, and who is also served by a lone learner.

    The lone learner sees the same arms and the same noise, so that the two regrets can be compared.
    """

    def __init__(
        self, number: int, world: World, n_arms: int, spread: float, seed: int, reward_bound: float = math.inf
    ) -> None:
        common, own = (_direction(generator(seed, Purpose.WORLD, part), world.dim) for part in (0, 1 + number))
        theta = common + spread * own
        self.theta = theta / np.linalg.norm(theta)
        self.rng = generator(seed, Purpose.CONTEXTS, number)
        self.world, self.n_arms, self.reward_bound = world, n_arms, reward_bound
        self.alone = ClientMachine(0, linucb(), World(1, world.dim, world.horizon, world.noise, world.bound), seed)
        self.regret = 0.0
        self.regret_alone = 0.0

    def meet(self, client: ServingNode) -> None:
        """One visit: the client chooses, the user likes it more or less."""
        X, noise = self._draw()
        means = X @ self.theta
        arm = client.select(X)
        client.observe(self._reward(means[arm] + noise), arm)
        lone = self.alone.select(X)
        self.alone.observe(lone.number, self._reward(means[lone.arm] + noise))
        self.regret += float(means.max() - means[arm])
        self.regret_alone += float(means.max() - means[lone.arm])
        client.facts = {"regret": self.regret, "alone": self.regret_alone}

    def skip(self) -> None:
        """A visit that was before."""
        self._draw()

    def _reward(self, liking: float) -> float:
        return min(max(float(liking), -self.reward_bound), self.reward_bound)

    def _draw(self) -> tuple[Array, float]:
        X = self.rng.standard_normal((self.n_arms, self.world.dim))
        X *= self.world.bound / np.linalg.norm(X, axis=1, keepdims=True)
        return X, self.world.noise * float(self.rng.standard_normal())


def _direction(rng: np.random.Generator, dim: int) -> Array:
    x = rng.standard_normal(dim)
    return x / np.linalg.norm(x)
