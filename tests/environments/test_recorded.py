"""Recorded environments: what they were given, for every seed and block, and sentences for bad input."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.environments import Recorded
from fedbandit.environments.recorded_file import recorded_file
from fedbandit.errors import FedbanditError
from tests.environments.blocks import check_same, contents, joined

GOOD: dict[str, Any] = {
    "clients": [0, 1, 0],
    "arms": [[[1.0, 0.0], [0.0, 1.0]], [[0.6, 0.8]], [[0.0, 0.0], [0.0, 0.5]]],
    "means": [[1.0, 0.0], [0.5], [0.0, 0.1]],
    "rewards": [[1.0, 0.0], [0.0], [1.0, 0.0]],
}


def replayed(**changes: Any) -> Recorded:
    """Three good rounds, changed."""
    return fb.environments.recorded(**{**GOOD, **changes})


def test_recorded_bound_holds_for_what_rounding_lets_pass() -> None:
    """Policies skip arms by it, so that it has to hold exactly."""
    arms = [[[1 + 5e-10, 0.0], [0.0, 1.0]]] * 2
    env = fb.environments.recorded([0, 0], arms, [[0.0, 0.0]] * 2, [[0.0, 0.0]] * 2, bound=1.0)
    assert env.bound == 1 + 5e-10
    assert replayed(bound=3.0).bound == 3.0


def test_recorded_says_what_it_was_given() -> None:
    """Rounds with different numbers of arms."""
    env = replayed(delays=[0, 2, 1], noise=0.7)
    assert (env.n_clients, env.dim, env.n_arms, env.longest, env.longest_delay) == (2, 2, 2, 3, 2)
    assert env.declared_noise == 0.7
    assert env.bound == pytest.approx(1)
    block = env.open(0).block(0, 3)
    np.testing.assert_array_equal(block.clients, GOOD["clients"])
    np.testing.assert_array_equal(block.counts, [2, 1, 2])
    for t in range(3):
        offered = block.arms[t, : block.counts[t]]
        np.testing.assert_array_equal(block.X[offered], GOOD["arms"][t])
        np.testing.assert_array_equal(block.means[t, : block.counts[t]], GOOD["means"][t])
        np.testing.assert_array_equal(block.rewards[t, : block.counts[t]], GOOD["rewards"][t])
    np.testing.assert_array_equal(block.delays, [0, 2, 1])


def test_recorded_takes_plain_arrays() -> None:
    """(T,), (T, K, d), (T, K), (T, K), of any number type."""
    rng = np.random.default_rng(0)
    arms, means = rng.random((6, 3, 2)).astype(np.float32), rng.integers(0, 2, (6, 3))
    env = fb.environments.recorded(np.array([0, 2, 1, 0, 2, 2], dtype=np.uint8), arms, means, means)
    assert (env.n_clients, env.dim, env.n_arms, env.longest) == (3, 2, 3, 6)
    block = env.open(0).block(2, 5)
    np.testing.assert_allclose(block.X[block.arms], arms[2:5])
    np.testing.assert_array_equal(block.means, means[2:5])
    assert fb.simulate(fb.async_linucb(), env, horizon=6).arms.shape == (6,)


def test_recorded_is_the_same_for_every_seed_and_block() -> None:
    """There is nothing to draw."""
    rng = np.random.default_rng(0)
    arms, means = rng.random((50, 3, 2)), rng.random((50, 3))
    env = fb.environments.recorded(rng.integers(0, 4, 50), arms, means, means, delays=rng.integers(0, 4, 50))
    whole = contents(env.open(0).block(0, 50))
    check_same(contents(env.open(1).block(0, 50)), whole)
    cuts = [0, 1, 20, 33, 50]
    pieces = [env.open(0).block(start, stop) for start, stop in itertools.pairwise(cuts)]
    check_same(joined(pieces), whole)


def test_recorded_does_not_alias_what_it_was_given() -> None:
    """Changing the arrays afterwards does not change the environment."""
    clients, means = np.array([0, 1]), np.ones((2, 3))
    arms, delays = np.ones((2, 3, 2)), np.array([1, 0])
    env = fb.environments.recorded(clients, arms, means, means, delays=delays)
    before = {name: np.copy(value) for name, value in contents(env.open(0).block(0, 2)).items()}
    for array in (clients, arms, means, delays):
        array[:] = 0
    check_same(contents(env.open(0).block(0, 2)), before)


def test_recorded_rounds_of_all_clients() -> None:
    """N entries a round."""
    clients = np.arange(12) % 3
    env = fb.environments.recorded(clients, np.ones((12, 1, 2)), np.ones((12, 1)), np.ones((12, 1)), rounds="all")
    assert env.longest == 4
    assert fb.simulate(fb.linucb(), env, horizon=4).arms.shape == (4, 3)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"clients": [[0, 1, 0]]}, r"clients is \(1, 3\),"),
        ({"clients": []}, r"clients is \(0,\),"),
        ({"clients": 3}, r"clients is \(\),"),
        ({"clients": [0.0, 1.0, 0.0]}, r"clients is \[0.0, 1.0, 0.0\],"),
        ({"clients": ["a", "b", "a"]}, "clients"),
        ({"clients": [0, -1, 0]}, "client is -1,"),
        ({"n_clients": 1}, "client is 1, .*n_clients = 1"),
        ({"n_clients": 2.5}, "n_clients is 2.5,"),
        ({"n_clients": 0}, "n_clients"),
        ({"clients": [0, 1]}, "rounds in arms is 3, .*2"),
        ({"clients": [0, 1, 0, 1]}, "rounds in arms is 3, .*4"),
        ({"arms": 5.0}, "arms"),
        ({"arms": [[[1.0, 0.0], [0.0, 1.0]], [0.6, 0.8], [[0.0, 0.0], [0.0, 0.5]]]}, r"round 1 is \(2,\),"),
        ({"arms": [[[1.0, 0.0], [0.0, 1.0]], [[0.6]], [[0.0, 0.0], [0.0, 0.5]]]}, r"round 1 is \(1, 1\),"),
        ({"arms": [[[1.0, 0.0], [0.0, 1.0]], [], [[0.0, 0.0], [0.0, 0.5]]]}, r"round 1 is \(0,\),"),
        ({"arms": [[[1.0, 0.0], [1.0]], [[0.6, 0.8]], [[0.0, 0.0], [0.0, 0.5]]]}, "arms"),
        ({"arms": [[[1.0, "x"], [0.0, 1.0]], [[0.6, 0.8]], [[0.0, 0.0], [0.0, 0.5]]]}, "arms .*'x'"),
        ({"arms": [[[1.0, 0.0], [0.0, 1.0]], [[0.6, math.nan]], [[0.0, 0.0], [0.0, 0.5]]]}, "round 1 is not finite"),
        ({"arms": [[[1.0, 0.0], [0.0, 1.0]], [[0.6, 0.8]], [[0.0, 0.0], [0.0, math.inf]]]}, "round 2 is not finite"),
        ({"arms": [[[1.0, math.inf], [0.0, 1.0]], [[0.6, 0.8]], [[0.0, 0.0], [0.0, 0.5]]]}, "round 0 is not finite"),
        ({"arms": [[[1j, 0.0], [0.0, 1.0]], [[0.6, 0.8]], [[0.0, 0.0], [0.0, 0.5]]]}, "arms"),
        ({"means": [[1.0, 0.0], [0.5]]}, "rounds in means is 2, .*3"),
        ({"means": [[1.0, 0.0], [0.5, 0.5], [0.0, 0.1]]}, r"means in round 1 is \(2,\),"),
        ({"means": [[1.0, 0.0], [0.5], [0.0, math.nan]]}, "means in round 2 is not finite"),
        ({"means": 1.0}, "means"),
        ({"rewards": [[1.0, 0.0], [0.5], [0.0]]}, r"rewards in round 2 is \(1,\),"),
        ({"rewards": [[1.0, math.inf], [0.5], [0.0, 0.0]]}, "rewards in round 0 is not finite"),
        ({"rewards": [[1.0, 0.0], ["y"], [0.0, 0.0]]}, "rewards .*'y'"),
        ({"rewards": None}, "rewards"),
        ({"bound": 0.9}, "norm 1, above the declared bound 0.9"),
        ({"bound": -1.0}, "bound"),
        ({"bound": math.nan}, "bound is nan,"),
        ({"bound": math.inf}, "bound is inf,"),
        ({"noise": -0.5}, "noise is -0.5,"),
        ({"noise": math.nan}, "noise is nan,"),
        ({"delays": [1, 2]}, r"delays is \(2,\),"),
        ({"delays": [1, -2, 0]}, r"delays is \[1, -2, 0\],"),
        ({"delays": [1.0, 2.0, 0.0]}, r"delays is \[1.0, 2.0, 0.0\],"),
        ({"rounds": "all"}, "rounds='all'"),
        ({"rounds": "both"}, "rounds is 'both',"),
    ],
)
def test_bad_recorded_environments(changes: dict[str, Any], sentence: str) -> None:
    """One sentence that names what is wrong and where."""
    with pytest.raises(FedbanditError, match=sentence):
        replayed(**changes)


def test_horizon_longer_than_the_record() -> None:
    """There are data for three rounds."""
    with pytest.raises(FedbanditError, match="horizon is 4, but must be at most 3"):
        fb.simulate(fb.linucb(), replayed(), horizon=4)


def test_clients_that_are_not_numbered_are_noticed() -> None:
    arms, means = np.ones((3, 2, 1)), np.zeros((3, 2))
    with pytest.raises(FedbanditError, match=r"clients holds texts, but must hold .*numpy\.unique\(clients"):
        fb.environments.recorded(["ann", "bob", "ann"], arms, means, means)
    env = fb.environments.recorded([1020, 7, 7], arms, means, means, noise=0.1)
    assert "Only 2 of 1,021 clients ever act" in env.notes[0]


def test_a_file_may_call_the_features_that_actions_share_situations(tmp_path: Path) -> None:
    file, X, means = tmp_path / "mine.npz", np.eye(3)[[0, 1, 2, 0]] / 2, np.tile([0.1, 0.2], (4, 1))
    np.savez(file, clients=[0, 1, 0, 1], situations=X, means=means, rewards=means)
    env = recorded_file(file)
    assert (env.actions, env.dim, env.n_arms) == (2, 3, 2)
    np.savez(file, clients=[0, 1, 0, 1], situations=X[:, None], means=means, rewards=means)
    with pytest.raises(FedbanditError, match="the shape of situations"):
        recorded_file(file)


def test_recorded_actions_and_noise() -> None:
    """One θ for each action: situations for all of them, or some with features each; σ is estimated, and said."""
    rng = np.random.default_rng(0)
    T, A, f = 400, 5, 3
    theta, X = rng.standard_normal((A, f)), rng.standard_normal((T, f))
    means = X @ theta.T
    rewards = means + 0.3 * rng.standard_normal((T, A))
    env = fb.environments.recorded(np.zeros(T, dtype=int), X, means, rewards)
    assert (env.actions, env.dim, env.n_arms) == (A, f, A)
    assert env.noise == pytest.approx(0.3, rel=0.1)
    assert "was estimated" in env.notes[0]
    result = fb.simulate(fb.linucb(), env, T)
    assert result.regret[-1] < 0.5 * fb.simulate(fb.uniform(), env, T).regret[-1]
    ids = np.stack([rng.permutation(A)[:2] for _ in range(T)])
    some, rows = np.repeat(X[:, None], 2, axis=1), np.arange(T)[:, None]
    other = fb.environments.recorded(
        np.zeros(T, dtype=int), some, means[rows, ids], rewards[rows, ids], actions=ids, noise=0.3
    )
    assert (other.actions, other.n_arms, other.notes) == (A, 2, ())
    assert fb.simulate(fb.linucb(), other, T).engine == "plain"
    for wrong, sentence in ((-ids, "smallest action"), (ids[:, :1], "shape of actions"), (ids + 0.5, "actions")):
        with pytest.raises(FedbanditError, match=sentence):
            fb.environments.recorded([0] * T, some, means[rows, ids], rewards[rows, ids], actions=wrong)
