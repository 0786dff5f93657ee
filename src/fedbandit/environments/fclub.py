"""The world of FCLUB: clusters of users on local servers, and clicks."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from fedbandit.environments.datasets.folders import Origin, find_folder
from fedbandit.environments.kernels import scale_rows
from fedbandit.environments.synthetic import Contexts, Synthetic
from fedbandit.errors import FedbanditError, number, require, whole_number
from fedbandit.types import Array, Ints

AUTHORS = Origin(
    "The folder of FCLUB's parameters",
    "the .npy files of its authors' code (github.com/ZhaoHaoRu/Federated-Clustering-of-Bandits)",
    ("fclub",),
    (("m_theta.npy",),),
)

MOST_TRIES = 10_000
"""How many directions are drawn for a cluster that must keep its distance."""


@dataclass(frozen=True)
class Fclub(Synthetic):
    """Items and parameters are (g/‖g‖, 1)/√2 with g Gaussian in d − 1 dimensions; rewards are Bernoulli(θᵀx).

    n_clusters: the number of different parameters; clusters are of equal size, give or take one.
    n_servers: local servers, each with a block of consecutive users.
    placement: "mixed" (user i is in cluster i mod M, so that every server has all of them) or "blocks" (clusters are
        blocks of consecutive users too).
    gap: the least distance between parameters (they are at most √2 apart).
    theta: the parameters (N, d) of all users instead, which say N and d, equal rows being a cluster: an array, a .npy
        file, or the name of one of the authors' files ("m_theta", "ml_1000user_d10", …) in the folder `fclub` of
        $FEDBANDIT_DATA.
    first: only so many users of `theta`, the first ones.
    rewards: "bernoulli", or "gaussian" with `noise`.

    Reference: Liu et al., FCLUB, 2022, §5 with the settings of the authors' code.

    >>> env = Fclub()
    >>> env.n_clients, env.dim, env.n_arms, env.partition[:6].tolist(), env.server_of[[0, 7, 8, 39]].tolist()
    (40, 10, 10, [0, 1, 2, 3, 4, 0], [0, 0, 1, 4])
    """

    n_clients: int = 40
    dim: int = 10
    n_arms: int = 10
    contexts: Contexts = "sphere"
    rewards: Literal["gaussian", "bernoulli"] = "bernoulli"
    n_clusters: int = 5
    n_servers: int = 5
    placement: Literal["mixed", "blocks"] = "mixed"
    gap: float = 0.0
    theta: ArrayLike | str | None = field(default=None, repr=False)
    first: int | None = None

    name: ClassVar[str] = "fclub"

    def __post_init__(self) -> None:
        """Check every keyword."""
        if self.theta is not None:
            given = read_parameters(self.theta)
            kept = len(given) if self.first is None else whole_number("first", self.first, 1)
            require(kept <= len(given), "first", self.first, f"at most the {len(given)} users of theta")
            object.__setattr__(self, "theta", given[:kept])
            users, dim = self.parameters_given.shape
            for_all = (self.__dataclass_fields__["n_clients"].default, len(given), users)
            some = f"{users}, as theta has so many users; `first` takes fewer of them"
            require(self.n_clients in for_all, "n_clients", self.n_clients, some)
            usual = self.__dataclass_fields__["dim"].default
            require(self.dim in (usual, dim), "dim", self.dim, f"{dim}, as theta has so many columns")
            object.__setattr__(self, "n_clients", users)
            object.__setattr__(self, "dim", dim)
            object.__setattr__(self, "n_clusters", len(np.unique(self.parameters_given, axis=0)))
            require(not self.drift, "drift", self.drift, "empty where theta is given: there is nothing to draw anew")
        require(self.first is None or self.theta is not None, "first", self.first, "None where no theta is given")
        super().__post_init__()
        require(self.dim >= 2, "dim", self.dim, "at least 2: the last coordinate is always 1/√2")
        require(self.contexts == "sphere", "contexts", self.contexts, "'sphere', as FCLUB's items are of norm 1")
        for name, what in (("n_clusters", "cluster"), ("n_servers", "server")):
            count = whole_number(name, getattr(self, name), 1)
            expected = f"at most n_clients = {self.n_clients}, since every {what} has a user"
            require(count <= self.n_clients, name, count, expected)
        require(self.placement in ("mixed", "blocks"), "placement", self.placement, "'mixed' or 'blocks'")
        number(self.gap, "gap", "a finite number ≥ 0", at_least=0.0)
        require(self.gap <= 2**0.5, "gap", self.gap, "at most √2, the largest distance there is")

    @property
    def parameters_given(self) -> Array:
        """Θ, where it was given."""
        assert isinstance(self.theta, np.ndarray)
        return self.theta

    @property
    def partition(self) -> Ints:
        """The true cluster of each user."""
        if self.theta is not None:
            _, first, label = np.unique(self.parameters_given, axis=0, return_index=True, return_inverse=True)
            return np.argsort(np.argsort(first))[label.reshape(-1)]
        users = np.arange(self.n_clients)
        return users % self.n_clusters if self.placement == "mixed" else users * self.n_clusters // self.n_clients

    @property
    def server_of(self) -> Ints:
        """The local server of each user."""
        return np.arange(self.n_clients) * self.n_servers // self.n_clients

    def draw_parameters(self, rng: np.random.Generator) -> tuple[Array, Ints]:
        """A parameter for each cluster, at least `gap` apart, or those that were given."""
        label = self.partition
        if self.theta is not None:
            return self.parameters_given[np.unique(label, return_index=True)[1]], label
        chosen = np.empty((0, self.dim))
        for _ in range(MOST_TRIES):
            new = self.draw_contexts(rng, 1)
            if len(chosen) == 0 or np.linalg.norm(chosen - new, axis=1).min() >= self.gap:
                chosen = np.vstack([chosen, new])
            if len(chosen) == self.n_clusters:
                return chosen, label
        raise FedbanditError(
            f"gap is {self.gap:g}, but {self.n_clusters} parameters of dimension {self.dim} that far apart were not "
            f"found in {MOST_TRIES:,} draws; make it smaller."
        )

    def draw_contexts(self, rng: np.random.Generator, n: int) -> Array:
        """N vectors (g/‖g‖, 1)/√2."""
        g = rng.standard_normal((n, self.dim - 1), dtype=np.float32)  # only its direction counts: a fifth faster
        x = np.zeros((n, self.dim))
        x[:, :-1] = g
        scale_rows(x, math.sqrt(0.5))
        x[:, -1] = math.sqrt(0.5)
        return x


def read_parameters(theta: ArrayLike | str | os.PathLike[str]) -> Array:
    """Parameters of users (N, d) from an array, a .npy file, or a file of the authors by its name."""
    if isinstance(theta, str | os.PathLike):
        path = os.fspath(theta)
        if not path.endswith(".npy"):
            path = str(find_folder(AUTHORS, None) / f"{path}.npy")
        try:
            theta = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise FedbanditError(f"theta cannot be read from {path!r}: {error}.") from None
    try:
        given = np.array(theta, dtype=np.float64)
    except (TypeError, ValueError):
        raise FedbanditError("theta holds something that is not a number.") from None
    require(given.ndim == 2 and given.size > 0, "the shape of theta", given.shape, "(N, d), one row for each user")
    require(bool(np.isfinite(given).all()), "theta", "not finite", "made of finite numbers")
    return given
