"""The stream of likes: one liked item among others, for every seed, however it is cut."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

import fedbandit as fb
from fedbandit.engine import Result
from fedbandit.environments import LastFM, LikedItems
from fedbandit.environments.datasets.likes import draw_distinct_ranks
from fedbandit.errors import FedbanditError
from fedbandit.evaluation import by_activity, normalised_reward
from fedbandit.evaluation.likes import user_map


def likes(n_items: int = 40, n_arms: int = 5, seed: int = 0) -> LikedItems:
    """Six users with two to twelve likes, some of which are interactions twice."""
    rng = np.random.default_rng(seed)
    liked = [np.sort(rng.choice(n_items, size=2 * (u + 1), replace=False)) for u in range(6)]
    users = np.concatenate([np.full(2 * theirs.size, u) for u, theirs in enumerate(liked)])
    X = rng.standard_normal((n_items, 3))
    return LastFM(
        X=X / np.linalg.norm(X, axis=1, keepdims=True),
        users=users,
        items=np.concatenate([np.tile(theirs, 2) for theirs in liked]),
        client_of=np.array([0, 0, 1, 1, 2, 3]),
        liked_from=np.concatenate([[0], np.cumsum([theirs.size for theirs in liked])]),
        liked=np.concatenate(liked),
        user_ids=np.arange(6),
        item_ids=np.arange(n_items),
        edges=None,
        graph=None,
        n_clients=4,
        n_arms=n_arms,
        notes=(),
        facts={},
    )


@pytest.mark.parametrize("n_items", [16, 40])  # with 16 items one user did not like exactly four
def test_every_interaction_offers_its_item_and_others_that_the_user_did_not_like(n_items: int) -> None:
    env = likes(n_items)
    stream = env.open(3)
    block = stream.block(0, len(env.users))
    seen = []
    for s, event in enumerate(stream.order):
        user, arms = env.users[event], block.arms[s].tolist()
        theirs = set(env.liked[env.liked_from[user] : env.liked_from[user + 1]].tolist())
        assert len(set(arms)) == env.n_arms
        assert [arm in theirs for arm in arms] == (block.rewards[s] == 1).tolist()
        assert block.clients[s] == env.client_of[user]
        assert block.rewards[s].sum() == 1
        seen.append((user, arms[int(block.rewards[s].argmax())]))
    assert sorted(seen) == sorted(zip(env.users.tolist(), env.items.tolist(), strict=True))


@given(cuts=st.lists(st.integers(1, 83), max_size=4), chunk=st.integers(3, 90))
def test_a_stream_does_not_depend_on_how_it_is_cut(cuts: list[int], chunk: int) -> None:
    env = likes()
    whole, stream = env.open(1), env.open(1)
    whole.chunk = stream.chunk = chunk
    expected = whole.block(0, 84)
    edges = sorted({0, *cuts, 84})
    parts = [stream.block(*pair) for pair in itertools.pairwise(edges)]
    np.testing.assert_array_equal(np.concatenate([part.arms for part in parts]), expected.arms)
    np.testing.assert_array_equal(np.concatenate([part.rewards for part in parts]), expected.rewards)
    np.testing.assert_array_equal(np.concatenate([part.clients for part in parts]), expected.clients)


def test_seeds_give_other_orders_and_other_items() -> None:
    env = likes()
    one, again, other = (env.open(seed).block(0, 84) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.arms, again.arms)
    assert (one.arms != other.arms).any()
    assert (one.clients != other.clients).any()


def test_the_place_of_the_liked_item_and_the_others_are_uniform() -> None:
    env = likes()
    blocks = [env.open(seed).block(0, 84) for seed in range(60)]
    places = np.concatenate([block.rewards.argmax(axis=1) for block in blocks])
    assert chisquare(np.bincount(places, minlength=5)).pvalue > 1e-4
    user = 5
    theirs = env.liked[env.liked_from[user] :]
    offered = np.concatenate(
        [block.arms[block.clients == 3][block.rewards[block.clients == 3] == 0] for block in blocks]
    )
    counts = np.bincount(offered, minlength=40)
    assert counts[theirs].sum() == 0
    assert chisquare(np.delete(counts, theirs)).pvalue > 1e-4


@given(sizes=st.lists(st.integers(4, 9), min_size=1, max_size=20), seed=st.integers(0, 99))
def test_ranks_are_distinct_and_within_bounds(sizes: list[int], seed: int) -> None:
    ranks = draw_distinct_ranks(np.random.default_rng(seed), np.array(sizes), 4)
    for row, size in zip(ranks, sizes, strict=True):
        assert len(set(row.tolist())) == 4
        assert row.min() >= 0
        assert row.max() < size


def test_all_orders_of_ranks_are_equally_likely() -> None:
    ranks = draw_distinct_ranks(np.random.default_rng(0), np.full(12_000, 4), 3)
    _, counts = np.unique(ranks @ [16, 4, 1], return_counts=True)
    assert counts.size == 24
    assert chisquare(counts).pvalue > 1e-4


def test_uniform_arms_earn_one_in_k_and_a_system_runs() -> None:
    env = likes()
    rewards = [fb.simulate(fb.uniform(), env, 84, seed).reward[-1] for seed in range(40)]
    assert abs(np.mean(rewards) - 84 / 5) < 4 * np.sqrt(84 * 0.16 / 40)
    result = fb.simulate(fb.async_linucb(), env, 84, 0)
    assert result.regret[-1] + result.reward[-1] == 84


def test_reward_is_normalised_by_uniform_arms_on_the_same_stream() -> None:
    env = likes()
    result = fb.simulate(fb.linucb(), env, 80, 2)
    random = fb.simulate(fb.uniform(), env, 80, 2).reward
    curve = normalised_reward(result, env)
    assert curve.shape == (80,)
    assert curve[-1] == result.reward[-1] / random[-1]
    assert np.isnan(curve[random == 0]).all()
    assert (normalised_reward(fb.simulate(fb.uniform(), env, 80, 2), env)[random > 0] == 1).all()


def test_groups_by_activity_add_up() -> None:
    env = likes()
    result = fb.simulate(fb.async_linucb(gamma_upload=1.5, gamma_download=1.5), env, 84, 0)
    groups = by_activity(result, env)
    assert env.activity.tolist() == [12, 28, 20, 24]
    assert [(group.above, group.up_to, group.users) for group in groups if group.users] == [
        (10, 15, 1),
        (15, 20, 1),
        (20, 25, 1),
        (25, 30, 1),
    ]
    assert sum(group.interactions for group in groups) == 84
    assert sum(group.uploads for group in groups) == result.communication.uploads > 0
    assert sum(group.reward for group in groups) == result.reward[-1]
    block = env.open(0).block(0, 84)
    second = block.rewards[np.arange(84), result.arms][block.clients == 2].sum()
    assert next(group.reward for group in groups if group.above == 15) == second


def test_a_map_of_users_has_the_axes_of_most_variance() -> None:
    env = likes()
    means = np.array([env.X[env.liked[a:b]].mean(axis=0) for a, b in itertools.pairwise(env.liked_from)])
    at = user_map(env)
    spread = np.linalg.eigvalsh(np.cov(means.T))[::-1]
    np.testing.assert_allclose(np.cov(at.T), np.diag(spread[:2]), atol=1e-12)
    np.testing.assert_allclose(at.mean(axis=0), 0, atol=1e-12)


@pytest.mark.parametrize("measure", [normalised_reward, by_activity])
def test_measures_refuse_a_result_on_something_else(measure: Any) -> None:
    env = fb.environments.homogeneous(n_clients=2, dim=2, n_arms=2)
    result: Result = fb.simulate(fb.linucb(), env, 10)
    with pytest.raises(FedbanditError, match=r"The result is one on homogeneous"):
        measure(result, likes())
