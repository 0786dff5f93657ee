"""Users on a known graph, whose rewards mix the tastes of their neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from fedbandit.environments.synthetic import Synthetic, positive_directions, unit_vectors
from fedbandit.errors import FedbanditError, number, require
from fedbandit.streams import Purpose, generator
from fedbandit.types import Array, Ints


@dataclass(frozen=True)
class Collaborative(Synthetic):
    """E y = Σ_j w_uj θ_jᵀx: user u's reward is a mixture of its neighbours' (Wang et al. 2020, Eq. 2 and §6.1).

    Parameters θ_j and contexts have entries U(0, 1) and are normalised to length one; with `signed` contexts are
    uniform on the sphere. w_ij ∝ ⟨θ_i, θ_j⟩ where that is at least `threshold`, else 0; every user keeps its nearest
    neighbour. `graph_of(seed)` is W.

    Deviations:
        D1. `normalise="rows"` makes rows of W sum to one, so that every expected reward is in [0, 1], which the claims
            of privacy need. The paper normalises columns ("columns"); rewards then have no such bound.
        D2. The paper's threshold is not printed. 0.75 is the mean of ⟨θ_i, θ_j⟩, so about half of the edges stay.

    >>> env = Collaborative(n_clients=10, dim=10, n_arms=10, pool=1000)
    >>> env.graph_of(seed=0).sum(axis=1).round(12).tolist() == [1.0] * 10
    True
    """

    threshold: float = 0.75
    normalise: Literal["rows", "columns"] = "rows"
    signed: bool = False

    name: ClassVar[str] = "collaborative"

    def __post_init__(self) -> None:
        """Check the keywords, as `Synthetic` does, and the graph's."""
        super().__post_init__()
        require(self.n_clients >= 2, "n_clients", self.n_clients, "at least 2: a user alone has no neighbours")
        number(self.threshold, "threshold", "a finite number")
        require(
            self.contexts != "decaying", "contexts", self.contexts, "what signed says; decaying ones are clustered's"
        )
        require(self.normalise in ("rows", "columns"), "normalise", self.normalise, "'rows' or 'columns'")
        if self.drift:
            raise FedbanditError("drift is refused: the graph is made of the users' parameters and would change too.")
        if self.rewards == "bernoulli" and self.normalise == "columns":
            raise FedbanditError("Bernoulli rewards need normalise='rows': other expected rewards may exceed 1.")
        if self.rewards == "bernoulli" and self.signed:
            raise FedbanditError("Bernoulli rewards need signed=False: other expected rewards may be negative.")

    def draw_users(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """The parameters θ (N, d) and the weights W (N, N)."""
        theta = self.draw_preferences(rng)
        similar = theta @ theta.T
        np.fill_diagonal(similar, -np.inf)
        kept = similar >= self.threshold
        nearest = similar.argmax(axis=1)
        kept[np.arange(self.n_clients), nearest] = kept[nearest, np.arange(self.n_clients)] = True
        W = np.where(kept, similar, 0.0) + np.eye(self.n_clients)  # ⟨θ_i, θ_i⟩ = 1
        return theta, W / W.sum(axis=1 if self.normalise == "rows" else 0, keepdims=self.normalise == "rows")

    def draw_preferences(self, rng: np.random.Generator) -> Array:
        """θ (N, d)."""
        return positive_directions(rng, self.n_clients, self.dim)

    def graph_of(self, seed: int) -> Array:
        """W of this seed's users."""
        return self.draw_users(generator(seed, Purpose.WORLD))[1]

    def draw_parameters(self, rng: np.random.Generator) -> tuple[Array, Ints]:
        """What rewards follow: Σ_j w_uj θ_j for each user u."""
        theta, W = self.draw_users(rng)
        return W @ theta, np.arange(self.n_clients)

    def draw_contexts(self, rng: np.random.Generator, n: int) -> Array:
        """Contexts of length one, non-negative unless `signed`."""
        return unit_vectors(rng, n, self.dim) if self.signed else positive_directions(rng, n, self.dim)
