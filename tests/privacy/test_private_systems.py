"""Privacy in systems: zero noise changes nothing, caps hold while clients learn on, books are kept and survive."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.audit.neighbours import RecordLimits, some_history
from fedbandit.audit.observer import observe_client
from fedbandit.checks import bytes_agree, engines_agree, repeats_itself
from fedbandit.engine.fast.row import N_OWN
from fedbandit.engine.simulation import Simulation
from fedbandit.errors import FedbanditError
from fedbandit.machines.client import ClientMachine
from fedbandit.messages import Collect, Upload
from fedbandit.presets import compose
from fedbandit.privacy import NoisyRewards, PrivateStatistics
from fedbandit.privacy.mechanism import epsilon_of
from fedbandit.protocols import CountTriggered, Gossip, Synchronous
from fedbandit.structures import Alone, Everyone

INF = math.inf
BY_COUNTS = Synchronous(growth=1.5, batch=16)


def small(**options: Any) -> Any:
    """Five clients in three dimensions."""
    return fb.environments.homogeneous(n_clients=5, dim=3, n_arms=6, **options)


SILENT = {
    "feducb": (fb.feducb(epsilon=INF), compose(BY_COUNTS, Everyone())),
    "feducb as published": (fb.feducb(epsilon=INF, calibration="published"), fb.sync_linucb(warm_join=True)),
    "async_linucb": (
        fb.async_linucb(privacy=PrivateStatistics(INF)),
        compose(CountTriggered(5.0, 5.0, batch=16), Everyone()),
    ),
    "count_linucb": (fb.count_linucb(privacy=PrivateStatistics(INF)), fb.count_linucb()),
    "count_linucb, warm": (
        fb.count_linucb(warm_join=True, privacy=PrivateStatistics(INF)),
        fb.count_linucb(warm_join=True),
    ),
    "dp_linucb": (fb.dp_linucb(epsilon=INF), fb.linucb()),
    "dp_linucb with contexts": (
        fb.dp_linucb(epsilon=INF, delta=1e-5),
        compose(CountTriggered(1.05, 1.0, batch=16), Alone()),
    ),
}


@pytest.mark.parametrize("name", SILENT)
@pytest.mark.parametrize("rounds", ["one", "all"])
def test_zero_noise_is_no_privacy(name: str, rounds: str) -> None:
    """Arm for arm and message for message, whatever path it takes through the coordinator; and nothing is claimed."""
    private, plain = SILENT[name]
    env, horizon = small(rounds=rounds, arrivals="uniform"), 2_000 if rounds == "one" else 400
    for seed in (0, 1):
        a, b = fb.simulate(private, env, horizon, seed), fb.simulate(plain, env, horizon, seed)
        np.testing.assert_array_equal(a.arms, b.arms)
        np.testing.assert_array_equal(a.communication.message_curve, b.communication.message_curve)
        assert a.guarantee.basis == "none"
        assert a.privacy is None


@pytest.mark.parametrize(
    "system",
    [
        fb.async_linucb(gamma_upload=1.5, gamma_download=1.2, privacy=PrivateStatistics(5.0)),
        fb.count_linucb(warm_join=True, privacy=PrivateStatistics([1.0, 2.0, INF, 4.0])),
        fb.count_linucb(privacy=PrivateStatistics(contribution=30)),
        fb.feducb(epsilon=[1.0, 2.0, 3.0, 4.0]),
        fb.System(protocol=BY_COUNTS, privacy=PrivateStatistics(releases=2)),
        fb.System(protocol=CountTriggered(1.5, 1.0), structure=Alone(), privacy=PrivateStatistics(kind="tree")),
        fb.async_linucb(privacy=NoisyRewards(2.0)),
    ],
    ids=lambda system: f"{system.name} {system.privacy}"[:60],
)
def test_conformance_of_more_private_systems(system: fb.System) -> None:
    """The simulator, with and without its compiled exchange, and separate machines do the same."""
    repeats_itself(system)
    engines_agree(system)
    bytes_agree(system)


def test_downloads_reach_private_clients() -> None:
    """A coordinator that knows its members one by one has to be joined."""
    result = fb.simulate(fb.count_linucb(privacy=PrivateStatistics()), small(), 2_000)
    assert result.communication.downloads > 10


def test_the_cap_of_a_contribution_stops_uploads_and_not_learning() -> None:
    """In a simulation: two releases each, then silence; the ledger says who has stopped."""
    system = compose(BY_COUNTS, Everyone(), PrivateStatistics(releases=2, contribution=400))
    simulation = Simulation(system, small(rounds="all"), 400, 0)
    while not simulation.finished:
        simulation.advance()
    result = simulation.result()
    assert result.privacy is not None
    np.testing.assert_array_equal(result.privacy.releases, 2)
    np.testing.assert_array_equal(result.privacy.exhausted, np.arange(5))
    np.testing.assert_allclose(result.privacy.epsilon, 1.0, rtol=1e-6)
    assert "5 clients have reached their cap" in str(result.privacy)
    learner: Any = simulation.learner
    np.testing.assert_array_equal(learner.rows[:5, N_OWN], 400)
    assert result.communication.upload_curve[-1] == result.communication.upload_curve[100]
    late = np.diff(result.regret)[-100:].mean()
    assert late < 0.5 * np.diff(result.regret)[:16].mean(), "it goes on learning alone"


def test_where_one_interaction_is_the_unit_streams_begin_anew() -> None:
    """As often as the protocol speaks, at the same ε; coordinators know that noise adds up."""
    result = fb.simulate(compose(BY_COUNTS, Everyone(), PrivateStatistics(releases=2)), small(rounds="all"), 400)
    assert result.privacy is not None
    assert (result.privacy.releases > 2).all()
    assert result.privacy.exhausted.size == 0
    np.testing.assert_allclose(result.privacy.epsilon, 1.0, rtol=1e-6)
    part: Any = compose(BY_COUNTS, Everyone(), PrivateStatistics(releases=2)).told(fb.World(5, 3, 2_000)).privacy
    noise = part.pool_noise(together=True)
    assert noise.variance(0, 5) == pytest.approx(2 * noise.variance(0, 2) + noise.variance(0, 1))


def test_a_client_that_is_asked_in_every_round_meets_its_cap() -> None:
    """FedUCB, Remark 4: where all of it is the unit, it answers with nothing then, says so, and goes on learning."""
    world = fb.World(n_clients=2, dim=3, horizon=400, per_round=2)
    client = ClientMachine(0, compose(BY_COUNTS, Everyone(), PrivateStatistics(contribution=200)), world)
    assert client.stream is not None
    cap = client.stream.mechanism.n_max
    history = some_history(RecordLimits(1.0, 3, -1.0, 1.0, True), 200, np.random.default_rng(0))
    seen = observe_client(client, history[: cap + 3], ask=True)
    assert seen.n == (1,) * cap
    assert client.withheld
    (empty,) = client.receive(Collect(0, 10**6))
    assert isinstance(empty, Upload)
    assert (empty.sums.n, empty.known) == (0, 0.0)
    assert not empty.sums.V.any()
    assert not empty.sums.b.any()
    before = client.model.theta.copy()
    for x, y in history[cap + 3 :]:
        assert client.observe(client.select(x[None]).number, y) == []
    assert client.observed == 200
    assert not np.array_equal(client.model.theta, before)


def test_budgets_may_differ() -> None:
    """Each client spends its own; there must be one for each."""
    budgets = [0.5, 1.0, 2.0, 4.0, 8.0]
    result = fb.simulate(fb.feducb(epsilon=budgets), small(rounds="all"), 300)
    assert result.privacy is not None
    assert (result.privacy.epsilon <= np.array(budgets) * (1 + 1e-6)).all()
    assert (np.diff(result.privacy.epsilon) > 0).all()
    assert result.guarantee.epsilon == 8.0
    with pytest.raises(FedbanditError, match="the length of epsilon is 2, but must be 5, one a client"):
        fb.simulate(fb.feducb(epsilon=[1.0, 2.0]), small(), 100)
    with pytest.raises(FedbanditError, match=r"epsilon is 0\.0"):
        fb.feducb(epsilon=[1.0, 0.0])


def test_a_whole_contribution_as_the_unit() -> None:
    """Noise is that of the portions it leaves in, below k times one interaction's; nobody contributes more."""
    system = compose(CountTriggered(1.5, 1.5), Everyone(), PrivateStatistics(contribution=50))
    world = fb.World(5, 3, 2_000, per_round=5)
    told: Any = system.told(world).privacy
    one: Any = compose(CountTriggered(1.5, 1.5), Everyone(), PrivateStatistics()).told(world).privacy
    assert sum(told.portions) == 50
    assert 50 / 1.7 < told.mechanism_of(0).scale / one.mechanism_of(0).scale < 50 / 1.2
    assert epsilon_of(told.mechanism_of(0)) == pytest.approx(1.0, rel=1e-6)
    C, single = told.mechanism_of(0).factorisation.encoder(), one.mechanism_of(0)
    load = np.linalg.norm(C[:, : len(told.portions)] @ np.array(told.portions))
    assert told.mechanism_of(0).scale == pytest.approx(load * single.scale / single.factorisation.column_norm(2))
    simulation = Simulation(system, small(rounds="all"), 400, 0, engine="plain")
    while not simulation.finished:
        simulation.advance()
    learner: Any = simulation.learner
    assert all(30 < stream.contributed <= 50 for stream in learner.machines.streams().values())
    result = simulation.result()
    assert result.privacy is not None
    assert result.privacy.exhausted.size == 5
    assert result.guarantee.unit == "a client (50 interactions)"


