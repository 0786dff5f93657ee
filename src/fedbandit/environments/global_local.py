"""Clients that share a part of their taste and have a part of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit.environments.synthetic import Synthetic, unit_vectors
from fedbandit.errors import require, whole_number
from fedbandit.types import Array, Ints


@dataclass(frozen=True)
class GlobalLocal(Synthetic):
    """E y = θ^(g)ᵀ x^(g) + θ^(i)ᵀ x^(l) with x^(g) the first `d_global` entries of x (Async-LinUCB, Eq. 2 and §4).

    θ^(g) is the same for all clients, θ^(i) client i's own; both are uniform in direction and of length one, as in the
    paper and in its authors' code (1/√2 each with Bernoulli rewards, whose means are in [0, 1]). `d_global` is half of
    the dimensions if it is not given.

    >>> env = GlobalLocal(n_clients=100, dim=25, n_arms=25, d_global=16)
    >>> parameters = env.open(seed=0).parameters[0]
    >>> bool((parameters[0, :16] == parameters[1, :16]).all()), bool((parameters[0, 16:] == parameters[1, 16:]).any())
    (True, False)
    """

    d_global: int | None = None

    name: ClassVar[str] = "global_local"

    def __post_init__(self) -> None:
        """Check the keywords, as `Synthetic` does, and the split."""
        super().__post_init__()
        if self.d_global is None:
            object.__setattr__(self, "d_global", (self.dim + 1) // 2)
        wanted = whole_number("d_global", self.d_global)
        require(wanted <= self.dim, "d_global", wanted, f"at most dim = {self.dim}")

    def draw_parameters(self, rng: np.random.Generator) -> tuple[Array, Ints]:
        """θ^(g) followed by θ^(i), for each client."""
        shared = self.d_global or self.dim
        own = self.dim - shared
        positive = self.rewards == "bernoulli"
        theta = np.empty((self.n_clients, self.dim))
        theta[:, :shared] = unit_vectors(rng, 1, shared, positive=positive)
        if own:
            theta[:, shared:] = unit_vectors(rng, self.n_clients, own, positive=positive)
        return theta / np.sqrt(2 if positive and own else 1), np.arange(self.n_clients)
