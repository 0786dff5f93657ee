"""All clients have the same taste."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit.environments.synthetic import Synthetic, unit_vectors
from fedbandit.types import Array, Ints


@dataclass(frozen=True)
class Homogeneous(Synthetic):
    """One parameter θ, uniform on the unit sphere, for all clients: E y = θᵀx (Async-LinUCB, Eq. 1 and §4).

    >>> env = Homogeneous(n_clients=100, dim=25, n_arms=25)
    >>> env.open(seed=0).block(0, 3).means.shape
    (3, 25)
    """

    name: ClassVar[str] = "homogeneous"

    def draw_parameters(self, rng: np.random.Generator) -> tuple[Array, Ints]:
        """One θ."""
        theta = unit_vectors(rng, 1, self.dim, positive=self.rewards == "bernoulli")
        return theta, np.zeros(1, dtype=np.int64)