def large_rewards() -> tuple[Any, int]:
    """A recorded environment, and how many of its rewards are beyond [−1, 1] whatever arm is pulled."""
    rng = np.random.default_rng(0)
    arms = rng.standard_normal((300, 3, 2)) / 3
    rewards = np.repeat(rng.uniform(-2, 2, (300, 1)), 3, axis=1)
    beyond = int((np.abs(rewards[:, 0]) > 1).sum())
    return fb.environments.recorded(np.arange(300) % 3, arms, rewards / 10, rewards, n_clients=3, bound=1.5), beyond


def test_a_bound_that_was_read_off_the_data_is_refused() -> None:
    """One long context would move the scale of all noise; where contexts are public it may."""
    env = fb.environments.recorded([0, 1], np.eye(2)[None].repeat(2, axis=0), np.zeros((2, 2)), np.zeros((2, 2)))
    with pytest.raises(FedbanditError, match=r"L = 1 on contexts was read off the data.*declare one with bound="):
        fb.simulate(fb.feducb(), env, 2)
    fb.simulate(fb.dp_linucb(), env, 2)
    fb.simulate(fb.feducb(epsilon=math.inf), env, 2)


def test_rewards_beyond_the_bound_are_clipped_and_counted() -> None:
    """In simulations and by machines; or refused with a sentence that names the reward."""
    env, beyond = large_rewards()
    result = fb.simulate(fb.feducb(), env, 300)
    assert result.privacy is not None
    assert result.privacy.clipped == beyond > 50
    assert result.summary()["privacy"]["clipped"] == beyond
    strict = compose(BY_COUNTS, Everyone(), PrivateStatistics(excess="refuse"))
    with pytest.raises(FedbanditError, match=r"A reward is .*guarantee holds for rewards in \[-1, 1\]"):
        fb.simulate(strict, env, 300)
    client = ClientMachine(0, fb.feducb(), fb.World(3, 2, 300))
    client.observe(client.select([[1.0, 0.0]]).number, 7.0)
    assert client.clipped == 1
    refusing = ClientMachine(0, strict, fb.World(3, 2, 300))
    choice = refusing.select([[1.0, 0.0]]).number
    with pytest.raises(FedbanditError, match="A reward is 7"):
        refusing.observe(choice, 7.0)
    refusing.observe(choice, 0.7)  # the loop goes on
    larger = compose(BY_COUNTS, Everyone(), PrivateStatistics(reward_bound=2.0))
    assert fb.simulate(larger, env, 300).summary()["privacy"]["clipped"] == 0


