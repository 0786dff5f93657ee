"""MovieLens files of every release: 100k, 1M, and the CSV ones (20M, 25M, latest)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedbandit.environments.datasets.folders import Origin, find_folder, is_here
from fedbandit.environments.datasets.tables import (
    Numbers,
    Texts,
    fault,
    read_numbers,
    read_texts,
    require_distinct,
    require_known,
)
from fedbandit.errors import FedbanditError, unknown
from fedbandit.types import Array, Ints

_CSV = (("ratings.csv", "movies.csv"),)
RELEASES = {
    "25m": (("ml-25m",), _CSV),
    "20m": (("ml-20m",), _CSV),
    "latest": (("ml-latest", "ml-latest-small"), _CSV),
    "1m": (("ml-1m",), (("ratings.dat", "movies.dat"), ("ratings_no_timestamp.dat", "movies.dat"))),
    "100k": (("ml-100k",), (("u.data", "u.item"),)),
}
_FILES = (
    *("ratings.csv", "movies.csv", "tags.csv"),
    *("ratings.dat", "ratings_no_timestamp.dat", "movies.dat", "users.dat"),
    *("u.data", "u.item"),
)
_GENRES_OF_100K = (
    *("unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama"),
    *("Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western"),
)


class Ratings(NamedTuple):
    """Who rated what how, and what the movies are about."""

    path: Path  # of the ratings
    users: Ints  # (n,)
    movies: Ints  # (n,)
    values: Array  # (n,)
    titles: Ints  # ids of all movies that are listed
    genre_movies: Ints  # pairs (movie, genre)
    genres: list[str]
    tag_movies: Ints  # pairs (movie, tag), empty without tags
    tags: list[str]


def movielens_origin(release: str | None) -> Origin:
    """The origin of one release, or of any of them."""
    if release is not None and release not in RELEASES:
        raise unknown("MovieLens release", release, RELEASES)
    chosen = RELEASES if release is None else {release: RELEASES[release]}
    return Origin(
        title="MovieLens" if release is None else f"MovieLens {release}",
        download=f"{next(iter(chosen.values()))[0][0]}.zip from https://grouplens.org/datasets/movielens/",
        folders=tuple(name for names, _ in chosen.values() for name in names),
        signs=tuple(dict.fromkeys(sign for _, signs in chosen.values() for sign in signs)),
    )


def find_movielens(path: str | None, release: str | None) -> tuple[Path, list[Path]]:
    """The folder, and the files in it that are read."""
    folder = find_folder(movielens_origin(release), path)
    return folder, [folder / name for name in _FILES if (folder / name).is_file()]


def read_ratings(folder: Path) -> Ratings:
    """Read and check the files of whichever release is there."""
    if is_here(Origin("", "", (), RELEASES["20m"][1]), folder):
        return _read_csv(folder)
    if is_here(Origin("", "", (), RELEASES["1m"][1]), folder):
        return _read_1m(folder)
    return _read_100k(folder)


def _read_csv(folder: Path) -> Ratings:
    table = read_numbers(folder / "ratings.csv", ("userId", "movieId", "rating"), separator=",")
    movies = read_texts(folder / "movies.csv", ("movieId", "title", "genres"), separator=",", quoted=True)
    tag_movies, tags = np.empty(0, dtype=np.int64), []
    path = folder / "tags.csv"
    if path.is_file():
        texts = read_texts(path, ("movieId", "tag"), separator=",", quoted=True)
        ids = movies.ids("movieId")
        listed = set(ids.tolist())
        found = []
        for line, (movie, tag) in texts.rows:
            if not (movie.isascii() and movie.isdigit()) or int(movie) not in listed:
                raise fault(path, line, f"movieId {movie!r} is unknown: it is not in movies.csv")
            found.append(int(movie))
            tags.append(" ".join(tag.lower().split()))
        tag_movies = np.array(found, dtype=np.int64)
    return _checked(table, movies, "movieId", "userId", tag_movies, tags)


def _read_1m(folder: Path) -> Ratings:
    whole = (folder / "ratings.dat").is_file()
    names = ("UserID", "MovieID", "Rating", "Timestamp")[: 4 if whole else 3]
    path = folder / ("ratings.dat" if whole else "ratings_no_timestamp.dat")
    table = read_numbers(path, names[:3], separator="::", header=names)
    columns = ("MovieID", "Title", "Genres")
    movies = read_texts(folder / "movies.dat", columns, separator="::", encoding="latin-1", header=columns)
    if (folder / "users.dat").is_file():
        facts = ("UserID", "Gender", "Age", "Occupation", "Zip-code")
        users = read_texts(folder / "users.dat", facts, separator="::", encoding="latin-1", header=facts)
        ids = users.ids("UserID")
        require_known(table, "UserID", ids, "it is not in users.dat")
        silent = ~np.isin(ids, table.whole("UserID"))
        if silent.any():
            row = int(np.argmax(silent))
            raise fault(users.path, users.rows[row][0], f"user {ids[row]} has no rating in {path.name}")
    return _checked(table, movies, "MovieID", "UserID", np.empty(0, dtype=np.int64), [])


def _read_100k(folder: Path) -> Ratings:
    names = ("user_id", "item_id", "rating", "timestamp")
    titled = _first_byte(folder / "u.data").isalpha()  # the original has no line of titles
    table = read_numbers(folder / "u.data", names[:3], header=None if titled else names)
    facts = ("movieid", "movietitle", "releasedate", "videoreleasedate", "IMDbURL")
    columns = (*facts, *_GENRES_OF_100K)
    titled = _first_byte(folder / "u.item").isalpha()
    flags = read_texts(
        folder / "u.item", columns, separator="|", encoding="latin-1", header=None if titled else columns
    )
    rows = []
    for line, row in flags.rows:
        if not set(row[len(facts) :]) <= {"0", "1"}:
            raise fault(flags.path, line, "a genre is marked by something else than 0 or 1")
        named = "|".join(name for name, flag in zip(_GENRES_OF_100K, row[len(facts) :], strict=True) if flag == "1")
        rows.append((line, [row[0], row[1], named]))
    movies = Texts(flags.path, ("item_id", "title", "genres"), rows)
    return _checked(table, movies, "item_id", "user_id", np.empty(0, dtype=np.int64), [])


def _first_byte(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(1)
    except OSError as error:
        raise FedbanditError(f"{str(path)!r} cannot be read: {error.strerror or error}.") from None


def _checked(table: Numbers, movies: Texts, movie: str, user: str, tag_movies: Ints, tags: list[str]) -> Ratings:
    require_distinct(table, user, movie)
    titles = movies.ids(movie)
    require_known(table, movie, titles, f"it is not in {movies.path.name}")
    values = next(column for name, column in table.columns.items() if name.lower() == "rating")
    wrong = (values < 0.5) | (values > 5)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise fault(table.path, table.line(row), f"the rating is {values[row]:g}, not between 0.5 and 5")
    pairs = [(int(row[0]), genre) for _, row in movies.rows for genre in row[2].split("|") if genre]
    return Ratings(
        path=table.path,
        users=table.whole(user),
        movies=table.whole(movie),
        values=values,
        titles=titles,
        genre_movies=np.array([movie for movie, _ in pairs], dtype=np.int64),
        genres=[genre for _, genre in pairs],
        tag_movies=tag_movies,
        tags=tags,
    )
