"""Write small data sets in the original layouts: `python tests/datasets/make_fixture.py` renews tests/datasets/fixture.

Nothing in them is real. Users have tastes for groups of tags or genres, so that there is something to learn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent / "fixture"
GENRES = ("Action", "Comedy", "Drama", "Horror", "Romance", "Sci-Fi", "Thriller", "Western")
GENRES_OF_100K = (
    *("unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama"),
    *("Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western"),
)
USERS, ITEMS, TAGS = 24, 80, 20


def main(folder: Path = HERE) -> None:
    """Write all of them."""
    write_lastfm(folder / "lastfm-2k")
    write_delicious(folder / "delicious-2k")
    write_1m(folder / "ml-1m")
    write_20m(folder / "ml-20m")
    write_100k(folder / "ml-100k")


def write_lastfm(folder: Path) -> None:
    """HetRec-2011 Last.FM: line ends and encodings as in the original."""
    rng = np.random.default_rng(1)
    users, artists, tags = 2 + 3 * np.arange(USERS), 5 + 2 * np.arange(ITEMS), 1 + 7 * np.arange(TAGS)
    likes, tagged = tastes(rng)
    listened = [(users[u], artists[i], int(rng.integers(1, 5000))) for u, i in likes]
    lines(folder / "user_artists.dat", ("userID", "artistID", "weight"), listened, end="\r\n", final=False)
    rows = [(users[u], artists[i], tags[t], 1, 1 + (u + i) % 12, 2005 + (i + t // 10) % 3) for u, i, t in tagged]
    rows.append((users[0], 9999, tags[0], 1, 4, 2009))  # the original, too, has tagged artists that are not listed
    lines(folder / "user_taggedartists.dat", ("userID", "artistID", "tagID", "day", "month", "year"), rows)
    named = [(a, f"Künstler {a}", f"http://x.test/{a}", "") for a in artists]
    lines(folder / "artists.dat", ("id", "name", "url", "pictureURL"), named)
    named_tags = [(t, f"tropicália {t}") for t in tags]
    lines(folder / "tags.dat", ("tagID", "tagValue"), named_tags, end="\r\n", encoding="latin-1")
    lines(folder / "user_friends.dat", ("userID", "friendID"), friendships(rng, users), end="\r\n")


def write_delicious(folder: Path) -> None:
    """HetRec-2011 Delicious, with the columns and the contacts of the original."""
    rng = np.random.default_rng(2)
    users, pages, tags = 8 + 5 * np.arange(USERS), 1 + 3 * np.arange(ITEMS), 1 + np.arange(TAGS)
    _, tagged = tastes(rng)
    rows = [(users[u], pages[i], tags[t], 1, 10, 2010, 8, 30, 0) for u, i, t in tagged]
    columns = ("userID", "bookmarkID", "tagID", "day", "month", "year", "hour", "minute", "second")
    lines(folder / "user_taggedbookmarks.dat", columns, rows)
    lines(folder / "tags.dat", ("id", "value"), [(t, f"étiquette {t}") for t in tags], encoding="latin-1")
    known = {row[0] for row in rows}
    friends = [(*pair, 1, 1, 2010) for pair in friendships(rng, users) if known.issuperset(pair)]
    lines(folder / "user_contacts.dat", ("userID", "contactID", "date_day", "date_month", "date_year"), friends)


def write_1m(folder: Path) -> None:
    """MovieLens 1M: no header, double colons, latin-1."""
    rng = np.random.default_rng(3)
    ratings = rated(rng)
    text = [f"{u}::{m}::{r:.0f}::{978300000 + n}" for n, (u, m, r) in enumerate(ratings)]
    plain(folder / "ratings.dat", text)
    movies = [f"{m}::Amélie, The {m} (2001)::{'|'.join(genres(m))}" for m in range(1, ITEMS + 1)]
    plain(folder / "movies.dat", movies, "latin-1")
    plain(folder / "users.dat", [f"{u}::F::25::{u % 20}::{10000 + u}" for u in sorted({u for u, _, _ in ratings})])


def write_20m(folder: Path) -> None:
    """MovieLens 20M: CSV with quotes, half stars, and tags."""
    rng = np.random.default_rng(4)
    ratings = rated(rng)
    plain(folder / "ratings.csv", ["userId,movieId,rating,timestamp", *(f"{u},{m},{r},1" for u, m, r in ratings)])
    movies = [f'{m},"Crouching {m}, Hidden ""{m}"" (2000)",{"|".join(genres(m))}' for m in range(1, ITEMS + 1)]
    plain(folder / "movies.csv", ["movieId,title,genres", *movies])
    tags = [f'{u},{m},"Mind-Bending, {(m + u) % 6}",1' for u, m, _ in ratings if (u + m) % 3 == 0]
    plain(folder / "tags.csv", ["userId,movieId,tag,timestamp", *tags])


def write_100k(folder: Path) -> None:
    """MovieLens 100k: tabs and bars, no headers."""
    rng = np.random.default_rng(5)
    plain(folder / "u.data", [f"{u}\t{m}\t{r:.0f}\t881250949" for u, m, r in rated(rng)])
    items = []
    for m in range(1, ITEMS + 1):
        flags = "|".join("1" if name in genres(m) else "0" for name in GENRES_OF_100K)
        items.append(f"{m}|Fidèle {m} (1995)|01-Jan-1995||http://x.test/{m}|{flags}")
    plain(folder / "u.item", items, "latin-1")


def tastes(rng: np.random.Generator) -> tuple[list[tuple[int, int]], list[tuple[int, int, int]]]:
    """Likes (user, item) and tags (user, item, tag); users and items of the same kind like each other more."""
    likes, tagged = [], []
    for u in range(USERS):
        for i in range(ITEMS):
            if rng.random() < (0.35 if u % 4 == i % 4 else 0.06):
                likes.append((u, i))
                about = 5 * (i % 4) + rng.choice(5, size=2, replace=False)
                extra = rng.integers(0, TAGS, size=1)
                tagged += [(u, i, int(t)) for t in sorted({*about.tolist(), *extra.tolist()})]
    return likes, tagged


def friendships(rng: np.random.Generator, users: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[tuple[int, int]]:
    """Both directions, mostly within four circles."""
    pairs = set()
    for u in range(USERS):
        for v in range(u):
            if rng.random() < (0.9 if u % 4 == v % 4 else 0.05):
                pairs |= {(int(users[u]), int(users[v])), (int(users[v]), int(users[u]))}
    return sorted(pairs)


def rated(rng: np.random.Generator) -> list[tuple[int, int, float]]:
    """Ratings of 60 users, the first ones much more active."""
    found = []
    for u in range(1, 61):
        for m in range(1, ITEMS + 1):
            keen = 0.5 if u <= 6 else 0.15
            if rng.random() < keen * (1.4 if u % 4 == m % 4 else 0.6):
                found.append((u, m, float(rng.integers(1, 6))))
    return found


def genres(movie: int) -> tuple[str, ...]:
    """One to three, by the number of the movie."""
    return tuple(sorted({GENRES[movie % 8], GENRES[movie % 4], GENRES[(movie * movie) % 7]}))


def lines(
    path: Path,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    end: str = "\n",
    encoding: str = "utf-8",
    final: bool = True,
) -> None:
    """Tab-separated, with a header."""
    plain(path, ["\t".join(map(str, row)) for row in (columns, *rows)], encoding, end, final)


def plain(path: Path, text: Sequence[str], encoding: str = "utf-8", end: str = "\n", final: bool = True) -> None:
    """Write lines as bytes, so that they are the same on every platform."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((end.join(text) + (end if final else "")).encode(encoding))


if __name__ == "__main__":
    main()
