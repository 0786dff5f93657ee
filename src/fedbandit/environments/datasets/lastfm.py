"""HetRec-2011 Last.FM 2k: 1,892 users, the artists they listened to and tagged, and who is whose friend."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar, Literal

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
from fedbandit.environments.datasets.tables import (
    Numbers,
    fault,
    read_numbers,
    read_texts,
    require_distinct,
    require_known,
)
from fedbandit.errors import checked_call, require
from fedbandit.types import Ints

ORIGIN = Origin(
    title="Last.FM (HetRec-2011)",
    download="hetrec2011-lastfm-2k.zip from https://grouplens.org/datasets/hetrec-2011/",
    folders=("lastfm-2k", "hetrec2011-lastfm-2k", "lastfm"),
    signs=(("user_artists.dat", "user_taggedartists.dat"),),
)
FILES = ("user_artists.dat", "user_taggedartists.dat", "artists.dat", "tags.dat", "user_friends.dat")
FRIENDS = "user_friends.dat.mapped"
TIMES = "user_taggedartists-timestamps.dat"


@dataclass(frozen=True)
class LastFM(LikedItems):
    """Last.FM as a bandit; made by `lastfm`."""

    name: ClassVar[str] = "lastfm"


@checked_call
def lastfm(
    path: str | os.PathLike[str] | None = None,
    *,
    events: Literal["tagged", "listened"] = "tagged",
    min_observations: int = 0,
    most_active: int | None = None,
    n_clusters: int | None = None,
    social: str | os.PathLike[str] | None = None,
    dim: int = 25,
    n_arms: int = 25,
) -> LastFM:
    """Last.FM (HetRec-2011): artists that users listened to and tagged.

    All tags of an artist → TF-IDF → PCA to `dim`, unit norm; `n_arms` arms, one of which the user liked; reward 1 or 0.
    `min_observations` keeps users with more interactions than that (HetoFedBandit §4.3: 350; Async-LinUCB App. H: all).
    `n_clusters` makes clusters of friends the clients (private collaborative bandits §6.1: 100), with W in `env.graph`.

    events: what an interaction is. "tagged": a user tagged an artist; tags given at one time count once. "listened": a
    line of user_artists.dat, of which a user has 50 at most. Neither kind of artist is offered as one not liked.

    social: "banditlib" for the social network and the 100 clusters that the authors' lab published (`social.py`), found
    where data sets are looked for, or the folder with its files. Users without a cluster are left out.

    *Deviations.* D1: the papers speak of listened artists, but nobody has more than 350 of those; their numbers of
    interactions come near those of tagging, so that is the default. D2: 390 artists that were tagged and are not in
    artists.dat stay, as they have tags. D3: those without tags cannot be offered.
    """
    require(events in ("tagged", "listened"), "events", events, "'tagged' or 'listened'")
    check_social(n_clusters, social)
    options = Options(dim, n_arms, min_observations, most_active, n_clusters)
    folder = find_folder(ORIGIN, path)
    files = [folder / name for name in (*FILES, TIMES) if (folder / name).is_file()]
    network = None if social is None else find_social("lastfm", FRIENDS, social)
    files += [] if network is None else [network / name for name in (FRIENDS, PARTITION)]

    def make() -> Prepared:
        likes, tags, report = read_lastfm(folder, events)
        if network is not None:
            # Everybody listened to something, so these are all users, whatever an interaction is.
            everyone = np.append(likes.users, likes.also_users), np.append(likes.items, likes.also_items)
            found = read_social(network, FRIENDS, "friendID", *everyone)
            likes = likes._replace(social=found, friends=found.friends)
        return prepare(likes, options, lambda _: contexts_from_terms(*tags, dim, "tags of artists"), report)

    header, arrays, _ = cached(
        "lastfm", files, {"events": events, "social": social is not None, **asdict(options)}, make
    )
    return LastFM(**fields_of(header, arrays, options))


def read_lastfm(folder: Path, events: str) -> tuple[Likes, tuple[Ints, Ints], Report]:
    """Read and check the files: interactions, (item, tag) pairs, and what was counted."""
    listened = read_numbers(folder / "user_artists.dat", ("userID", "artistID", "weight"))
    tagged = read_numbers(folder / "user_taggedartists.dat", ("userID", "artistID", "tagID", "day", "month", "year"))
    require_distinct(listened, "userID", "artistID")
    require_distinct(tagged, "userID", "artistID", "tagID")
    silent = listened.columns["weight"] <= 0
    if silent.any():
        row = int(np.argmax(silent))
        raise fault(listened.path, listened.line(row), "weight is not a number of plays ≥ 1")
    artists = read_texts(folder / "artists.dat", ("id", "name"), encoding="utf-8").ids("id")
    tags = read_texts(folder / "tags.dat", ("tagID", "tagValue"), encoding="latin-1").ids("tagID")
    users = np.unique(listened.whole("userID"))
    require_known(listened, "artistID", artists, "it is not in artists.dat")
    require_known(tagged, "tagID", tags, "it is not in tags.dat")
    require_known(tagged, "userID", users, "that user listened to no artist in user_artists.dat")
    missing = "that user has no liked artist in user_artists.dat"
    friends = read_friends(folder / "user_friends.dat", "friendID", users, missing)
    unlisted = np.setdiff1d(tagged.whole("artistID"), artists)
    report = Report()
    report.facts |= {
        "users in files": users.size,
        "artists": artists.size,
        "tags": tags.size,
        "listened artists (rows)": listened.columns["userID"].size,
        "tag assignments (rows)": tagged.columns["userID"].size,
        "friendships (rows)": 0 if friends is None else len(friends),
    }
    if unlisted.size:
        report.notes.append(
            f"Tagged artists that are not in artists.dat, which stay as they have tags: {unlisted.size:,}."
        )
    pairs = listened.whole("userID"), listened.whole("artistID")
    times = _tagging_times(folder, tagged, report)
    at = (times.whole("userID"), times.whole("artistID"))
    tagging = at[0][_new(times)], at[1][_new(times)]
    main, also = (tagging, pairs) if events == "tagged" else (pairs, at)
    what = "tagging" if events == "tagged" else "listened artist"
    source = times.path if events == "tagged" else listened.path
    likes = Likes(*main, *also, friends, str(source), what)
    return likes, (tagged.whole("artistID"), tagged.whole("tagID")), report


def _tagging_times(folder: Path, tagged: Numbers, report: Report) -> Numbers:
    """Who tagged what when: to the millisecond if that file is there, otherwise to the day."""
    path = folder / TIMES
    if not path.is_file():
        report.notes.append(f"{TIMES} is not there, so tags given on one day count as given at one time.")
        return tagged
    times = read_numbers(path, ("userID", "artistID", "tagID", "timestamp"))
    for name in ("userID", "artistID"):
        require_known(times, name, tagged.whole(name), "it is not in user_taggedartists.dat")
    return times


def _new(times: Numbers) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Lines that do not say the same user, artist and time as the line before."""
    names = [name for name in times.columns if name != "tagID"]
    table = np.stack([times.columns[name] for name in names])
    return np.append(True, (table[:, 1:] != table[:, :-1]).any(axis=0))
