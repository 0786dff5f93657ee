"""Preparation: the same contexts everywhere, what the papers describe, filters, clusters, and the cache."""

from __future__ import annotations

import filecmp
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.environments import LikedItems
from fedbandit.environments.datasets import folders, partition
from fedbandit.environments.datasets.movielens_users import user_vectors
from fedbandit.environments.datasets.ratings import read_ratings
from fedbandit.errors import FedbanditError
from tests.environments.datasets.conftest import FIXTURE
from tests.environments.datasets.make_fixture import main
from tests.oracles.naive_contexts import tf_idf_components

SMALL: dict[str, Any] = {"dim": 5, "n_arms": 6}
MADE: dict[str, tuple[Callable[[], LikedItems], str]] = {
    "lastfm": (lambda: fb.environments.lastfm(FIXTURE, **SMALL), "ab6441f32743513f"),
    "delicious": (lambda: fb.environments.delicious(FIXTURE, **SMALL), "fbc66de249171bf5"),
    "20m": (lambda: movies("20m"), "56791cea25892a39"),
    "1m": (lambda: movies("1m"), "e57b034ef1db93b2"),
    "100k": (lambda: movies("100k"), "6be7db3143d15b0a"),
}


def movies(release: str, **keywords: Any) -> LikedItems:
    """A MovieLens fixture with its eight most active users."""
    return fb.environments.movielens(FIXTURE, release=release, **{**SMALL, "most_active": 8, **keywords})


def digest(array: Any) -> str:
    return hashlib.sha256(array.astype("<f8").tobytes()).hexdigest()[:16]


def test_the_script_writes_the_committed_fixture(tmp_path: Path) -> None:
    main(tmp_path)
    for name in ("lastfm-2k", "delicious-2k", "ml-1m", "ml-20m", "ml-100k"):
        ours, theirs = tmp_path / name, FIXTURE / name
        names = sorted(path.name for path in ours.iterdir())
        assert names == sorted(path.name for path in theirs.iterdir())
        assert filecmp.cmpfiles(ours, theirs, names, shallow=False)[0] == names


@pytest.mark.parametrize("name", MADE)
def test_contexts_are_the_same_on_every_machine(name: str) -> None:
    make, checksum = MADE[name]
    env = make()
    assert digest(env.X) == checksum
    assert env.X.flags.c_contiguous
    norms = np.linalg.norm(env.X, axis=1)
    assert norms.max() <= 1.0
    assert norms.min() > 0.7  # 1/√2, if one of two parts is missing


def test_parameters_of_simulated_users_are_the_same_on_every_machine() -> None:
    env = fb.environments.movielens_users(FIXTURE, release="1m", n_clients=20, dim=4, n_clusters=3)
    assert digest(env.theta) == "4b94d38fed18a9d5"
    assert sorted(np.unique(env.centre_of)) == [0, 1, 2]


def test_contexts_are_tf_idf_and_principal_components() -> None:
    lines = (FIXTURE / "lastfm-2k/user_taggedartists.dat").read_text().splitlines()[1:]
    pairs = [(int(line.split("\t")[1]), int(line.split("\t")[2])) for line in lines]
    ids, contexts = tf_idf_components(pairs, 5)
    env = fb.environments.lastfm(FIXTURE, **SMALL)
    assert env.item_ids.tolist() == ids
    np.testing.assert_allclose(env.X, contexts, atol=3e-5)  # shorter by 2.4e-5 of its length, and rounded


def test_singular_vectors_of_ratings_come_from_users_who_are_not_replayed(data: Path) -> None:
    env = movies("1m")
    assert "52 users who are not replayed" in env.notes[0]
    replayed = set(env.user_ids.tolist())
    ratings = data / "ml-1m/ratings.dat"
    lines = ratings.read_text().splitlines()
    changed = [line[:-12] + "5" + line[-11:] if int(line.split("::")[0]) in replayed else line for line in lines]
    assert changed != lines
    ratings.write_text("\n".join(changed) + "\n")
    other = fb.environments.movielens(data, release="1m", most_active=8, **SMALL)
    np.testing.assert_array_equal(env.X, other.X)
    everyone = movies("1m", most_active=None)
    assert "contain part of the answers" in everyone.notes[0]


def test_interactions_and_likes_are_those_of_the_files() -> None:
    env = fb.environments.lastfm(FIXTURE, **SMALL)
    seen: list[tuple[int, int]] = []
    last = None
    for line in (FIXTURE / "lastfm-2k/user_taggedartists.dat").read_text().splitlines()[1:]:
        user, artist, _, *day = line.split("\t")
        if (user, artist, day) != last:
            seen.append((int(user), int(artist)))
        last = (user, artist, day)
    ours = zip(env.user_ids[env.users].tolist(), env.item_ids[env.items].tolist(), strict=True)
    assert sorted(ours) == sorted(seen)
    listened = (FIXTURE / "lastfm-2k/user_artists.dat").read_text().splitlines()[1:]
    liked = {*seen, *((int(line.split("\t")[0]), int(line.split("\t")[1])) for line in listened)}
    for u, user in enumerate(env.user_ids.tolist()):
        items = env.item_ids[env.liked[env.liked_from[u] : env.liked_from[u + 1]]].tolist()
        assert items == sorted(item for who, item in liked if who == user and item in set(env.item_ids.tolist()))


