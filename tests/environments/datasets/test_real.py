"""The real data sets, where they are: in $FEDBANDIT_DATA, or in shared/data of a folder above the repository."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.environments.datasets.delicious import read_delicious
from fedbandit.environments.datasets.social import EVENTS, align, events_of

HERE = Path(__file__).resolve()


def real_data() -> Path | None:
    """The folder, if there is one."""
    places = [Path(text) for text in (os.environ.get("FEDBANDIT_DATA"),) if text]
    places += [parent / "shared" / "data" for parent in HERE.parents]
    return next((place for place in places if (place / "lastfm-2k").is_dir()), None)


DATA = real_data()
pytestmark = pytest.mark.skipif(DATA is None, reason="the real data sets are not here; FEDBANDIT_DATA can name them")


def test_lastfm_has_the_published_counts() -> None:
    env = fb.environments.lastfm(DATA)
    assert env.facts["users in files"] == 1892
    assert env.facts["artists"] == 17632
    assert env.facts["listened artists (rows)"] == 92834
    assert env.facts["tag assignments (rows)"] == 186479
    assert env.n_clients == 1892
    assert (env.dim, env.n_arms) == (25, 25)
    own, shared = (
        fb.simulate(system, env, len(env.users), 0).reward[-1]
        for system in (fb.linucb(alpha=0.3, ridge=0.2), fb.linucb_central(alpha=0.3, ridge=0.2))
    )
    assert own > 1.2 * shared > 3 * len(env.users) / 25  # Async-LinUCB, Fig. 4(a)


def test_delicious_users_differ_too() -> None:
    env = fb.environments.delicious(DATA)
    assert env.facts["tag assignments (rows)"] == 271417
    own, shared = (
        fb.simulate(system, env, len(env.users), 0).reward[-1]
        for system in (fb.linucb(alpha=0.3, ridge=0.2), fb.linucb_central(alpha=0.3, ridge=0.2))
    )
    assert own > 1.2 * shared > 1.2 * len(env.users) / 25  # Async-LinUCB, Fig. 4(b)


def test_the_lab_s_clusters_are_those_of_the_paper() -> None:
    """100 clients each; of Delicious 24 users are missing, and the ranks of the others fit what the lab lists."""
    assert DATA is not None
    lastfm = fb.environments.lastfm(DATA, social=DATA)
    assert (lastfm.n_clients, len(lastfm.user_ids)) == (100, 1127)
    delicious = fb.environments.delicious(DATA, social=DATA)
    assert (delicious.n_clients, len(delicious.user_ids)) == (100, 1046)
    events = events_of(DATA / "banditlib" / "delicious" / EVENTS)
    likes, _, _ = read_delicious(DATA / "delicious-2k")
    ids = np.unique(likes.users)
    rank_of = dict(zip(align(ids, 1867, events, likes.users, likes.items).tolist(), ids.tolist(), strict=True))
    liked = set(zip(likes.users.tolist(), likes.items.tolist(), strict=True))
    assert np.mean([(rank_of.get(rank), item) in liked for rank, item in events.tolist()]) > 0.98


def test_movielens_has_the_published_counts() -> None:
    env = fb.environments.movielens(DATA, release="100k")
    assert env.facts["ratings (rows)"] == 100_000
    assert env.facts["users in files"] == 943
    assert env.facts["movies"] == 1682
    assert env.n_clients == 54


def test_simulated_users_are_like_those_of_the_fclub_code() -> None:
    assert DATA is not None
    centres = np.unique(np.load(DATA / "fclub" / "ml_100user_d10.npy"), axis=0)
    env = fb.environments.movielens_users(DATA, release="1m")
    ours, theirs = (np.sort(np.linalg.norm(c[:, None] - c[None], axis=2).ravel()) for c in (env.theta, centres))
    assert ours.shape == theirs.shape
    assert abs(ours.mean() - theirs.mean()) < 0.02  # k-means starts elsewhere, so centres are near, not equal
    assert abs(np.linalg.norm(env.theta) - np.linalg.norm(centres)) < 0.02


def test_the_authors_files_are_found_by_name_and_the_first_forty_are_mostly_of_one_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """FCLUB's MovieLens: 31 of the 40 most active users are in one of six clusters; made anew from ratings, most."""
    monkeypatch.setenv("FEDBANDIT_DATA", str(DATA))
    env = fb.environments.fclub(theta="ml_1000user_d10", first=40)
    assert (env.n_clients, env.n_clusters, int(np.bincount(env.partition).max())) == (40, 6, 31)
    ours = fb.environments.movielens_users(DATA, release="1m", n_clients=1000, first=40)
    assert np.bincount(ours.partition).max() >= 28
