"""Learning on a graph of users against the naive dN-dimensional oracle, and what structures refuse."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedbandit as fb
from fedbandit.engine.checkpoint import fingerprint, write_checkpoint
from fedbandit.engine.plain import PlainLearner
from fedbandit.engine.simulation import Simulation
from fedbandit.machines.local_server import LocalServers
from fedbandit.policies import UCB, Greedy, LinPHE, LinTS, Policy, Uniform
from fedbandit.protocols import Never
from fedbandit.structures import Laplacian, WeightedGraph
from fedbandit.structures.graph_model import GraphModel
from fedbandit.system import System
from fedbandit.types import Array
from tests.logs import KINDS, random_log, recorded
from tests.oracles import naive
from tests.oracles.naive import Log
from tests.oracles.naive_graph import colin_features, goblin_features, laplacian_of, run_graph

POLICIES: dict[str, tuple[Policy, naive.Policy]] = {
    "ucb": (UCB(), naive.Policy("ucb")),
    "ucb-fixed": (UCB(alpha=0.3), naive.Policy("ucb", alpha=0.3)),
    "greedy": (Greedy(), naive.Policy("greedy")),
    "lints": (LinTS(), naive.Policy("lints")),
    "linphe": (LinPHE(), naive.Policy("linphe")),
    "uniform": (Uniform(), naive.Policy("uniform")),
}
FEATURES = {WeightedGraph: colin_features, Laplacian: goblin_features}


def model_of(simulation: Simulation) -> GraphModel:
    """What has logdet and parameters."""
    learner = simulation.learner
    assert isinstance(learner, PlainLearner)
    assert isinstance(learner.machines, LocalServers)
    serving = learner.machines.servers[0].serving
    assert isinstance(serving, GraphModel)
    return serving


def random_graph(seed: int, n: int = 6) -> Array:
    """Rows sum to one; every user has a neighbour."""
    rng = np.random.default_rng(seed)
    W = rng.random((n, n)) * (rng.random((n, n)) < 0.5) + np.eye(n) * rng.random((n, 1))
    W[np.arange(n), (np.arange(n) + 1) % n] += 0.2
    return np.asarray(W / W.sum(axis=1, keepdims=True))


def finish(system: System, log: Log, seed: int = 0) -> Simulation:
    """The finished simulation."""
    simulation = Simulation(system, recorded(log), len(log.clients), seed)
    while not simulation.finished:
        simulation.advance()
    return simulation


@pytest.mark.parametrize("structure", [WeightedGraph, Laplacian])
@pytest.mark.parametrize("width", ["user", "model"])
@pytest.mark.parametrize("policy", POLICIES)
def test_arms_are_those_of_the_large_model(structure: Any, width: Any, policy: str) -> None:
    ours, theirs = POLICIES[policy]
    W = random_graph(1)
    for kind in ("ball", "axes", "large"):
        log = random_log(3, kind, horizon=120, longest_delay=5 if kind == "ball" else 0)
        simulation = finish(System(ours, Never(), structure(W, width=width)), log)
        expected = run_graph(log, FEATURES[structure](W), theirs, model_width=width == "model")
        np.testing.assert_array_equal(simulation.result().arms, expected.arms)
        model = model_of(simulation)
        assert model.logdet == pytest.approx(np.linalg.slogdet(expected.A / 0.1)[1], abs=1e-7)
        E = np.stack([FEATURES[structure](W)(u, e) for u in range(6) for e in np.eye(4)])
        theta = E @ np.linalg.solve(expected.A, expected.b)
        np.testing.assert_allclose(model.parameters().reshape(-1), theta, atol=1e-7)


@given(seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(KINDS), n=st.integers(2, 7), d=st.integers(1, 5))
def test_any_log_on_any_graph(seed: int, kind: str, n: int, d: int) -> None:
    W = random_graph(seed, n)
    log = random_log(seed, kind, horizon=40, n_clients=n, dim=d, longest_delay=seed % 4)
    expected = run_graph(log, colin_features(W), naive.Policy(), seed=seed).arms
    np.testing.assert_array_equal(fb.simulate(fb.colin(graph=W), recorded(log), 40, seed).arms, expected)


def test_large_models_are_folded_by_blas() -> None:
    W = random_graph(5, 41)
    log = random_log(8, horizon=80, n_clients=41, dim=10)
    expected = run_graph(log, goblin_features(W), naive.Policy())
    np.testing.assert_array_equal(finish(fb.goblin(graph=W), log).result().arms, expected.arms)


def test_users_without_neighbours_learn_as_linucb_does() -> None:
    log = random_log(2, horizon=200)
    apart = System(UCB(), Never(), WeightedGraph(np.eye(6), isolated=True))
    alone = fb.simulate(fb.linucb(), recorded(log), 200)
    np.testing.assert_array_equal(fb.simulate(apart, recorded(log), 200).arms, alone.arms)
    apart = System(UCB(), Never(), Laplacian(np.eye(6), isolated=True))
    np.testing.assert_array_equal(fb.simulate(apart, recorded(log), 200).arms, alone.arms)


def test_a_laplacian_is_that_of_the_graph() -> None:
    W = random_graph(4)
    M = Laplacian(W).mixing(fb.World(6, 2, 10))
    np.testing.assert_allclose(np.linalg.inv(M @ M), laplacian_of(W), atol=1e-9)


@pytest.mark.parametrize(
    "system",
    [
        fb.colin(),
        fb.dp_colin(mechanism="sums", epsilon=3.0, alpha=None),
        fb.ldp_goblin(calibration="published", epsilon=3.0),
    ],
    ids=["exact", "noise on sums", "noise on the model"],
)
def test_a_checkpoint_goes_on_as_if_nothing_had_happened(system: System, tmp_path: Any) -> None:
    env = fb.environments.collaborative(n_clients=4, dim=3, n_arms=5, pool=50, delay=(0, 9))
    path = tmp_path / "half.npz"
    whole = fb.simulate(system, env, 6000, 7)
    half = Simulation(system, env, 6000, 7)
    half.advance()
    write_checkpoint(path, half, fingerprint(system, env, 6000, 7))
    assert 0 < half.round < 6000
    again = fb.simulate(system, env, 6000, 7, checkpoint=path)
    np.testing.assert_array_equal(again.arms, whole.arms)


@pytest.mark.parametrize(
    ("graph", "sentence"),
    [
        ([[0.5, 0.4], [0.5, 0.4]], "one or the other must all be 1"),
        ([[1.5, -0.5], [0.0, 1.0]], "smallest weight"),
        ([[1.0, 0.0]], "shape of the graph"),
        ([[1.0, 0.0], [0.0, 1.0]], "has no neighbour"),
        ([[math.nan, 1.0], [0.5, 0.5]], "finite"),
        ([["a", "b"], ["c", "d"]], "not a number"),
    ],
)
def test_bad_graphs_are_refused_in_a_sentence(graph: Any, sentence: str) -> None:
    with pytest.raises(fb.FedbanditError, match=sentence):
        fb.colin(graph=graph)


def test_graphs_that_do_not_fit_the_world_are_refused() -> None:
    env = fb.environments.homogeneous(n_clients=4, dim=3, n_arms=5)
    with pytest.raises(fb.FedbanditError, match="needs a graph"):
        fb.simulate(fb.goblin(), env, 10)
    with pytest.raises(fb.FedbanditError, match="number of users in the graph is 2"):
        fb.simulate(fb.colin(graph=[[0.5, 0.5], [0.5, 0.5]]), env, 10)
    with pytest.raises(fb.FedbanditError, match="the shape of graph"):
        fb.environments.recorded([0], [[[1.0]]], [[1.0]], [[1.0]], n_clients=2, graph=np.eye(3))


def test_collaboration_helps() -> None:
    env = fb.environments.collaborative(n_clients=10, dim=10, n_arms=10, pool=1000, arrivals="round-robin")
    regret = {
        system.name: np.mean([fb.simulate(system, env, 6000, seed).regret[-1] for seed in range(3)])
        for system in (fb.linucb(), fb.colin(), fb.goblin())
    }
    assert regret["colin"] < 0.6 * regret["linucb"]
    assert regret["goblin"] < 0.9 * regret["linucb"]


def test_contexts_of_either_sign() -> None:
    """They are uniform on the sphere and all else is as it was, so that random arms lose far more."""
    common = {"n_clients": 5, "dim": 6, "n_arms": 10, "pool": 2000}
    printed, signed = (fb.environments.collaborative(**common, signed=signed) for signed in (False, True))  # type: ignore[arg-type]
    np.testing.assert_array_equal(printed.graph_of(3), signed.graph_of(3))
    X = signed.open(3).block(0, 1).X
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1.0)
    assert np.abs(X.mean(axis=0)).max() < 5 / np.sqrt(6 * 2000)
    assert printed.open(3).block(0, 1).X.min() >= 0.0
    lost = [fb.simulate(fb.uniform(), env, 500).regret[-1] for env in (printed, signed)]
    assert lost[1] > 2 * lost[0]
    with pytest.raises(fb.FedbanditError, match="Bernoulli rewards need signed=False"):
        fb.environments.collaborative(n_clients=5, dim=6, n_arms=10, rewards="bernoulli", signed=True)
