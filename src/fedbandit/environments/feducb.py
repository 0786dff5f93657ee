"""FedUCB's environment: one good arm among many that are equally mediocre."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from fedbandit.environments.kernels import turn_rows
from fedbandit.environments.synthetic import Contexts, Synthetic, SyntheticStream, unit_vectors
from fedbandit.errors import FedbanditError, number, require, whole_number
from fedbandit.types import Array, Ints


@dataclass(frozen=True)
class FedUCB(Synthetic):
    """Each time, K − 1 arms have a mean in [0.5, 0.6] and one, anywhere among them, in [0.6 + gap, 0.7 + gap].

    All clients have the same θ. Arms are x = m θ/‖θ‖² + a random direction orthogonal to θ, of norm 1. Rewards are
    Bernoulli. `n_arms` is d² if not given, every client acts in every round, arms are always fresh.

    Reference: Dubey & Pentland 2020, §4.4.

    Deviations:
        D1. ‖θ‖ = 1, where the paper has θ "randomly fixed in the unit ball": means of 0.8 need a norm of 0.8 or more.

    >>> block = FedUCB(n_clients=2, dim=3).open(seed=0).block(0, 2)
    >>> block.means.shape, bool(0.7 <= block.means.max() <= 0.8), bool(np.allclose(np.linalg.norm(block.X, axis=1), 1))
    ((2, 9), True, True)
    """

    n_clients: int = 10
    dim: int = 10
    n_arms: int = 0
    rounds: Literal["one", "all"] = "all"
    rewards: Literal["gaussian", "bernoulli"] = "bernoulli"
    contexts: Contexts = "sphere"
    gap: float = 0.1

    name: ClassVar[str] = "feducb"

    def __post_init__(self) -> None:
        """Check the keywords."""
        if self.n_arms == 0:
            object.__setattr__(self, "n_arms", whole_number("dim", self.dim, 2) ** 2)
        super().__post_init__()
        require(self.dim >= 2, "dim", self.dim, "a whole number ≥ 2")
        require(self.contexts == "sphere", "contexts", self.contexts, "'sphere', as FedUCB's arms are of norm 1")
        require(0 <= number(self.gap, "gap", "in [0, 0.3]") <= 0.3, "gap", self.gap, "between 0 and 0.3")
        if self.pool is not None or self.rewards != "bernoulli" or self.drift:
            raise FedbanditError("The environment feducb has fresh arms, Bernoulli rewards and no pool or drift.")

    def draw_parameters(self, rng: np.random.Generator) -> tuple[Array, Ints]:
        """One θ of norm 1."""
        return unit_vectors(rng, 1, self.dim), np.zeros(1, dtype=np.int64)

    def open(self, seed: int) -> FedUCBStream:
        """The stream of a seed."""
        return FedUCBStream(self, whole_number("seed", seed, 0))


class FedUCBStream(SyntheticStream):
    """Arms with the means that the environment wants."""

    env: FedUCB

    def fresh_arms(self, rng: np.random.Generator, n: int) -> Array:
        """One good arm in each set."""
        env = self.env
        theta = self.parameters[0, 0]
        best = np.arange(n) * env.n_arms + rng.integers(0, env.n_arms, n)
        means = 0.5 + 0.1 * rng.random(n * env.n_arms)
        means[best] += 0.1 + env.gap
        x = rng.standard_normal((n * env.n_arms, env.dim))
        turn_rows(x, means, theta)
        return x
