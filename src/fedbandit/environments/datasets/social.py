"""Social networks and clusters of the HetRec data as the lab behind three of the papers published them (BanditLib).

Users are numbered there by the rank of their ids, from 1. Line r of `…part.200.select.100` is the cluster of user r,
out of a graph cut into 200 of which the 100 with most interactions are used; 10000 for none.

Where a copy of the data has fewer users than there are ranks, the missing ones are found by *alignment*: ranks and ids
are in the same order, so user k of the copy has the rank k + 1 + (missing users before it). Each event of the lab's
file says that some rank liked some item; the offsets, which never fall, are those under which most events are likes of
the copy. Between two users with events an offset changes somewhere: as early as possible, so that a user may get the
rank of a neighbour.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedbandit.environments.datasets.folders import Origin, find_folder
from fedbandit.environments.datasets.tables import fault, read_numbers, require_distinct, require_known
from fedbandit.errors import FedbanditError
from fedbandit.types import Ints

NOBODY = 10_000
PARTITION = "user_relation_adjacency_list.dat.part.200.select.100"
EVENTS = "processed_events_shuffled_select100_max_observation_part2.dat"
BANDITLIB = "banditlib"


class Social(NamedTuple):
    """Who is whose friend, and the cluster of each user that has one; with the ids of the data set."""

    friends: Ints  # (pairs, 2)
    users: Ints  # (n,) with a cluster
    clusters: Ints  # (n,)
    unplaced: int  # ranks that nobody of the copy has


def read_friends(path: Path, friend: str, users: Ints, missing: str) -> Ints | None:
    """The pairs of users in a file, if there is one; `missing` says what is wrong about others than `users`."""
    if not path.is_file():
        return None
    table = read_numbers(path, ("userID", friend))
    for name in ("userID", friend):
        require_known(table, name, users, missing)
    require_distinct(table, "userID", friend)
    return np.stack([table.whole("userID"), table.whole(friend)], axis=1)


def find_social(name: str, friends: str, social: str | os.PathLike[str]) -> Path:
    """The folder with the lab's files of a data set: "banditlib" for where data sets are looked for, or a path."""
    origin = Origin(
        title=f"BanditLib's social network of {name}",
        download="Dataset from https://github.com/HCDM/BanditLib",
        folders=(f"{BANDITLIB}/{name}", name),
        signs=((friends, PARTITION),),
        keyword="social=…",
    )
    return find_folder(origin, None if social == BANDITLIB else social)


def read_social(folder: Path, friends: str, second: str, users: Ints, items: Ints) -> Social:
    """Friends and clusters of the users of a copy, who liked these items (`users`, `items`: one a like)."""
    labels = _partition(folder / PARTITION)
    pairs = read_numbers(folder / friends, ("userID", second))
    ranked = np.stack([pairs.whole("userID"), pairs.whole(second)], axis=1)
    ids = np.unique(users)
    if ids.size > labels.size:
        raise FedbanditError(f"{str(folder / PARTITION)!r} has {labels.size} users, but the data {ids.size}.")
    ranks = np.arange(1, ids.size + 1)
    if ids.size < labels.size:
        ranks = align(ids, labels.size, events_of(folder / EVENTS), users, items)
    id_of = np.full(labels.size + 1, -1)
    id_of[ranks] = ids
    known = ((ranked >= 1) & (ranked <= labels.size)).all(axis=1)
    if not known.all():
        row = int(np.argmin(known))
        raise fault(pairs.path, pairs.line(row), f"a user is not a rank from 1 to {labels.size}")
    both = id_of[ranked]
    placed = labels[ranks - 1] != NOBODY
    return Social(both[(both >= 0).all(axis=1)], ids[placed], labels[ranks - 1][placed], labels.size - ids.size)


def align(ids: Ints, n_ranks: int, events: Ints, users: Ints, items: Ints) -> Ints:
    """The rank of each user, ascending, such that most events (rank, item) are likes.

    >>> liked = np.array([[7, 1], [9, 2], [12, 3]])  # users 7, 9, 12; of ranks 1 to 4 the second is missing
    >>> events = np.array([[1, 1], [3, 2], [4, 3]])
    >>> align(np.array([7, 9, 12]), 4, events, liked[:, 0], liked[:, 1]).tolist()
    [1, 3, 4]
    """
    missing = n_ranks - ids.size
    liked = {(int(u), int(i)) for u, i in zip(np.searchsorted(ids, users), items, strict=True)}
    score = np.zeros((ids.size, missing + 1))  # of user k with so many missing before it
    for rank, item in events.tolist():
        for before in range(missing + 1):
            k = rank - 1 - before
            if 0 <= k < ids.size and (k, item) in liked:
                score[k, before] += 1
    best = np.zeros_like(score)  # of users k, k + 1, … if k has this offset or a larger one
    ahead = np.zeros(missing + 1)
    for k in range(ids.size - 1, -1, -1):
        ahead = score[k] + ahead
        best[k] = ahead
        ahead = np.maximum.accumulate(ahead[::-1])[::-1]
    offsets, low = np.zeros(ids.size, dtype=np.int64), 0
    for k in range(ids.size):
        options = best[k, low:]
        low += int(np.flatnonzero(options == options.max())[-1])  # as early as possible: the largest that is best
        offsets[k] = low
    return np.arange(1, ids.size + 1) + offsets


def events_of(path: Path) -> Ints:
    """(rank, liked item) of the lab's events: the first of an arm pool is the one that was liked."""
    events = []
    try:
        with open(path, encoding="utf-8") as lines:
            next(lines)
            for number, line in enumerate(lines, start=2):
                try:
                    user, _, pool = line.split("\t")
                    events.append((int(user), int(pool.strip()[1:].split(",")[0])))
                except (ValueError, IndexError):
                    raise fault(path, number, "it is no event: userid, timestamp, [items]") from None
    except (OSError, StopIteration):
        raise FedbanditError(
            f"{str(path)!r} is not there, but says which users of the social network are missing in this copy."
        ) from None
    return np.array(events, dtype=np.int64).reshape(-1, 2)


def _partition(path: Path) -> Ints:
    try:
        return np.array([int(line) for line in path.read_text(encoding="utf-8").split()], dtype=np.int64)
    except ValueError:
        raise FedbanditError(f"{str(path)!r} holds something that is not a cluster's number.") from None
