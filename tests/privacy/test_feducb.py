"""FedUCB, with a controller and without, and private LinUCB alone against naive oracles; what its keywords mean."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.engine.simulation import Simulation
from fedbandit.environments.block import world_of
from fedbandit.privacy.bounds import published_bounds
from fedbandit.privacy.pool_noise import PoolNoise
from fedbandit.privacy.release_stream import ReleaseStream
from fedbandit.protocols.topology import clique_cover, neighbours_of
from fedbandit.sums import Sums
from fedbandit.types import Array
from tests.oracles import naive_feducb as oracle

M, DIM, ARMS = 4, 3, 5
SIGMA = 0.1


def drawn(rounds: int, seed: int = 0, agents: int = M) -> tuple[Array, Array, fb.environments.Recorded]:
    """Contexts (T, M, K, d) and rewards (T, M, K) in [0, 1], and the environment that replays them."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rounds, agents, ARMS, DIM))
    X /= np.linalg.norm(X, axis=-1, keepdims=True)
    y = np.clip(0.5 + 0.4 * X[..., 0] + 0.05 * rng.standard_normal(X.shape[:3]), 0, 1)
    flat = (X.reshape(-1, ARMS, DIM), y.reshape(-1, ARMS))
    env = fb.environments.recorded(np.arange(rounds * agents) % agents, *flat, flat[1], rounds="all", bound=1.0)
    return X, y, env


