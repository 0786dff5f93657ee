"""From what was read to an environment: which users stay, what their items look like, who is a client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fedbandit.environments.datasets import partition
from fedbandit.environments.datasets.contexts import normalised, principal_components, tf_idf, trimmed
from fedbandit.environments.datasets.folders import Prepared
from fedbandit.environments.datasets.social import Social
from fedbandit.errors import FedbanditError, whole_number
from fedbandit.types import Array, Ints


@dataclass(frozen=True)
class Options:
    """Keywords that all data sets take, checked.

    min_observations: keep users with *more* interactions than this.
    most_active: then keep that many users, those with most interactions (ties: the lower id).
    n_clusters: None for one client per user, or the number of clusters of users that are clients.
    """

    dim: int
    n_arms: int
    min_observations: int
    most_active: int | None
    n_clusters: int | None

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        for name, least in (("dim", 1), ("n_arms", 2), ("min_observations", 0)):
            object.__setattr__(self, name, whole_number(name, getattr(self, name), least))
        for name in ("most_active", "n_clusters"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, whole_number(name, getattr(self, name), 1))


class Likes(NamedTuple):
    """What a data set's files say, with the ids of the files."""

    users: Ints  # (T,) interactions in the order of the files
    items: Ints  # (T,)
    also_users: Ints  # further likes, which are no interactions but must not be offered as not liked
    also_items: Ints
    friends: Ints | None  # (pairs, 2)
    place: str  # the file that interactions come from, for errors
    what: str  # what an interaction is
    social: Social | None = None  # clusters that are given


@dataclass
class Report:
    """What was counted, and what was done otherwise than someone might think."""

    facts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class Contexts(NamedTuple):
    """Contexts of the items that have any."""

    ids: Ints  # ascending
    X: Array


def contexts_from_terms(items: Ints, terms: Ints, dim: int, what: str) -> Contexts:
    """TF-IDF of all terms of an item, its leading principal components, unit norm."""
    ids, rows = np.unique(items, return_inverse=True)
    names, columns = np.unique(terms, return_inverse=True)
    weights = tf_idf(rows, columns, ids.size, names.size)
    return Contexts(ids, trimmed(normalised(principal_components(weights, dim, what))))


def prepare(likes: Likes, options: Options, contexts: Callable[[Ints], Contexts], report: Report) -> Prepared:
    """Filter users, make contexts (`contexts` is told who stays), and lay everything out as arrays."""
    kept = _kept_users(likes, options, report)
    made = contexts(kept)
    known = np.isin(likes.items, made.ids)
    here = known & np.isin(likes.users, kept)
    report.facts["items with contexts"] = made.ids.size
    if not known.all():
        missing = int((~known).sum())
        report.notes.append(
            f"{missing:,} interactions with {np.unique(likes.items[~known]).size:,} items that have no tags are left "
            "out: there is nothing to make contexts from."
        )
    user_ids, users = np.unique(likes.users[here], return_inverse=True)
    if user_ids.size == 0:
        raise FedbanditError(f"{likes.place!r}: nothing is left, as no {likes.what} has an item with tags.")
    if user_ids.size < kept.size:
        report.notes.append(f"{kept.size - user_ids.size:,} users liked no item with tags and are left out.")
    items = np.searchsorted(made.ids, likes.items[here])
    liked_from, liked = _likes_of(likes, user_ids, made.ids)
    fewest = int(len(made.ids) - np.diff(liked_from).max())
    if fewest < options.n_arms - 1:
        who = user_ids[int(np.diff(liked_from).argmax())]
        raise FedbanditError(
            f"{likes.place!r}: user {who} did not like {fewest} items only, so there are no {options.n_arms - 1} to "
            f"offer beside a liked one; n_arms may be at most {fewest + 1}."
        )
    client_of, edges = _clients(likes, options, user_ids, report)
    report.facts |= {
        "users": user_ids.size,
        "clients": int(client_of.max()) + 1,
        "interactions": users.size,
        "most interactions of a user": int(np.bincount(users).max()),
    }
    arrays = {
        "X": made.X,
        "users": users.astype(np.int64),
        "items": items.astype(np.int64),
        "client_of": client_of,
        "liked_from": liked_from,
        "liked": liked,
        "user_ids": user_ids,
        "item_ids": made.ids,
        "edges": edges,
    }
    return {"facts": report.facts, "notes": report.notes}, arrays


