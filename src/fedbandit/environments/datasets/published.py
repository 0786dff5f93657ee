"""What others counted in these data sets, to lay our counts beside."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedbandit.environments.datasets.prepare import Likes


class Setting(NamedTuple):
    """A paper's choice of users, and how many users and interactions it reports."""

    paper: str
    data: str
    release: str | None  # of MovieLens
    min_observations: int
    users: int
    interactions: int
    why: str  # what to know when our counts differ


COUNTS: dict[str, dict[str, int]] = {
    "lastfm": {
        "users in files": 1892,
        "artists": 17632,
        "tags": 11946,
        "listened artists (rows)": 92834,
        "tag assignments (rows)": 186479,
        "friendships (rows)": 25434,
    },
    "delicious": {
        "users in files": 1867,
        "bookmarked pages": 69226,
        "tags": 53388,
        "tag assignments (rows)": 437593,
        "bookmarks": 104799,
        "contacts (rows)": 15328,
    },
    "movielens 100k": {"users in files": 943, "movies": 1682, "ratings (rows)": 100_000},
    "movielens 1m": {"users in files": 6040, "movies": 3883, "ratings (rows)": 1_000_209},
    "movielens 20m": {"users in files": 138_493, "movies": 27278, "ratings (rows)": 20_000_263},
    "movielens 25m": {"users in files": 162_541, "movies": 62423, "ratings (rows)": 25_000_095},
}

SETTINGS = (
    Setting(
        "Async-LinUCB, App. H",
        "lastfm",
        None,
        0,
        1892,
        96733,
        "An interaction is a tagging: one user, artist and time. The time to the millisecond is in "
        "user_taggedartists-timestamps.dat; without that file days are told apart, which are fewer.",
    ),
    Setting(
        "HetoFedBandit, §4.3",
        "lastfm",
        None,
        350,
        75,
        41284,
        "No user has more than 50 listened artists, so observations must be taggings. Their numbers are near "
        "those of users with at least 300, a threshold that stands in public code for this preparation.",
    ),
    Setting("the same, at least 300", "lastfm", None, 299, 75, 41284, "Days are told apart instead of milliseconds."),
    Setting(
        "Async-LinUCB, App. H",
        "delicious",
        None,
        0,
        1861,
        104799,
        "HetRec-2011 says 1,867 users and 104,799 bookmarks; copies without all tag assignments have fewer.",
    ),
    Setting(
        "Async-LinUCB, App. H",
        "movielens",
        "20m",
        3000,
        54,
        214729,
        "The paper uses MovieLens 20M; in smaller releases nobody has that many ratings: take most_active=54.",
    ),
)


def nearest_release(n_ratings: int) -> str:
    """The release of MovieLens whose number of ratings is nearest.

    >>> nearest_release(1_000_209)
    '1m'
    """
    sizes = {name.split()[1]: counts["ratings (rows)"] for name, counts in COUNTS.items() if "ratings (rows)" in counts}
    return min(sizes, key=lambda name: abs(np.log(sizes[name] / max(n_ratings, 1))))


def count(likes: Likes, min_observations: int) -> tuple[int, int]:
    """How many users have more interactions than this, and how many interactions they have."""
    _, counts = np.unique(likes.users, return_counts=True)
    kept = counts[counts > min_observations]
    return int(kept.size), int(kept.sum())
