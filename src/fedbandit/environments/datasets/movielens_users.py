"""FCLUB's MovieLens: users' parameters from their ratings, everything else simulated."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from fedbandit.environments.datasets.contexts import (
    counted,
    for_preparing,
    left_singular_vectors,
    normalised,
    trimmed,
)
from fedbandit.environments.datasets.folders import Prepared, cached
from fedbandit.environments.datasets.ratings import Ratings, find_movielens, read_ratings
from fedbandit.environments.synthetic import Synthetic
from fedbandit.errors import FedbanditError, checked_call, require, whole_number
from fedbandit.types import Array, Ints


@dataclass(frozen=True)
class MovieLensUsers(Synthetic):
    """Users whose parameters come from MovieLens; made by `movielens_users`."""

    theta: Array = field(default_factory=lambda: np.empty((0, 0)), repr=False)  # (centres, d)
    centre_of: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64), repr=False)  # (N,)

    name: ClassVar[str] = "movielens-users"

    def draw_parameters(self, rng: np.random.Generator) -> tuple[Array, Ints]:  # noqa: ARG002
        """The prepared parameters, whatever the seed."""
        return self.theta, self.centre_of

    @property
    def partition(self) -> Ints:
        """The true cluster of each user."""
        return self.centre_of

    def draw_contexts(self, rng: np.random.Generator, n: int) -> Array:
        """Vectors (z, 1)/√2 with z uniform on the unit sphere of d − 1 dimensions, so that means are in [0, 1]."""
        return with_constant(rng.standard_normal((n, self.dim - 1)))


def with_constant(rows: Array) -> Array:
    """Rows normalised, with a one appended, and divided by √2."""
    return np.concatenate([normalised(rows), np.ones((len(rows), 1))], axis=1) / math.sqrt(2)


@checked_call
def movielens_users(
    path: str | os.PathLike[str] | None = None,
    *,
    n_clients: int = 100,
    first: int | None = None,
    dim: int = 10,
    n_arms: int = 10,
    n_clusters: int = 10,
    release: str | None = None,
    arrivals: Literal["uniform", "round-robin", "skewed"] | tuple[float, ...] = "uniform",
    rounds: Literal["one", "all"] = "one",
) -> MovieLensUsers:
    """Simulated rewards for users whose tastes are taken from MovieLens, in clusters (FCLUB).

    The 0/1 matrix of who rated what, of the 3n users with most ratings, is cut to the n movies that most of them rated
    and then to the n users with most ratings among those, the most active one first. Its d − 1 leading left singular
    vectors, rows normalised, with a one appended and divided by √2, are the users' parameters; k-means moves each to
    one of `n_clusters` centres. Arms are (z, 1)/√2 with z on the unit sphere, rewards Bernoulli(θᵀx).

    n_clients: n. first: only so many of them act, the most active ones (FCLUB's authors have 40 of 1,000).

    Reference: the code of FCLUB (Liu et al. 2022), as its appendix is missing. *Deviations.* D1: movies are the arms
    neither there nor here: MovieLens gives the parameters only. D2: singular vectors are not scaled by singular values.
    """
    n = whole_number("n_clients", n_clients, 1)
    n_clusters = whole_number("n_clusters", n_clusters, 1)
    if whole_number("dim", dim, 2) > n or n_clusters > n:
        raise FedbanditError(f"n_clients is {n}, but must be at least dim = {dim} and n_clusters = {n_clusters}.")
    acting = n if first is None else whole_number("first", first, 1)
    require(acting <= n, "first", first, f"at most n_clients = {n}")
    folder, files = find_movielens(None if path is None else os.fspath(path), release)
    options = {"n": n, "dim": dim, "n_clusters": n_clusters, "order": "activity"}
    _, arrays, _ = cached("movielens-users", files, options, lambda: _parameters(folder, n, dim, n_clusters))
    return MovieLensUsers(
        n_clients=acting,
        dim=dim,
        n_arms=n_arms,
        arrivals=arrivals,
        rounds=rounds,
        rewards="bernoulli",
        theta=arrays["theta"],
        centre_of=arrays["centre_of"][:acting],
    )


def _parameters(folder: Path, n: int, dim: int, n_clusters: int) -> Prepared:
    cluster = for_preparing("sklearn.cluster")
    users = user_vectors(read_ratings(folder), n, dim)
    fit = cluster.KMeans(n_clusters, n_init=10, random_state=0).fit(users)
    return {}, {"theta": trimmed(fit.cluster_centers_), "centre_of": fit.labels_.astype(np.int64)}


def user_vectors(ratings: Ratings, n: int, dim: int) -> Array:
    """Parameters of the n users before they are moved to centres, the most active one first."""
    users = _most(ratings.users, 3 * n)
    here = np.isin(ratings.users, users)
    movies = _most(ratings.movies[here], n)
    here &= np.isin(ratings.movies, movies)
    chosen = _most(ratings.users[here], n)
    if chosen.size < n or movies.size < n:
        raise FedbanditError(
            f"{str(ratings.path)!r}: n_clients is {n}, but there are only {chosen.size} users and {movies.size} movies."
        )
    here &= np.isin(ratings.users, chosen)
    at = _places(chosen, ratings.users[here]), _places(movies, ratings.movies[here])
    scaled = left_singular_vectors(counted(*at, (n, n)), dim - 1, "the matrix of ratings")
    return with_constant(scaled / np.sqrt(np.einsum("ij,ij->j", scaled, scaled)))


def _most(ids: Ints, n: int) -> Ints:
    """The n ids that occur most often, the most frequent one first (ties: the lower id)."""
    distinct, counts = np.unique(ids, return_counts=True)
    return distinct[np.argsort(-counts, kind="stable")[:n]]


def _places(chosen: Ints, ids: Ints) -> Ints:
    """Where in `chosen` these ids stand."""
    order = np.argsort(chosen)
    return order[np.searchsorted(chosen[order], ids)]