def test_listened_artists_instead_of_tagged_ones() -> None:
    env = fb.environments.lastfm(FIXTURE, events="listened", **SMALL)
    assert env.longest == env.facts["listened artists (rows)"] == 259


def test_milliseconds_are_used_if_they_are_there(data: Path) -> None:
    folder = data / "lastfm-2k"
    rows = [line.split("\t")[:3] for line in (folder / "user_taggedartists.dat").read_text().splitlines()]
    text = ["\t".join([*rows[0], "timestamp"]), *("\t".join([*row, str(n)]) for n, row in enumerate(rows[1:]))]
    (folder / "user_taggedartists-timestamps.dat").write_text("\n".join(text) + "\n")
    env = fb.environments.lastfm(data, **SMALL)
    assert env.longest == len(rows) - 1  # no two tags at one time
    assert not any("days" in note or "day" in note for note in env.notes)


def test_filters_keep_who_has_more_and_the_most_active() -> None:
    everyone = fb.environments.lastfm(FIXTURE, **SMALL)
    counts = everyone.activity
    busy = fb.environments.lastfm(FIXTURE, min_observations=16, **SMALL)
    assert busy.user_ids.tolist() == everyone.user_ids[counts > 16].tolist()
    assert busy.longest == counts[counts > 16].sum()
    top = fb.environments.lastfm(FIXTURE, most_active=3, **SMALL)
    assert sorted(top.activity) == sorted(counts)[-3:]
    np.testing.assert_array_equal(top.X, everyone.X)  # contexts do not depend on who is replayed


def test_ratings_below_the_least_are_no_likes() -> None:
    env = movies("20m", min_rating=4.0, most_active=None)
    lines = (FIXTURE / "ml-20m/ratings.csv").read_text().splitlines()[1:]
    assert env.longest == sum(float(line.split(",")[2]) >= 4 for line in lines)


def test_clusters_of_friends_are_clients() -> None:
    env = fb.environments.lastfm(FIXTURE, n_clusters=4, **SMALL)
    assert env.n_clients == 4
    assert env.client_of.tolist() == (np.arange(24) % 4).tolist()  # the circles of the fixture
    assert env.graph is not None
    assert env.edges is not None
    np.testing.assert_allclose(env.graph.sum(axis=1), 1.0)
    lines = (FIXTURE / "lastfm-2k/user_friends.dat").read_text().splitlines()[1:]
    circle = {user: u % 4 for u, user in enumerate(env.user_ids.tolist())}
    edges = np.zeros((4, 4))
    for line in lines:
        one, other = map(int, line.split("\t"))
        edges[circle[one], circle[other]] += 1
    np.testing.assert_array_equal(env.edges, edges)
    np.testing.assert_allclose(env.graph, edges / edges.sum(axis=1, keepdims=True))
    assert fb.environments.lastfm(FIXTURE, **SMALL).graph is None


