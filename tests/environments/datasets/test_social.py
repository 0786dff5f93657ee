"""The lab's social networks and clusters: ids are ranks, and some users may be missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedbandit as fb
from fedbandit.environments.datasets.delicious import CONTACTS, read_delicious
from fedbandit.environments.datasets.social import EVENTS, PARTITION, align


@given(st.integers(2, 30), st.data())
def test_missing_users_are_found_by_what_others_liked(n_ranks: int, data: st.DataObject) -> None:
    """Where everybody has events with items of its own, nothing is left open."""
    ranks = np.sort(data.draw(st.lists(st.integers(1, n_ranks), min_size=1, unique=True)))
    ids = 7 * ranks + 3
    events = np.stack([ranks, 100 + ranks], axis=1)
    assert align(ids, n_ranks, events, ids, 100 + ranks).tolist() == ranks.tolist()
    some = events[np.array(data.draw(st.lists(st.integers(0, ranks.size - 1), unique=True)), dtype=int)]
    found = align(ids, n_ranks, some, ids, 100 + ranks)
    assert (np.diff(found) > 0).all()
    assert found[0] >= 1
    assert found[-1] <= n_ranks
    known = np.isin(ranks, some[:, 0])
    np.testing.assert_array_equal(found[known], ranks[known])


@pytest.fixture
def lab(data: Path) -> Path:
    """Files as the lab has them, of the fixture's users and two more: the first and the third."""
    folder = data / "banditlib" / "delicious"
    folder.mkdir(parents=True)
    likes, _, _ = read_delicious(data / "delicious-2k")
    ids = np.unique(likes.users)
    ranks = np.delete(np.arange(1, ids.size + 3), [0, 2])
    clusters = np.arange(ids.size + 2) % 3
    clusters[-1] = 10_000
    (folder / PARTITION).write_text("\n".join(map(str, clusters)) + "\n")
    rank_of = dict(zip(ids.tolist(), ranks.tolist(), strict=True))
    lines = [f"{rank_of[u]}\t1\t[{i}, 4, 5]" for u, i in zip(likes.users.tolist(), likes.items.tolist(), strict=True)]
    (folder / EVENTS).write_text("\n".join(["userid\ttimestamp\tarm_pool", *lines]) + "\n")
    pairs = [f"{i}\t{i + 1}" for i in range(1, ids.size + 2)]
    (folder / CONTACTS).write_text("\n".join(["userID\tcontactID", *pairs]) + "\n")
    return data


def test_clients_are_the_lab_s_clusters(lab: Path) -> None:
    env = fb.environments.delicious(lab, social=lab, dim=2, n_arms=3)
    likes, _, _ = read_delicious(lab / "delicious-2k")
    ids = np.unique(likes.users)
    expected = {int(user): rank % 3 for user, rank in zip(ids, [1, *range(3, ids.size + 2)], strict=True)}
    del expected[int(ids[-1])]  # is in no cluster
    assert env.n_clients == 3
    for user, client in zip(env.user_ids.tolist(), env.client_of.tolist(), strict=True):
        assert client == expected[user]
    assert env.edges is not None
    assert (env.edges == env.edges.T).all()
    assert "2 users of the social network are not in this copy" in " ".join(env.notes)
    fb.simulate(fb.colin(isolated=True), env, 10, seed=0)


def test_bad_social_networks(lab: Path) -> None:
    make = fb.environments.delicious
    with pytest.raises(fb.FedbanditError, match="clusters of its own"):
        make(lab, social=lab, n_clusters=2)
    with pytest.raises(fb.FedbanditError, match=r"BanditLib's social network of delicious is not in .* with social="):
        make(lab, social=lab / "nowhere")
    folder = lab / "banditlib" / "delicious"
    (folder / EVENTS).unlink()
    with pytest.raises(fb.FedbanditError, match="which users of the social network are missing"):
        make(lab, social=lab, dim=2, n_arms=3)
    (folder / EVENTS).write_text("userid\ttimestamp\tarm_pool\n1 2 3\n")
    with pytest.raises(fb.FedbanditError, match="no event"):
        make(lab, social=lab, dim=2, n_arms=3)
    (folder / PARTITION).write_text("1\nx\n")
    with pytest.raises(fb.FedbanditError, match="not a cluster's number"):
        make(lab, social=lab, dim=2, n_arms=3)
