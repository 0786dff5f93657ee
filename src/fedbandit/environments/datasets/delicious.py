"""HetRec-2011 Delicious 2k: users, the pages they bookmarked and tagged, and who is in contact with whom."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from fedbandit.environments.datasets.folders import Origin, Prepared, cached, find_folder
from fedbandit.environments.datasets.likes import LikedItems
from fedbandit.environments.datasets.prepare import (
    Likes,
    Options,
    Report,
    check_social,
    contexts_from_terms,
    fields_of,
    prepare,
)
from fedbandit.environments.datasets.social import PARTITION, find_social, read_friends, read_social
from fedbandit.environments.datasets.tables import read_numbers, read_texts, require_distinct, require_known
from fedbandit.errors import checked_call
from fedbandit.types import Ints

ORIGIN = Origin(
    title="Delicious (HetRec-2011)",
    download="hetrec2011-delicious-2k.zip from https://grouplens.org/datasets/hetrec-2011/",
    folders=("delicious-2k", "hetrec2011-delicious-2k", "delicious"),
    signs=(("user_taggedbookmarks.dat",),),
)
CONTACTS = "user_contacts.dat.mapped"
UNTAGGED = "user_bookmarks_untagged.dat"
FILES = ("user_taggedbookmarks.dat", "tags.dat", "user_contacts.dat", UNTAGGED)


@dataclass(frozen=True)
class Delicious(LikedItems):
    """Delicious as a bandit; made by `delicious`."""

    name: ClassVar[str] = "delicious"


@checked_call
def delicious(
    path: str | os.PathLike[str] | None = None,
    *,
    min_observations: int = 0,
    most_active: int | None = None,
    n_clusters: int | None = None,
    social: str | os.PathLike[str] | None = None,
    dim: int = 25,
    n_arms: int = 25,
) -> Delicious:
    """Delicious (HetRec-2011): web pages that users bookmarked.

    All tags of a page → TF-IDF → PCA to `dim`, unit norm; `n_arms` arms, one of which the user bookmarked; reward 1 or
    0 (private collaborative bandits §6.1; Async-LinUCB App. H, all users). An interaction is a user and a page.
    `n_clusters` makes clusters of contacts the clients, as the papers do with 100; it needs user_contacts.dat.

    social: "banditlib" for the social network and the 100 clusters that the authors' lab published (`social.py`), found
    where data sets are looked for, or the folder with its files. Users without a cluster are left out.

    *Deviations.* D1: a file user_bookmarks_untagged.dat, which the original has not, adds bookmarks without tags.
    """
    check_social(n_clusters, social)
    options = Options(dim, n_arms, min_observations, most_active, n_clusters)
    folder = find_folder(ORIGIN, path)
    files = [folder / name for name in FILES if (folder / name).is_file()]
    network = None if social is None else find_social("delicious", CONTACTS, social)
    files += [] if network is None else [network / name for name in (CONTACTS, PARTITION)]

    def make() -> Prepared:
        likes, tags, report = read_delicious(folder)
        if network is not None:
            found = read_social(network, CONTACTS, "contactID", likes.users, likes.items)
            likes = likes._replace(social=found, friends=found.friends)
        return prepare(likes, options, lambda _: contexts_from_terms(*tags, dim, "tags of pages"), report)

    header, arrays, _ = cached("delicious", files, {"social": social is not None, **asdict(options)}, make)
    return Delicious(**fields_of(header, arrays, options))


def read_delicious(folder: Path) -> tuple[Likes, tuple[Ints, Ints], Report]:
    """Read and check the files: interactions, (item, tag) pairs, and what was counted."""
    tagged = read_numbers(folder / "user_taggedbookmarks.dat", ("userID", "bookmarkID", "tagID"))
    require_distinct(tagged, "userID", "bookmarkID", "tagID")
    if (folder / "tags.dat").is_file():
        tags = read_texts(folder / "tags.dat", ("id",), encoding="latin-1").ids("id")
        require_known(tagged, "tagID", tags, "it is not in tags.dat")
    pairs = np.unique(np.stack([tagged.whole("userID"), tagged.whole("bookmarkID")], axis=1), axis=0)
    if (folder / UNTAGGED).is_file():
        untagged = read_numbers(folder / UNTAGGED, ("userID", "bookmarkID"))
        require_distinct(untagged, "userID", "bookmarkID")
        more = np.stack([untagged.whole("userID"), untagged.whole("bookmarkID")], axis=1)
        pairs = np.unique(np.concatenate([pairs, more]), axis=0)
    users = np.unique(pairs[:, 0])
    missing = "that user has no bookmark in user_taggedbookmarks.dat"
    friends = read_friends(folder / "user_contacts.dat", "contactID", users, missing)
    report = Report()
    report.facts |= {
        "users in files": users.size,
        "bookmarked pages": np.unique(pairs[:, 1]).size,
        "tags": np.unique(tagged.columns["tagID"]).size,
        "tag assignments (rows)": tagged.columns["userID"].size,
        "bookmarks": len(pairs),
        "contacts (rows)": 0 if friends is None else len(friends),
    }
    nobody = np.empty(0, dtype=np.int64)
    likes = Likes(pairs[:, 0], pairs[:, 1], nobody, nobody, friends, str(tagged.path), "bookmark")
    return likes, (tagged.whole("bookmarkID"), tagged.whole("tagID")), report
