"""The simulator of the lab behind CoLin and the private collaborative bandits: groups with masked features."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from fedbandit.environments.collaborative import Collaborative
from fedbandit.environments.synthetic import Contexts
from fedbandit.errors import FedbanditError, require, whole_number
from fedbandit.types import Array

Vectors = str | os.PathLike[str] | ArrayLike
"""A file of the lab's, one JSON array [id, vector] a line, or an array with a row for each."""


@dataclass(frozen=True)
class Simulator(Collaborative):
    """Users on a graph in groups, and articles in groups, each with a random 0/1 mask on its features.

    Rewards and graph are those of `Collaborative`. Entries are U(0, 1) (`features="uniform"`), or those of articles are
    normal with variance (d − i)/d ("gaussian", as the lab's code has it today); masked, and normalised to length one.
    There are five groups, which are blocks: articles 0, 1, … are the first.

    users, articles: parameters (N, d) and a pool (P, d) that were drawn before, as arrays or as files of the lab; the
        sizes follow from them, and the seed decides only what is offered when.

    Reference: Wang et al. 2020, §6.1, "we follow the settings in [6, 37]"; HCDM/BanditLib, Articles.py and CoUsers.py.

    Deviations:
        D1. A mask without ones, by which the lab's code would divide by zero, is drawn again.
        D2. The lab's default keeps all edges (`threshold=0`, as here); the paper deletes those below a threshold that
            is not printed.

    >>> env = Simulator()
    >>> pool = env.open(seed=0).pool
    >>> len({tuple(row) for row in (pool[:200] > 0).tolist()}), pool.shape  # one mask for the first group
    (1, (1000, 5))
    """

    n_clients: int = 10
    dim: int = 5
    n_arms: int = 10
    pool: int | None = 1000
    arrivals: Literal["uniform", "round-robin", "skewed"] | tuple[float, ...] = "round-robin"
    contexts: Contexts = "sphere"
    threshold: float = 0.0
    groups: int = 5
    features: Literal["uniform", "gaussian"] = "uniform"
    users: Vectors | None = field(default=None, repr=False)
    articles: Vectors | None = field(default=None, repr=False)

    name: ClassVar[str] = "simulator"

    def __post_init__(self) -> None:
        """Read what was drawn before, and check every keyword."""
        for name, size in (("users", "n_clients"), ("articles", "pool")):
            given = getattr(self, name)
            if given is not None:
                drawn = _vectors(name, given)
                object.__setattr__(self, name, drawn)
                object.__setattr__(self, size, len(drawn))
                object.__setattr__(self, "dim", drawn.shape[1])
        if self.users is not None and self.articles is not None:
            own, length = (np.asarray(drawn).shape[1] for drawn in (self.users, self.articles))
            require(own == length, "the length of an article", length, f"{own}, that of a user")
        super().__post_init__()
        require(self.features in ("uniform", "gaussian"), "features", self.features, "'uniform' or 'gaussian'")
        require(self.pool is not None, "pool", self.pool, "a number: groups are those of a pool of articles")
        most = min(self.n_clients, self.pool or 0)
        require(whole_number("groups", self.groups) <= most, "groups", self.groups, f"at most {most}, one a user")
        if self.signed or self.contexts != "sphere":
            raise FedbanditError("The simulator's contexts are those of its groups; use collaborative for others.")
        if self.rewards == "bernoulli" and self.features == "gaussian":
            raise FedbanditError("Bernoulli rewards need features='uniform': other expected rewards may be negative.")

    def draw_preferences(self, rng: np.random.Generator) -> Array:
        """θ (N, d), masked by group."""
        if self.users is not None:
            return np.asarray(self.users)
        return self._masked(rng, rng.random((self.n_clients, self.dim)))

    def draw_contexts(self, rng: np.random.Generator, n: int) -> Array:
        """The pool of articles, masked by group."""
        if self.articles is not None:
            return np.asarray(self.articles)
        if self.features == "uniform":
            return self._masked(rng, rng.random((n, self.dim)))
        return self._masked(rng, rng.standard_normal((n, self.dim)) * np.sqrt(1 - np.arange(self.dim) / self.dim))

    def _masked(self, rng: np.random.Generator, x: Array) -> Array:
        masks = rng.integers(0, 2, size=(self.groups, self.dim))
        while (empty := masks.sum(axis=1) == 0).any():
            masks[empty] = rng.integers(0, 2, size=(int(empty.sum()), self.dim))
        masked = x * masks[np.arange(len(x)) * self.groups // len(x)]
        return np.asarray(masked / np.linalg.norm(masked, axis=1, keepdims=True))


def _vectors(name: str, given: Vectors) -> Array:
    """Vectors of norm at most one, one a row."""
    rows = _read(name, os.fspath(given)) if isinstance(given, str | os.PathLike) else given
    try:
        x = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise FedbanditError(f"{name} must be an array of numbers, a row for each, all of the same length.") from None
    good = x.ndim == 2 and x.size > 0 and bool(np.isfinite(x).all())
    require(good, f"{name} of shape", x.shape, "(rows, d), finite")
    longest = float(np.linalg.norm(x, axis=1).max())
    require(longest <= 1 + 1e-9, f"the largest norm of {name}", longest, "at most 1")
    return x


def _read(name: str, path: str) -> list[list[float]]:
    """The vectors in a file of the lab's."""
    try:
        with open(path, encoding="utf-8") as lines:
            return [json.loads(line)[1] for line in lines if line.strip()]
    except OSError as error:
        raise FedbanditError(f"{name}: {path!r} cannot be read ({error.strerror}).") from None
    except (ValueError, IndexError, TypeError, KeyError):
        raise FedbanditError(
            f"{name}: {path!r} is no file of the simulator, which has a line [id, [numbers]] for each."
        ) from None
