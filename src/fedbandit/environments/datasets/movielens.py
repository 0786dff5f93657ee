"""MovieLens as a bandit: movies that users rated."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from fedbandit.environments.datasets.contexts import (
    counted,
    left_singular_vectors,
    normalised,
    principal_components,
    tf_idf,
    trimmed,
)
from fedbandit.environments.datasets.folders import Prepared, cached
from fedbandit.environments.datasets.likes import LikedItems
from fedbandit.environments.datasets.prepare import (
    Contexts,
    Likes,
    Options,
    Report,
    contexts_from_terms,
    fields_of,
    prepare,
)
from fedbandit.environments.datasets.ratings import Ratings, find_movielens, read_ratings
from fedbandit.errors import FedbanditError, checked_call
from fedbandit.types import Ints


@dataclass(frozen=True)
class MovieLens(LikedItems):
    """MovieLens as a bandit; made by `movielens`."""

    name: ClassVar[str] = "movielens"


@checked_call
def movielens(
    path: str | os.PathLike[str] | None = None,
    *,
    release: str | None = None,
    min_rating: float = 0.0,
    min_observations: int = 0,
    most_active: int | None = 54,
    dim: int = 25,
    n_arms: int = 25,
) -> MovieLens:
    """MovieLens (100k, 1M, 20M, 25M or latest): movies that users rated.

    A rated movie is liked, whatever the rating (Async-LinUCB App. H), or only with a rating ≥ `min_rating` (those with
    a lower one may then be offered as not liked); `n_arms` arms, one of which the user liked; reward 1 or 0. Of the
    users with more than `min_observations` likes the `most_active` stay (the paper: more than 3000 in 20M, which gives
    54). `release` chooses among several in one folder ("25m", "20m", "latest", "1m", "100k"); without it the first of
    these that is found is taken.

    With tags.csv: all tags and genres of a movie → TF-IDF → PCA to `dim`, unit norm. *Deviations.* D1: genres count as
    tags, so that movies which nobody tagged have contexts too. D2: releases without tags have two parts, each of norm
    1/√2: TF-IDF of genres → PCA, and the leading singular vectors of the movies × users matrix of ratings. Those are
    taken from users who are not replayed, so that contexts do not contain the answers; if nearly all users are
    replayed that is impossible, and a note says so.
    """
    options = Options(dim, n_arms, min_observations, most_active, None)
    folder, files = find_movielens(None if path is None else os.fspath(path), release)

    def make() -> Prepared:
        ratings, likes, report = read_movielens(folder, min_rating)
        if ratings.tags:
            terms = np.array([*(f"tag {tag}" for tag in ratings.tags), *(f"genre {name}" for name in ratings.genres)])
            items = np.append(ratings.tag_movies, ratings.genre_movies)
            return prepare(likes, options, lambda _: contexts_from_terms(items, terms, dim, "tags of movies"), report)
        return prepare(likes, options, lambda kept: _without_tags(ratings, kept, dim, report), report)

    header, arrays, _ = cached("movielens", files, {"min_rating": min_rating, **asdict(options)}, make)
    return MovieLens(**fields_of(header, arrays, options))


def read_movielens(folder: Path, min_rating: float) -> tuple[Ratings, Likes, Report]:
    """Read and check the files: ratings, which of them are likes, and what was counted."""
    ratings = read_ratings(folder)
    liked = ratings.values >= min_rating
    if not liked.any():
        raise FedbanditError(f"{str(ratings.path)!r}: no rating is at least min_rating = {min_rating:g}.")
    report = Report()
    report.facts |= {
        "users in files": np.unique(ratings.users).size,
        "movies": ratings.titles.size,
        "rated movies": np.unique(ratings.movies).size,
        "ratings (rows)": ratings.users.size,
        "tag assignments (rows)": ratings.tag_movies.size,
    }
    nobody = np.empty(0, dtype=np.int64)
    rated = ratings.users[liked], ratings.movies[liked]
    return ratings, Likes(*rated, nobody, nobody, None, str(ratings.path), "rating"), report


def _without_tags(ratings: Ratings, replayed: Ints, dim: int, report: Report) -> Contexts:
    """Contexts of genres and of the ratings of users who are not replayed."""
    if dim < 2:
        raise FedbanditError(f"dim is {dim}, but must be at least 2 for genres and ratings.")
    ids = np.unique(ratings.movies)
    names, columns = np.unique(np.array(ratings.genres), return_inverse=True)
    here = np.isin(ratings.genre_movies, ids)
    genres = tf_idf(np.searchsorted(ids, ratings.genre_movies[here]), columns[here], ids.size, names.size)
    n_genres = min(max(1, 2 * dim // 5), names.size - 1)
    about = principal_components(genres, n_genres, "genres of movies")
    others = ~np.isin(ratings.users, replayed)
    n_others = np.unique(ratings.users[others]).size
    if n_others <= 2 * dim:
        others[:] = True
        report.notes.append(
            "There are no tags, so contexts are genres and the leading singular vectors of the ratings; those of the "
            "replayed users are among these ratings, so contexts contain part of the answers."
        )
    else:
        report.notes.append(
            f"There are no tags, so contexts are {n_genres} components of genres and {dim - n_genres} leading singular "
            f"vectors of the ratings of the {n_others:,} users who are not replayed."
        )
    users, rows = np.unique(ratings.users[others], return_inverse=True)
    rated = np.searchsorted(ids, ratings.movies[others])
    matrix = counted(rated, rows, (ids.size, users.size), ratings.values[others])
    taste = left_singular_vectors(matrix, dim - n_genres, "the matrix of ratings")
    X = np.concatenate([normalised(about), normalised(taste)], axis=1) / math.sqrt(2)
    return Contexts(ids, trimmed(X))
