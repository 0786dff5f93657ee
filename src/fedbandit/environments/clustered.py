"""Clients come in clusters of like taste."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from fedbandit.environments.synthetic import Synthetic, unit_vectors
from fedbandit.errors import FedbanditError, number, require, whole_number
from fedbandit.streams import Purpose, generator
from fedbandit.types import Array, Ints

MOST_TRIES = 10_000
"""How many directions are drawn for centres that must keep their distance."""


@dataclass(frozen=True)
class Clustered(Synthetic):
    """Cluster centres on the unit sphere, and every client's parameter near that of its cluster.

    n_clusters, gap: M centres, so far apart that parameters of different clusters have at least the distance `gap`.
    spread: a client's parameter is at most this far from its centre, in a random direction, and of norm ≤ 1.
    sizes: None for equal sizes, give or take one (client i is in cluster i mod M), "random" (every client's cluster is
        drawn, none is empty), or M numbers that sum to N, for blocks of consecutive clients.
    n_servers: local servers, each with a block of consecutive users.

    The partition belongs to the environment, the parameters to the seed.

    Reference: Blaser et al., HetoFedBandit, 2024, Assumptions 1 and 2 and §4.2, with `contexts="sphere"`.

    >>> env = Clustered(n_clients=6, dim=5, n_arms=3, n_clusters=2, gap=0.85, sizes=(2, 4), n_servers=2)
    >>> env.partition.tolist(), env.server_of.tolist()
    ([0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1])
    """

    n_clusters: int = 4
    gap: float = 0.5
    spread: float = 0.0
    sizes: Literal["random"] | tuple[int, ...] | None = None
    n_servers: int = 1

    name: ClassVar[str] = "clustered"

    def __post_init__(self) -> None:
        """Check every keyword."""
        super().__post_init__()
        for name, what in (("n_clusters", "cluster"), ("n_servers", "server")):
            count = whole_number(name, getattr(self, name), 1)
            expected = f"at most n_clients = {self.n_clients}, since every {what} has a user"
            require(count <= self.n_clients, name, count, expected)
            object.__setattr__(self, name, count)
        for name in ("gap", "spread"):
            object.__setattr__(self, name, number(getattr(self, name), name, "a finite number ≥ 0", at_least=0.0))
        farthest = 2**0.5 if self.rewards == "bernoulli" else 2.0
        require(
            self.n_clusters == 1 or self.gap + 2 * self.spread <= farthest,
            "gap + 2 spread",
            self.gap + 2 * self.spread,
            f"at most {farthest:.3g}, the largest distance between centres",
        )
        if self.sizes is not None and self.sizes != "random":
            self._check_sizes()

    def _check_sizes(self) -> None:
        expected = f"None, 'random' or {self.n_clusters} whole numbers ≥ 1 that sum to n_clients = {self.n_clients}"
        listed = isinstance(self.sizes, tuple | list)
        require(listed and len(self.sizes or ()) == self.n_clusters, "sizes", self.sizes, expected)
        sizes = tuple(whole_number("a size", size, 1) for size in self.sizes or () if not isinstance(size, str))
        require(sum(sizes) == self.n_clients, "sizes", self.sizes, expected)
        object.__setattr__(self, "sizes", sizes)

    @property
    def partition(self) -> Ints:
        """The true cluster of each client."""
        N, M = self.n_clients, self.n_clusters
        if self.sizes == "random":
            rng = generator(N, Purpose.WORLD, M)
            return rng.permutation(np.concatenate([np.arange(M), rng.integers(0, M, size=N - M)]))
        if self.sizes is None:
            return np.arange(N) % M
        return np.repeat(np.arange(M), self.sizes)

    @property
    def server_of(self) -> Ints:
        """The local server of each client."""
        return np.arange(self.n_clients) * self.n_servers // self.n_clients

    def draw_parameters(self, rng: np.random.Generator) -> tuple[Array, Ints]:
        """A parameter for each cluster or, if there is a spread, for each client."""
        centres, label = self._draw_centres(rng), self.partition
        if self.spread == 0:
            return centres, label
        away = unit_vectors(rng, self.n_clients, self.dim) * rng.uniform(0, self.spread, size=(self.n_clients, 1))
        theta = centres[label] + away
        # Projections on convex sets that contain the centre: they bring nobody farther from it.
        if self.rewards == "bernoulli":
            theta = np.maximum(theta, 0.0)
        theta /= np.maximum(np.linalg.norm(theta, axis=1, keepdims=True), 1.0)
        return theta, np.arange(self.n_clients)

    def _draw_centres(self, rng: np.random.Generator) -> Array:
        chosen = np.empty((0, self.dim))
        distance = self.gap + 2 * self.spread
        for _ in range(MOST_TRIES):
            new = unit_vectors(rng, 1, self.dim, positive=self.rewards == "bernoulli")
            if len(chosen) == 0 or np.linalg.norm(chosen - new, axis=1).min() >= distance:
                chosen = np.vstack([chosen, new])
            if len(chosen) == self.n_clusters:
                return chosen
        raise FedbanditError(
            f"gap is {self.gap:g}, but {self.n_clusters} centres in {self.dim} dimensions that far apart were not "
            f"found in {MOST_TRIES:,} draws; make it smaller."
        )
