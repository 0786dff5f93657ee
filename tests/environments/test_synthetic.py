"""Environments: streams that depend on the seed alone, the promised distributions, and sentences for bad input."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedbandit as fb
from fedbandit.environments import Homogeneous
from fedbandit.environments.block import RewardKind, actions_per_round, world_of
from fedbandit.environments.synthetic import SyntheticStream
from fedbandit.errors import FedbanditError
from fedbandit.types import Array
from tests.environments.blocks import check_same, contents, joined

KEYWORDS: dict[str, dict[str, Any]] = {
    "fresh": {},
    "pool": {"pool": 12},
    "sphere": {"contexts": "sphere"},
    "bernoulli": {"rewards": "bernoulli"},
    "bernoulli-pool": {"rewards": "bernoulli", "pool": 12},
    "skewed": {"arrivals": "skewed"},
    "round-robin": {"arrivals": "round-robin"},
    "probabilities": {"arrivals": (0.5, 0.2, 0.2, 0.1, 0.0)},
    "late": {"delay": (0, 9)},
    "drift": {"drift": (7, 20)},
    "drift-pool": {"drift": (7, 20), "pool": 12},
    "all": {"rounds": "all", "delay": (1, 3), "drift": (4, 10)},
}


def environment(**keywords: Any) -> Homogeneous:
    """Five clients, three dimensions, four arms, unless told otherwise."""
    return Homogeneous(**{"n_clients": 5, "dim": 3, "n_arms": 4, **keywords})


def opened(seed: int = 0, chunk: int | None = None, **keywords: Any) -> SyntheticStream:
    """A stream, perhaps with chunks so short that blocks have to be put together."""
    stream = environment(**keywords).open(seed)
    if chunk is not None:
        stream.chunk = chunk
    return stream


# ---------------------------------------------------------------------------------------------------------- streams


@pytest.mark.parametrize("kind", KEYWORDS)
@given(data=st.data())
def test_a_stream_does_not_depend_on_blocks(kind: str, data: st.DataObject) -> None:
    """Cut anywhere, asked for in any order, it is the same."""
    n = 60
    whole = contents(opened(3, 16, **KEYWORDS[kind]).block(0, n))
    cuts = sorted({0, n, *data.draw(st.lists(st.integers(1, n - 1), max_size=8), label="cuts")})
    pieces = list(itertools.pairwise(cuts))
    stream = opened(3, 16, **KEYWORDS[kind])
    blocks = {piece: stream.block(*piece) for piece in data.draw(st.permutations(pieces), label="order")}
    check_same(joined([blocks[piece] for piece in pieces]), whole)


@pytest.mark.parametrize("pool", [None, 50])
def test_blocks_that_cross_natural_chunks(pool: int | None) -> None:
    """The chunks of the package itself."""
    stream = opened(1, dim=2, n_arms=32, pool=pool)
    chunk = stream.chunk
    whole = contents(stream.block(chunk - 10, 2 * chunk + 10))
    again = opened(1, dim=2, n_arms=32, pool=pool)
    cuts = [chunk - 10, chunk, chunk + 1, 2 * chunk - 3, 2 * chunk + 10]
    pieces = [again.block(start, stop) for start, stop in itertools.pairwise(cuts)]
    check_same(joined(pieces), whole)


@pytest.mark.parametrize("kind", KEYWORDS)
def test_the_same_for_every_call(kind: str) -> None:
    """And for every time it is opened."""
    stream = opened(2, **KEYWORDS[kind])
    first = contents(stream.block(0, 40))
    stream.block(10**6, 10**6 + 5)
    check_same(contents(stream.block(0, 40)), first)
    check_same(contents(opened(2, **KEYWORDS[kind]).block(0, 40)), first)


@pytest.mark.parametrize("kind", KEYWORDS)
def test_seeds_differ(kind: str) -> None:
    """In parameters, contexts and rewards."""
    one, other = opened(0, **KEYWORDS[kind]), opened(1, **KEYWORDS[kind])
    assert (one.parameters != other.parameters).all()
    left, right = contents(one.block(0, 30)), contents(other.block(0, 30))
    for name in ("contexts", "means", "noise"):
        assert (left[name] != right[name]).mean() > 0.9


def test_parts_of_a_stream_differ() -> None:
    """One chunk is not the next again."""
    for pool in (None, 12):
        stream = opened(0, 16, pool=pool)
        first, second = contents(stream.block(0, 16)), contents(stream.block(16, 32))
        assert (first["noise"] != second["noise"]).all()
        assert (first["contexts"] != second["contexts"]).mean() > 0.5


def test_options_do_not_disturb_each_other() -> None:
    """Delays and drift leave arrivals, contexts and noise as they were."""
    plain = contents(opened(4).block(0, 50))
    for keywords in ({"delay": (1, 5)}, {"drift": (10,)}):
        other = contents(opened(4, **keywords).block(0, 50))
        for name in ("clients", "contexts", "noise"):
            np.testing.assert_array_equal(other[name], plain[name])
    np.testing.assert_array_equal(contents(opened(4, drift=(10,)).block(0, 10))["means"], plain["means"][:10])


# ------------------------------------------------------------------------------------------------- contexts and arms


@pytest.mark.parametrize("pool", [4, 5, 12])
def test_arms_of_a_pool_round_are_distinct(pool: int) -> None:
    """K different ones, each as likely as any other in each place."""
    n = 20_000
    block = opened(0, pool=pool).block(0, n)
    assert block.X.shape == (pool, 3)
    assert block.arms.min() >= 0
    assert block.arms.max() == pool - 1
    ordered = np.sort(block.arms, axis=1)
    assert (np.diff(ordered, axis=1) > 0).all()
    for place in range(4):
        seen = np.bincount(block.arms[:, place], minlength=pool) / n
        np.testing.assert_allclose(seen, 1 / pool, atol=5 * math.sqrt(1 / pool / n))
    together = np.mean(block.arms[:, 0] * pool + block.arms[:, 1] == 1)  # arm 0, then arm 1
    assert together == pytest.approx(1 / pool / (pool - 1), abs=5 * math.sqrt(1 / pool / (pool - 1) / n))


@pytest.mark.parametrize("pool", [None, 3000])
@pytest.mark.parametrize("rewards", ["gaussian", "bernoulli"])
@pytest.mark.parametrize("dim", [1, 2, 7])
def test_contexts_in_the_ball(dim: int, rewards: str, pool: int | None) -> None:
    """‖x‖ ≤ 1, and ‖x‖^d uniform as volumes are; directions have no preference."""
    X = opened(0, dim=dim, rewards=rewards, pool=pool).block(0, 1000).X
    norms = np.linalg.norm(X, axis=1)
    assert norms.max() <= 1 + 1e-12
    volumes = np.sort(norms**dim)
    assert np.abs(volumes - (np.arange(len(X)) + 0.5) / len(X)).max() < 2.2 / math.sqrt(len(X))
    if rewards == "bernoulli":
        assert (X >= 0).all()
    else:
        np.testing.assert_allclose(X.mean(axis=0), 0, atol=5 / math.sqrt(len(X)))
    np.testing.assert_allclose((X**2).mean(axis=0), 1 / (dim + 2), atol=5 / math.sqrt(len(X)))


@pytest.mark.parametrize("pool", [None, 50])
def test_contexts_on_the_sphere(pool: int | None) -> None:
    """‖x‖ = 1."""
    X = opened(0, contexts="sphere", pool=pool, dim=6).block(0, 300).X
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1, atol=1e-12)


@pytest.mark.parametrize("kind", KEYWORDS)
def test_means_are_linear(kind: str) -> None:
    """θᵀx with a θ of unit norm."""
    stream = opened(5, **KEYWORDS[kind])
    block = stream.block(0, 7)  # before any drift
    theta = stream.parameters[0, stream.taste[0]]
    assert np.linalg.norm(theta) == pytest.approx(1)
    np.testing.assert_allclose(block.means, block.X[block.arms] @ theta, atol=1e-12)
    assert block.means.shape == (7, 4)
    assert (block.counts == 4).all()


# --------------------------------------------------------------------------------------------------------- arrivals


@pytest.mark.parametrize(
    ("arrivals", "probabilities"),
    [
        ("uniform", np.full(5, 0.2)),
        ("skewed", np.arange(1, 6) ** -1.5 / (np.arange(1, 6) ** -1.5).sum()),
        ((0.5, 0.0, 0.25, 0.25, 0.0), np.array([0.5, 0.0, 0.25, 0.25, 0.0])),
        ([0.0, 0.0, 0.0, 0.0, 1.0], np.array([0.0, 0.0, 0.0, 0.0, 1.0])),
        (np.full(5, 0.2), np.full(5, 0.2)),
    ],
)
def test_arrival_frequencies(arrivals: Any, probabilities: Array) -> None:
    """As promised, and without memory."""
    n = 50_000
    clients = opened(0, arrivals=arrivals, pool=4).block(0, n).clients
    seen = np.bincount(clients, minlength=5) / n
    np.testing.assert_allclose(seen, probabilities, atol=5 * math.sqrt(0.25 / n))
    assert (seen[probabilities == 0] == 0).all()
    again = np.mean(clients[1:] == clients[:-1])
    assert again == pytest.approx((probabilities**2).sum(), abs=5 * math.sqrt(0.25 / n))


def test_round_robin() -> None:
    """0, 1, …, N − 1, 0, …, from any start."""
    clients = opened(0, arrivals="round-robin").block(3, 18).clients
    np.testing.assert_array_equal(clients, np.arange(3, 18) % 5)


def test_all_clients_act_in_every_round() -> None:
    """In the order of their numbers; a round is N interactions."""
    env = environment(rounds="all")
    assert actions_per_round(env) == 5
    assert world_of(env, 10).horizon == 50
    np.testing.assert_array_equal(env.open(0).block(0, 20).clients, np.arange(20) % 5)
    result = fb.simulate(fb.linucb(), env, horizon=10)
    assert result.arms.shape == (10, 5)
    assert result.regret.shape == (10,)


# ---------------------------------------------------------------------------------------------------------- rewards


def test_gaussian_noise() -> None:
    """Mean 0, standard deviation as declared, and not correlated with the means."""
    n = 20_000
    env = environment(noise=0.3, pool=4)
    block = env.open(0).block(0, n)
    assert block.reward_kind == RewardKind.GAUSSIAN
    assert block.noise.mean() == pytest.approx(0, abs=5 * 0.3 / math.sqrt(n))
    assert block.noise.std() == pytest.approx(0.3, abs=5 * 0.3 / math.sqrt(2 * n))
    assert np.corrcoef(block.noise, block.means[:, 0])[0, 1] == pytest.approx(0, abs=5 / math.sqrt(n))
    assert env.declared_noise == 0.3


@pytest.mark.parametrize("pool", [None, 12])
@pytest.mark.parametrize("contexts", ["ball", "sphere"])
@pytest.mark.parametrize("dim", [1, 3])
def test_bernoulli_means_are_probabilities(dim: int, contexts: str, pool: int | None) -> None:
    """In [0, 1], and rewards are 0 or 1 with these probabilities."""
    env = environment(dim=dim, contexts=contexts, rewards="bernoulli", pool=pool)
    block = env.open(0).block(0, 4000)
    assert block.reward_kind == RewardKind.BERNOULLI
    assert block.means.min() >= 0
    assert block.means.max() <= 1 + 1e-12
    assert block.noise.min() >= 0
    assert block.noise.max() < 1
    assert env.declared_noise == 0.5
    result = fb.simulate(fb.uniform(), env, horizon=4000)
    rewards = np.diff(result.reward, prepend=0)
    assert set(np.round(rewards, 9)) <= {0.0, 1.0}
    pulled = block.means[np.arange(4000), result.arms]
    assert rewards.mean() == pytest.approx(pulled.mean(), abs=5 * math.sqrt(0.25 / 4000))


def test_rewards_and_regret_of_a_simulation() -> None:
    """Mean plus noise, and the gap to the best mean offered, of the very block that the stream hands out."""
    env = environment()
    result = fb.simulate(fb.linucb(), env, horizon=300, seed=9)
    block = env.open(9).block(0, 300)
    pulled = block.means[np.arange(300), result.arms]
    np.testing.assert_allclose(np.diff(result.reward, prepend=0), pulled + block.noise, atol=1e-9)
    np.testing.assert_allclose(np.diff(result.regret, prepend=0), block.means.max(axis=1) - pulled, atol=1e-9)


# -------------------------------------------------------------------------------------------------- drift and delays


@pytest.mark.parametrize("pool", [None, 12])
@pytest.mark.parametrize("rounds", ["one", "all"])
def test_parameters_change_exactly_when_told(rounds: str, pool: int | None) -> None:
    """Rounds 7 and 20, counted from 0; given in any order."""
    stream = opened(0, 16, rounds=rounds, pool=pool, drift=(20, 7))
    n = 5 if rounds == "all" else 1
    block = stream.block(0, 40 * n)
    assert len(stream.parameters) == 3
    assert len({tuple(theta[0].tolist()) for theta in stream.parameters}) == 3
    t = np.arange(40 * n) // n
    for phase, during in enumerate((t < 7, (t >= 7) & (t < 20), t >= 20)):
        theta = stream.parameters[phase, 0]
        np.testing.assert_allclose(block.means[during], block.X[block.arms[during]] @ theta, atol=1e-12)
        assert np.linalg.norm(theta) == pytest.approx(1)


@pytest.mark.parametrize(("delay", "low", "high"), [(3, 3, 3), ((0, 4), 0, 4), ((2, 3), 2, 3), ([1, 6], 1, 6)])
def test_delays_are_within_range(delay: Any, low: int, high: int) -> None:
    """Every delay of the range occurs, none beyond, all as often."""
    env = environment(delay=delay, pool=4)
    delays = env.open(0).block(0, 8000).delays
    assert env.longest_delay == high
    values, counts = np.unique(delays, return_counts=True)
    np.testing.assert_array_equal(values, np.arange(low, high + 1))
    np.testing.assert_allclose(counts / 8000, 1 / len(values), atol=5 * math.sqrt(0.25 / 8000))


def test_delays_of_whole_rounds() -> None:
    """With rounds="all" a round is N interactions."""
    env = environment(delay=(1, 3), rounds="all")
    assert env.longest_delay == 15
    assert set(env.open(0).block(0, 500).delays.tolist()) == {5, 10, 15}


def test_no_delay_is_no_array() -> None:
    """Nothing to look at."""
    assert opened(0).block(0, 10).delays.size == 0
    assert environment().longest_delay == 0


def test_late_rewards_make_a_learner_slower() -> None:
    """A learner that sees nothing until the end chooses as if it had learnt nothing."""
    env = environment(delay=500, contexts="sphere", n_clients=1)
    result = fb.simulate(fb.linucb(), env, horizon=500)
    assert (result.arms == 0).all()


# --------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({"n_clients": 0}, "n_clients is 0,"),
        ({"n_clients": -3}, "n_clients is -3,"),
        ({"n_clients": 2.5}, "n_clients is 2.5,"),
        ({"n_clients": "3"}, "n_clients is '3',"),
        ({"dim": 0}, "dim is 0,"),
        ({"dim": None}, "dim is None,"),
        ({"n_arms": 0}, "n_arms is 0,"),
        ({"noise": -0.1}, "noise is -0.1,"),
        ({"noise": math.nan}, "noise is nan,"),
        ({"noise": math.inf}, "noise is inf,"),
        ({"noise": "loud"}, "noise is 'loud',"),
        ({"pool": 3}, "pool is 3, .* n_arms = 4"),
        ({"pool": 0}, "pool is 0,"),
        ({"pool": 7.5}, "pool is 7.5,"),
        ({"rounds": "both"}, "rounds is 'both',"),
        ({"contexts": "cube"}, "contexts is 'cube',"),
        ({"rewards": "poisson"}, "rewards is 'poisson',"),
        ({"arrivals": "sometimes"}, "arrivals is 'sometimes',"),
        ({"arrivals": (0.5, 0.5)}, r"arrivals is \(2,\),"),
        ({"arrivals": (0.5, 0.5, 0.5, -0.5, 0.0)}, "arrivals is .*-0.5"),
        ({"arrivals": (0.5, 0.1, 0.1, 0.1, 0.1)}, "arrivals is .*sum to 1"),
        ({"arrivals": (math.nan, 0.5, 0.5, 0.0, 0.0)}, "arrivals is .*nan"),
        ({"arrivals": ("a", "b", "c", "d", "e")}, "arrivals is .*'a'"),
        ({"arrivals": 3}, "arrivals"),
        ({"arrivals": "skewed", "rounds": "all"}, "arrivals .* rounds='all'"),
        ({"arrivals": (0.2,) * 5, "rounds": "all"}, "arrivals .* rounds='all'"),
        ({"delay": -1}, "delay is -1,"),
        ({"delay": (3, 1)}, r"delay is \(3, 1\),"),
        ({"delay": (-2, 1)}, r"delay is \(-2, 1\),"),
        ({"delay": 2.5}, "delay is 2.5,"),
        ({"delay": (0.5, 2.7)}, r"delay is \(0.5, 2.7\),"),
        ({"delay": (1, 2, 3)}, r"delay is \(1, 2, 3\),"),
        ({"delay": "late"}, "delay is 'late',"),
        ({"drift": (0,)}, r"drift is \(0,\),"),
        ({"drift": (5, -3)}, r"drift is .*-3"),
        ({"drift": 5}, "drift is 5,"),
        ({"drift": (1.5,)}, r"drift is \(1.5,\),"),
    ],
)
def test_bad_synthetic_environments(keywords: dict[str, Any], sentence: str) -> None:
    """One sentence that names the keyword and its value."""
    with pytest.raises(FedbanditError, match=sentence):
        environment(**keywords)


@pytest.mark.parametrize("seed", [-1, 1.5, "0", None])
def test_bad_seeds(seed: Any) -> None:
    """Whole numbers from 0."""
    with pytest.raises(FedbanditError, match=f"seed is {seed!r},"):
        environment().open(seed)
    with pytest.raises(FedbanditError, match=f"seed is {seed!r},"):
        fb.simulate(fb.linucb(), environment(), 10, seed)


@pytest.mark.parametrize("horizon", [0, -5, 2.5, "10"])
def test_bad_horizons(horizon: Any) -> None:
    """Whole numbers from 1."""
    with pytest.raises(FedbanditError, match=f"horizon is {horizon!r},"):
        fb.simulate(fb.linucb(), environment(), horizon)


def test_an_environment_without_a_fact_is_told_which() -> None:
    """One that does not derive from a base class and forgot about graphs."""

    class Mine:
        name = "mine"
        n_clients = dim = n_arms = 2
        rounds, declared_noise, bound, longest, longest_delay, absent = "one", 0.1, 1.0, None, 0, 0.0

        def open(self, seed: int) -> SyntheticStream:
            return environment().open(seed)

    mine: Any = Mine()
    with pytest.raises(FedbanditError, match="The environment Mine has no 'graph_of'; give it one, or derive it"):
        world_of(mine, 10)


def test_decaying_contexts_have_less_and_less_variance() -> None:
    """Entry i of d has the variance (d − i)/d before contexts are normalised: ratios of entries show it."""
    env = fb.environments.homogeneous(n_clients=2, dim=4, n_arms=2, contexts="decaying", pool=200_000)
    X = env.open(0).pool
    assert X is not None
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1.0)
    for i in range(1, 4):  # X_i²/(X_i² + X_0²) of independent normals: tan² of an angle, whose median is the ratio
        median = np.median((X[:, i] / X[:, 0]) ** 2)
        assert median == pytest.approx((4 - i) / 4, rel=0.03)