class Noises:
    """What the privatisers of a run add to each agent's running sums, release by release."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.added: dict[int, list[tuple[Array, Array]]] = defaultdict(list)
        release = ReleaseStream.release

        def noted(stream: ReleaseStream, sums: Sums) -> Sums:
            released = release(stream, sums)
            (member,) = stream.source.args[2:] if hasattr(stream.source, "args") else (0,)
            before = self.added[member][-1] if self.added[member] else (0.0, 0.0)
            self.added[member].append((before[0] + released.V - sums.V, before[1] + released.b - sums.b))
            return released

        patch.setattr(ReleaseStream, "release", noted)


@pytest.mark.parametrize(
    ("epsilon", "threshold", "as_printed", "width"),
    [
        (30.0, "theorem", True, "corrected"),
        (30.0, 60.0, True, "corrected"),
        (30.0, 60.0, False, "corrected"),
        (1e5, "theorem", True, "corrected"),
        (1e5, 60.0, True, "corrected"),
        (1e5, 60.0, False, "corrected"),
        (30.0, "theorem", True, "printed"),
        (300.0, 60.0, True, "printed"),
        (3000.0, 60.0, False, "printed"),
    ],
)
def test_the_controlled_system_with_published_noise(
    monkeypatch: pytest.MonkeyPatch, epsilon: float, threshold: Any, as_printed: bool, width: Any
) -> None:
    """Alg. 1 and 2, the noise of the run handed to the oracle: the same arms and synchronisations."""
    T, delta = 150, 0.1
    X, y, env = drawn(T)
    noises = Noises(monkeypatch)
    system = fb.feducb(
        epsilon=epsilon, delta=delta, calibration="published", threshold=threshold, as_printed=as_printed, width=width,
        noise=SIGMA,
    )  # fmt: skip
    result = fb.simulate(system, env, T, seed=3, engine="plain")
    low, high, kappa = published_bounds(epsilon, delta, T, DIM, streams=M, failure=0.1)
    given = oracle.Bounds(low, high, kappa, alpha=0.1, sigma=SIGMA, printed=width == "printed")
    theorem = 2 * T * DIM / (math.log(high / low + T / (DIM * low)) + 1)
    D = theorem if threshold == "theorem" else threshold
    noise = [noises.added[i] for i in range(M)]
    arms, synchronised = oracle.controlled(X, y, D, given, noise, as_printed=as_printed)
    assert synchronised > 0
    assert result.communication.uploads == M * synchronised
    np.testing.assert_array_equal(result.arms, arms)


def test_the_determinant_as_printed_has_no_kernel() -> None:
    """It once ran in the fast engine, which never synchronised."""
    env = fb.environments.feducb(n_clients=3, dim=3)
    assert Simulation(fb.feducb(as_printed=True, delta=0.1), env, 100_000, 0).engine == "plain"
    with pytest.raises(fb.FedbanditError, match="does not know the privacy PrivateStatistics as printed, whose trig"):
        fb.simulate(fb.feducb(as_printed=True, delta=0.1), env, 100, engine="fast")
    assert Simulation(fb.feducb(calibration="published"), env, 100_000, 0).engine == "fast"


@pytest.mark.parametrize(
    ("topology", "ttl", "keywords"),
    [
        ("complete", 1, {}),
        ("ring", 2, {}),
        ("line", 3, {}),
        ("line", 2, {"subsample": False}),
        ("line", 1, {"cliques": True}),
        ("ring", 2, {"threshold": 5.0, "calibration": "published"}),
    ],
)
def test_peers_without_noise(topology: str, ttl: int, keywords: dict[str, Any]) -> None:
    """§4.2 by breadth-first distances: the same arms."""
    T, agents = 60, 5
    X, y, env = drawn(T, seed=1, agents=agents)
    protocol = fb.protocols.Gossip(
        topology, ttl, None if "threshold" in keywords else 1.5, 4, keywords.get("threshold"),
        cliques="cliques" in keywords, subsample=keywords.get("subsample", True),
    )  # fmt: skip
    result = fb.simulate(fb.System(fb.policies.UCB(noise=SIGMA), protocol), env, T, engine="plain")
    near = neighbours_of(topology, agents)
    cover = clique_cover(near, ttl)
    shares = [{j for j in range(agents) if cover[j] == cover[i]} for i in range(agents)]
    arms = oracle.gossip(
        X, y, oracle.hops_between([(i, j) for i in range(agents) for j in near[i]], agents), ttl,
        growth=protocol.growth, batch=4, D=protocol.threshold,  # type: ignore[arg-type]
        sigma=SIGMA, subsample=protocol.subsample,
        shares=shares if protocol.cliques else None,
    )  # fmt: skip
    assert result.communication.uploads > 0
    np.testing.assert_array_equal(result.arms, arms)


@pytest.mark.parametrize(
    ("topology", "ttl", "epsilon", "threshold", "subsample"),
    [
        ("complete", 1, 30.0, 60.0, True),
        ("ring", 2, 30.0, 60.0, True),
        ("ring", 2, 1e5, 5.0, True),
        ("line", 3, 1e5, 5.0, True),
        ("line", 2, 30.0, 60.0, False),
        ("line", 2, 1e5, "theorem", False),
    ],
)
def test_peers_with_published_noise(
    monkeypatch: pytest.MonkeyPatch, topology: str, ttl: int, epsilon: float, threshold: Any, subsample: bool
) -> None:
    """§4.2 with the noise of the run handed to the oracle: the same arms, and as many releases."""
    T, agents, delta = 90, 5, 0.1
    X, y, env = drawn(T, seed=4, agents=agents)
    noises = Noises(monkeypatch)
    system = fb.feducb(
        epsilon=epsilon, delta=delta, calibration="published", topology=topology, ttl=ttl, threshold=threshold,
        subsample=subsample, noise=SIGMA,
    )  # fmt: skip
    result = fb.simulate(system, env, T, seed=6, engine="plain")
    period = ttl if subsample else 1
    low, high, kappa = published_bounds(epsilon, delta, T // period, DIM, streams=agents * period, failure=0.1)
    given = oracle.Bounds(low, high, kappa, alpha=0.1, sigma=SIGMA)
    D = 2 * T * DIM / (math.log(high / low + T / (DIM * low)) + 1) if threshold == "theorem" else threshold
    near = neighbours_of(topology, agents)
    hops = oracle.hops_between([(i, j) for i in range(agents) for j in near[i]], agents)
    noise = [noises.added[k] for k in range(agents * period)]
    arms, told = oracle.noised_gossip(X, y, hops, ttl, D, given, noise, subsample=subsample)
    assert result.privacy is not None
    assert told == result.privacy.releases.sum() > agents
    np.testing.assert_array_equal(result.arms, arms)


@pytest.mark.parametrize("epsilon", [3.0, 300.0])
def test_a_client_alone_that_learns_from_its_releases(monkeypatch: pytest.MonkeyPatch, epsilon: float) -> None:
    """dp_linucb(delta > 0): noise of the run, and bounds of that noise, handed to the oracle: the same arms."""
    T = 200
    X, y, env = drawn(T, seed=2, agents=1)
    noises = Noises(monkeypatch)
    system = fb.dp_linucb(epsilon=epsilon, delta=1e-5, noise=SIGMA)
    result = fb.simulate(system, env, T, seed=5, engine="plain")
    pool = system.told(world_of(env, T)).pool_noise()
    assert isinstance(pool, PoolNoise)
    bounds = [pool.bounds(pool.deviation({0: k + 1})) for k in range(len(noises.added[0]))]
    arms = oracle.alone(
        X[:, 0], y[:, 0], noises.added[0], *zip(*bounds, strict=True), growth=1.05, batch=16, sigma=SIGMA
    )
    assert len(noises.added[0]) > 5
    np.testing.assert_array_equal(result.arms.ravel(), arms)


def test_no_agents_budget_is_spent_before_the_end() -> None:
    """Trees for T releases (Alg. 2 line 2): a review found 10 of 10 agents exhausted at M = 10, d = 5, T = 3,000."""
    env = fb.environments.feducb(n_clients=5, dim=4)
    result = fb.simulate(fb.feducb(calibration="published", delta=0.1), env, 600, engine="plain")
    assert result.privacy is not None
    assert result.privacy.releases.min() > 10
    assert result.privacy.exhausted.size == 0


def test_the_theorems_threshold_synchronises_about_once() -> None:
    env = fb.environments.feducb(n_clients=5, dim=4)
    result = fb.simulate(fb.feducb(as_printed=True, delta=0.1), env, 600, engine="plain")
    assert 5 <= result.communication.uploads <= 15


def test_a_budget_of_infinity_leaves_the_others_theirs() -> None:
    """The guarantee and the ledger are those of whoever asked for one, and say who did not."""
    env = fb.environments.feducb(n_clients=3, dim=DIM)
    system = fb.feducb(epsilon=[1.0, math.inf, 3.0])
    simulation = Simulation(system, env, 100, 0, engine="plain")
    while not simulation.finished:
        simulation.advance()
    result = simulation.result()
    assert (result.guarantee.basis, result.guarantee.epsilon) == ("proven", 3.0)
    assert "not for clients 1, whose ε is inf" in str(result.guarantee)
    assert result.privacy is not None
    assert result.privacy.clients.tolist() == [0, 2]
    assert result.privacy.epsilon[0] < result.privacy.epsilon[1] <= 3.0 + 1e-9
    told = system.told(world_of(env, 100))
    assert [told.guarantee_of(i).epsilon for i in range(3)] == [1.0, math.inf, 3.0]
    assert [told.guarantee_of(i).basis for i in range(3)] == ["proven", "none", "proven"]
    nobody = fb.feducb(epsilon=[math.inf] * 3)
    assert nobody.guarantee.basis == "none"


@pytest.mark.parametrize(("subsample", "rounds"), [(True, 285), (False, 2000)])
def test_portions_are_those_of_the_rounds_of_one_estimator(subsample: bool, rounds: int) -> None:
    """γ = 7: with sub-sampling an estimator has every seventh of 2,000 rounds, without it is the only one."""
    world = fb.World(n_clients=8, dim=DIM, horizon=16_000, per_round=8)
    gossip = fb.protocols.Gossip("line", 7, 1.5, 16, subsample=subsample)
    portions, released, expected = gossip.portions(world), 0, []
    while (more := max(math.ceil(released / 2), 16)) + released <= rounds:
        expected.append(more)
        released += more
    assert portions == tuple(expected)
    assert len(portions) == gossip.releases(world)


def test_estimators_enter_the_bounds() -> None:
    """Remark 5: Λ and κ have log γ, and so has the union bound of "proven"."""
    world = fb.World(n_clients=6, dim=DIM, horizon=6000, per_round=6)
    for calibration in ("published", "proven"):
        pools = [
            fb.feducb(topology="line", ttl=ttl, subsample=ttl == 3, calibration=calibration).told(world).pool_noise()
            for ttl in (1, 3)
        ]
        assert all(isinstance(pool, PoolNoise) for pool in pools)
        one, three = pools
        assert isinstance(one, PoolNoise)
        assert isinstance(three, PoolNoise)
        if calibration == "proven":
            releases = [pool.looks / (6 * ttl) for pool, ttl in ((one, 1), (three, 3))]
            assert releases[0] == int(releases[0])
            assert releases[1] == int(releases[1])
        else:
            for pool, ttl in ((one, 1), (three, 3)):
                assert pool.published == published_bounds(1.0, 1e-5, 1000 // ttl, DIM, streams=6 * ttl, failure=0.1)