@pytest.mark.parametrize(
    "system",
    [
        fb.feducb(epsilon=[1.0, 2.0, 4.0, 8.0, 1.0]),
        fb.feducb(calibration="published"),
        fb.dp_linucb(delta=1e-5),
        fb.count_linucb(privacy=PrivateStatistics(releases=4, reward_bound=0.3)),
        fb.async_linucb(privacy=NoisyRewards(1.0, 0.0, 0.5)),
    ],
    ids=["feducb", "published", "dp_linucb", "capped and clipped", "noisy rewards"],
)
def test_checkpoints_keep_noise_and_books(system: fb.System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed at half time and resumed: the same arms, messages and ledger; and a saved result has them."""
    env = fb.environments.homogeneous(n_clients=5, dim=8, n_arms=40)  # blocks of 1,638 interactions
    whole = fb.simulate(system, env, 3_000, 2)
    path = tmp_path / "half.npz"

    class Killed(Exception):
        pass

    advance = Simulation.advance

    def advance_until_killed(self: Simulation) -> None:
        if path.exists():
            raise Killed
        advance(self)

    monkeypatch.setattr(Simulation, "advance", advance_until_killed)
    with pytest.raises(Killed):
        fb.simulate(system, env, 3_000, 2, checkpoint=path, checkpoint_every=1)
    monkeypatch.setattr(Simulation, "advance", advance)
    resumed = fb.simulate(system, env, 3_000, 2, checkpoint=path)
    np.testing.assert_array_equal(whole.arms, resumed.arms)
    np.testing.assert_array_equal(whole.communication.message_curve, resumed.communication.message_curve)
    loaded = fb.Result.load(whole.save(tmp_path / "result.npz"))
    assert whole.privacy is not None
    for other in (resumed.privacy, loaded.privacy):
        assert other is not None
        assert other.clipped == whole.privacy.clipped
        for key, values in whole.privacy.arrays().items():
            np.testing.assert_array_equal(values, other.arrays()[key])
    assert loaded.summary() == whole.summary()


def test_uploads_say_nothing_else() -> None:
    """When everybody uploads at once, no download depends on what a client knows: it is not said."""
    world = fb.World(n_clients=2, dim=3, horizon=400, per_round=2)
    client = ClientMachine(0, fb.feducb(), world)
    history = some_history(RecordLimits(1.0, 3, -1.0, 1.0, True), 100, np.random.default_rng(0))
    plain = observe_client(client, history).plain
    assert [fields[3] for fields in plain if fields[1] == "Upload"] == [0.0] * 4


def test_a_whole_contribution_needs_one_stream() -> None:
    """Each estimator of a peer has a stream, and a budget, of its own."""
    compose(Gossip("complete", 1, 1.5, 1), Everyone(), PrivateStatistics(contribution=10))
    with pytest.raises(fb.FedbanditError, match="3 estimators"):
        compose(Gossip("complete", 3, 1.5, 1), Everyone(), PrivateStatistics(contribution=10))