def test_partition_finds_planted_communities_and_lonely_users() -> None:
    rng = np.random.default_rng(0)
    pairs = [(u, v) for u in range(60) for v in range(u) if rng.random() < (0.5 if u // 20 == v // 20 else 0.01)]
    pairs += [(60, 61)]  # two who know nobody else
    cluster_of = partition.partition(np.array(pairs), 63, 3)  # and one who knows nobody
    assert [len(set(cluster_of[20 * c : 20 * c + 20])) for c in range(3)] == [1, 1, 1]
    assert len(set(cluster_of[:60])) == 3
    lonely = partition.weights(np.array([[0.0, 0.0], [0.0, 2.0]]))
    assert lonely.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_prepared_data_are_kept_and_made_anew_when_files_change(
    data: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = fb.environments.lastfm(data, **SMALL)
    (kept,) = (own_cache / "prepared").glob("lastfm-*.npz")
    with np.load(kept, allow_pickle=False) as file:
        assert set(json.loads(bytes(file["header"]))) == {"facts", "notes"}
    with monkeypatch.context() as patch:
        patch.setattr("fedbandit.environments.datasets.lastfm.read_lastfm", None)  # would fail if it were called
        again = fb.environments.lastfm(data, **SMALL)
    np.testing.assert_array_equal(first.X, again.X)
    assert (first.facts, first.notes) == (again.facts, again.notes)
    kept.write_bytes(kept.read_bytes()[:100])  # damaged: made anew
    np.testing.assert_array_equal(fb.environments.lastfm(data, **SMALL).X, first.X)
    path = data / "lastfm-2k/user_taggedartists.dat"
    path.write_text(path.read_text() + "2\t7\t1\t1\t1\t2011\n")
    assert fb.environments.lastfm(data, **SMALL).longest == len(first.users) + 1


def test_a_cache_that_cannot_be_written_is_done_without(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDBANDIT_CACHE", str(tmp_path / "file"))
    assert fb.environments.lastfm(FIXTURE, **SMALL).n_clients == 24


def test_large_files_are_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "large"
    with open(path, "wb") as file:
        file.truncate(2**26 + 1)
    found = folders._digest_of(path, tmp_path / "memory")
    monkeypatch.setattr("hashlib.file_digest", None)
    assert folders._digest_of(path, tmp_path / "memory") == found


def test_data_are_found_by_argument_variable_or_cache(
    data: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        FedbanditError, match=r"download hetrec2011-lastfm-2k.zip from https://grouplens.org"
    ) as refused:
        fb.environments.lastfm(**SMALL)
    assert str(own_cache / "data") in str(refused.value)
    monkeypatch.setenv("FEDBANDIT_DATA", str(data / "lastfm-2k"))
    assert fb.environments.lastfm(**SMALL).n_clients == 24
    monkeypatch.delenv("FEDBANDIT_DATA")
    (own_cache).mkdir(exist_ok=True)
    data.rename(own_cache / "data")
    assert fb.environments.delicious(**SMALL).n_clients == 24
    with pytest.raises(FedbanditError, match=r"There is no MovieLens release '2m'"):
        fb.environments.movielens(FIXTURE, release="2m")


def test_simulated_users_have_means_between_0_and_1() -> None:
    env = fb.environments.movielens_users(FIXTURE, release="1m", n_clients=20, dim=4, n_clusters=3, n_arms=5)
    block = env.open(0).block(0, 500)
    assert 0 <= block.means.min() < block.means.max() <= 1
    np.testing.assert_allclose(np.linalg.norm(block.X, axis=1), 1.0)
    np.testing.assert_allclose(block.X[:, -1], np.sqrt(0.5))
    vectors = user_vectors(read_ratings(FIXTURE / "ml-1m"), 20, 4)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0)
    assert fb.simulate(fb.linucb(), env, 300).regret[-1] > 0


def test_simulated_users_stand_by_activity_and_the_first_are_the_most_active() -> None:
    """As in the code of FCLUB: servers are blocks of consecutive users, so their order matters."""
    ratings = read_ratings(FIXTURE / "ml-1m")
    seen = user_vectors(ratings, 20, 4)
    rated: dict[int, int] = dict.fromkeys(np.unique(ratings.users).tolist(), 0)
    for user in ratings.users.tolist():
        rated[user] += 1
    among = sorted(rated, key=lambda user: (-rated[user], user))[:60]
    movies: dict[int, int] = {}
    for user, movie in zip(ratings.users.tolist(), ratings.movies.tolist(), strict=True):
        movies[movie] = movies.get(movie, 0) + (user in among)
    kept = sorted(movies, key=lambda movie: (-movies[movie], movie))[:20]
    table = np.zeros((len(among), 20))
    for user, movie in zip(ratings.users.tolist(), ratings.movies.tolist(), strict=True):
        if user in among and movie in kept:
            table[among.index(user), kept.index(movie)] = 1
    order = sorted(range(len(among)), key=lambda k: (-table[k].sum(), among[k]))[:20]
    left = np.linalg.svd(table[order])[0][:, :3]
    expected = left / np.linalg.norm(left, axis=1, keepdims=True)
    np.testing.assert_allclose(
        np.abs(seen[:, :3] * 2**0.5), np.abs(expected), atol=1e-6
    )  # singular vectors: up to sign

    whole, few = (
        fb.environments.movielens_users(FIXTURE, release="1m", n_clients=20, first=k, dim=4, n_clusters=3)
        for k in (None, 7)
    )
    assert few.n_clients == 7
    np.testing.assert_array_equal(few.partition, whole.partition[:7])
    np.testing.assert_array_equal(few.theta, whole.theta)
    with pytest.raises(FedbanditError, match="first is 21, but must be at most n_clients = 20"):
        fb.environments.movielens_users(FIXTURE, release="1m", n_clients=20, first=21, dim=4, n_clusters=3)


@pytest.mark.parametrize("name", ["fclub", "fclub_dc", "cdp_fclub_dc", "homo", "homo_dc", "club", "sclub"])
def test_fclub_runs_on_movielens(name: str) -> None:
    """FCLUB's second world: five local servers, clusters over time, and what the private one has spent."""
    env = fb.environments.movielens_users(FIXTURE, release="1m", n_clients=20, dim=4, n_clusters=3, n_arms=5)
    result = fb.simulate(getattr(fb, name)(n_servers=5), env, 4_000)
    assert result.regret[-1] < 0.8 * fb.simulate(fb.uniform(), env, 4_000).regret[-1]
    assert len(result.clusters) == len(result.rand_index(env.centre_of)) > 0
    if name == "cdp_fclub_dc":
        assert result.guarantee.basis == "proven"
        assert result.privacy is not None
        assert 0 < result.privacy.epsilon.max() <= 1