def fields_of(header: dict[str, Any], arrays: dict[str, Any], options: Options) -> dict[str, Any]:
    """What `prepare` gave, as the fields of an environment."""
    edges = arrays["edges"] if arrays["edges"].size else None
    return {
        **arrays,
        "edges": edges,
        "graph": None if edges is None else partition.weights(edges),
        "n_clients": int(arrays["client_of"].max()) + 1,
        "n_arms": options.n_arms,
        "notes": tuple(header["notes"]),
        "facts": dict(header["facts"]),
    }


def _kept_users(likes: Likes, options: Options, report: Report) -> Ints:
    ids, counts = np.unique(likes.users, return_counts=True)
    report.facts["users before filters"] = ids.size
    report.facts["interactions before filters"] = likes.users.size
    stay = counts > options.min_observations
    if likes.social is not None:
        stay &= np.isin(ids, likes.social.users)
        report.facts["users in no cluster"] = int((~np.isin(ids, likes.social.users)).sum())
        if likes.social.unplaced:
            report.notes.append(
                f"{likes.social.unplaced} users of the social network are not in this copy; which ranks they had was "
                "found by aligning the lab's events with the likes, to a few ranks each."
            )
    if not stay.any():
        raise FedbanditError(
            f"{likes.place!r}: no user is left, as none has more than min_observations = {options.min_observations} "
            f"{likes.what}s; the most are {counts.max()} (user {ids[counts.argmax()]})."
        )
    ids, counts = ids[stay], counts[stay]
    if options.most_active is not None:
        if options.most_active > ids.size:
            raise FedbanditError(
                f"{likes.place!r}: most_active is {options.most_active}, but there are only {ids.size} users."
            )
        ids = np.sort(ids[np.argsort(-counts, kind="stable")[: options.most_active]])
    return ids


def _likes_of(likes: Likes, user_ids: Ints, item_ids: Ints) -> tuple[Ints, Ints]:
    """Each user's liked items that have contexts, as rows, ascending."""
    users, items = np.append(likes.users, likes.also_users), np.append(likes.items, likes.also_items)
    here = np.isin(users, user_ids) & np.isin(items, item_ids)
    rows = np.searchsorted(user_ids, users[here]), np.searchsorted(item_ids, items[here])
    pairs = np.unique(rows[0] * item_ids.size + rows[1])
    sizes = np.bincount(pairs // item_ids.size, minlength=user_ids.size)
    return np.concatenate([[0], np.cumsum(sizes)]), pairs % item_ids.size


def _clients(likes: Likes, options: Options, user_ids: Ints, report: Report) -> tuple[Ints, Array]:
    """The client of each user, and the friendships between clients (0 × 0 without clusters)."""
    if likes.social is not None:
        return _given_clients(likes.social, user_ids, report)
    if options.n_clusters is None:
        return np.arange(user_ids.size), np.empty((0, 0))
    if likes.friends is None:
        raise FedbanditError(
            f"n_clusters is {options.n_clusters}, but {likes.place!r} has no social network beside it to make clusters."
        )
    pairs = likes.friends[np.isin(likes.friends, user_ids).all(axis=1)]
    if not len(pairs):
        raise FedbanditError(f"n_clusters is {options.n_clusters}, but no two of the users that stay are friends.")
    pairs = np.searchsorted(user_ids, pairs)
    cluster_of = partition.partition(pairs, user_ids.size, options.n_clusters)
    sizes = np.bincount(cluster_of)
    report.facts["users in the largest cluster"] = int(sizes.max())
    report.facts["users in the smallest cluster"] = int(sizes.min())
    return cluster_of, partition.cluster_edges(pairs, cluster_of, sizes.size)


def _given_clients(social: Social, user_ids: Ints, report: Report) -> tuple[Ints, Array]:
    """The clients that a partition of users makes, and the friendships between them."""
    labels = social.clusters[np.searchsorted(social.users, user_ids)]
    _, cluster_of = np.unique(labels, return_inverse=True)
    pairs = social.friends[np.isin(social.friends, user_ids).all(axis=1)]
    if not len(pairs):
        raise FedbanditError("The social network has no friends among the users that stay.")
    sizes = np.bincount(cluster_of)
    report.facts["users in the largest cluster"] = int(sizes.max())
    report.facts["users in the smallest cluster"] = int(sizes.min())
    report.facts["friendships (rows) among them"] = len(pairs)
    return cluster_of, partition.cluster_edges(np.searchsorted(user_ids, pairs), cluster_of, sizes.size)


def check_social(n_clusters: int | None, social: object) -> None:
    """Refuse two ways to make clusters."""
    if n_clusters is not None and social is not None:
        raise FedbanditError(
            f"n_clusters is {n_clusters}, but social has clusters of its own (100); leave out one of them."
        )
