"""Estimates from logs: near the truth as often as they say, for real systems, and silent where logs are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.environments import from_frame, recorded
from fedbandit.errors import FedbanditError
from fedbandit.evaluation import (
    Estimate,
    compare,
    difference,
    doubly_robust,
    evaluate_frozen,
    inverse_propensity,
    mean,
    replay,
    self_normalised,
)
from fedbandit.evaluation.estimators import effective_sample_size
from fedbandit.evaluation.picture import part_of
from fedbandit.evaluation.plausible import require_uniform
from fedbandit.types import Array
from tests.evaluation.synthetic_logs import FEATURES, THETA, make_world

LOGS = 400


def misses(covered: int, n: int, rate: float = 0.95) -> float:
    """How many standard deviations the share of covered truths lies from the stated rate."""
    return float((covered / n - rate) / np.sqrt(rate * (1 - rate) / n))


@pytest.mark.parametrize("skew", [0.0, 1.5])
def test_intervals_of_a_fixed_policy_cover_the_truth_as_often_as_they_say(skew: float) -> None:
    """The policy takes the arm of the largest f1 − f0; its value is known from the means of a huge sample."""
    direction = np.array([-1.0, 1.0, 0.0])
    huge = make_world(10_000, n=60_000, skew=0.0)
    best = (huge.log.X[huge.log.arms] @ direction).argmax(axis=1)
    truth = float(huge.means[np.arange(len(best)), best].mean())
    covered = dict.fromkeys(("inverse propensity", "self-normalised", "doubly robust"), 0)
    values: dict[str, list[float]] = {name: [] for name in covered}
    for seed in range(LOGS):
        log = make_world(seed, n=300, skew=skew).log
        rows = np.arange(log.n_decisions)
        arms = (log.X[log.arms] @ direction).argmax(axis=1)
        weights = np.where(arms == log.chosen, 1 / log.propensities, 0.0)
        model = 0.5 + log.X[log.arms] @ (0.5 * THETA)  # wrong on purpose: doubly robust estimates bear it
        found = (
            inverse_propensity(weights, log.rewards),
            self_normalised(weights, log.rewards),
            doubly_robust(weights, log.rewards, model[rows, log.chosen], model[rows, arms]),
        )
        for estimate in found:
            covered[estimate.name] += estimate.covers(truth)
            values[estimate.name].append(estimate.value)
    for name, count in covered.items():
        assert abs(misses(count, LOGS)) < 4, (name, count / LOGS)
        bias = np.mean(values[name]) - truth
        error = np.std(values[name]) / np.sqrt(LOGS)
        assert abs(bias) < 4 * error + (0.01 if name == "self-normalised" else 0), (name, bias, error)
    assert np.std(values["doubly robust"]) < np.std(values["inverse propensity"])


def test_wrong_propensities_are_noticed() -> None:
    """Taking a skewed log for a uniform one must not pass the test above: the test can fail."""
    world = make_world(0, n=60_000, skew=1.5)
    log, arms = world.log, (world.log.X[world.log.arms] @ [-1.0, 1.0, 0.0]).argmax(axis=1)
    truth = float(world.means[np.arange(len(arms)), arms].mean())
    right = np.where(arms == log.chosen, 1 / log.propensities, 0.0)
    wrong = np.where(arms == log.chosen, 4.0, 0.0)
    assert (
        abs(inverse_propensity(right, log.rewards).value - truth)
        < 4 * inverse_propensity(right, log.rewards).standard_error
    )
    assert (
        abs(inverse_propensity(wrong, log.rewards).value - truth)
        > 4 * inverse_propensity(wrong, log.rewards).standard_error
    )


def test_replay_of_a_learning_federation_covers_what_its_choices_were_worth() -> None:
    """Given the arms that were accepted, their rewards scatter around their means: the interval must cover those."""
    covered, n = 0, 40
    for seed in range(n):
        world = make_world(seed)
        found = replay(fb.async_linucb(), world.log, seed)
        accepted = found.arms == world.log.chosen
        assert found.used == accepted.sum()
        truth = float(world.means[np.arange(len(accepted)), found.arms][accepted].mean())
        covered += found.estimates[0].covers(truth)
        assert 0.12 < found.used / 400 < 0.4  # a quarter, give or take
    assert abs(misses(covered, n)) < 4, covered / n


def test_replay_earns_what_a_live_run_earns() -> None:
    """Mean over logs of the first 60 accepted rewards against simulations of the same length, on the same world."""
    replayed, live = [], []
    for seed in range(60):
        world = make_world(seed)
        found = replay(fb.linucb(alpha=0.3), world.log, seed)
        accepted = np.flatnonzero(found.arms == world.log.chosen)[:60]
        replayed.append(world.log.rewards[accepted].mean())
        other = make_world(1000 + seed, n=60)
        contexts, means = other.log.X[other.log.arms], other.means
        rewards = (np.random.default_rng(seed).random(means.shape) < means).astype(float)
        env = recorded(other.log.clients, contexts, means, rewards, n_clients=3, bound=1.1)
        live.append(fb.simulate(fb.linucb(alpha=0.3), env, 60, seed).reward[-1] / 60)
    error = np.sqrt((np.var(replayed) + np.var(live)) / 60)
    assert abs(np.mean(replayed) - np.mean(live)) < 4 * error
    assert np.mean(replayed) > 0.6  # it learned: random arms earn a half


def test_frozen_models_are_worth_what_is_estimated() -> None:
    covered, n = 0, 40
    for seed in range(n):
        world = make_world(seed, n=500, skew=1.0)
        found = evaluate_frozen(fb.async_linucb(), world.log, seed)
        rest = np.arange(250, 500)
        truth = float(world.means[rest, found.arms].mean())
        assert found.estimates[0].name == "doubly robust"
        covered += found.estimates[0].covers(truth)
        assert found.decisions == 250
        assert found.used == (found.arms == world.log.chosen[rest]).sum()
    # the truth is that of these contexts, not of all: intervals cover it at least as often as they say
    assert misses(covered, n) > -3, covered / n


@pytest.mark.parametrize("system", [fb.uniform, fb.linucb, fb.linucb_central, fb.sync_linucb, fb.async_linucb])
def test_every_kind_of_system_can_be_evaluated(system: Any) -> None:
    log = make_world(0).log
    first, again = replay(system(), log, 1), replay(system(), log, 1)
    assert first.estimates == again.estimates
    assert (first.arms == again.arms).all()
    frozen = evaluate_frozen(system(), log, 1)
    assert frozen.system == system().name
    assert frozen.effective_sample_size == pytest.approx(frozen.used)  # all weights are K or 0
    if system is fb.uniform:
        assert abs(first.estimates[0].value - first.logged.value) < 0.2
    else:
        assert frozen.estimates[1].value > frozen.logged.value  # all of them learn


BETWEEN_ROUNDS = {
    "clustered_linucb": fb.clustered_linucb(),
    "hetofedbandit_e": fb.hetofedbandit_e(test_threshold=0.5, threshold=1.0),
    "hetofedbandit_async": fb.hetofedbandit_async(),
    "async_linucb": fb.async_linucb(),
    "feducb": fb.feducb(epsilon=float("inf")),
}


@pytest.mark.parametrize("name", BETWEEN_ROUNDS)
def test_replay_of_a_systems_own_log_is_the_simulation(name: str) -> None:
    """A system that is put its own decisions again takes them again, and says to its coordinator what it said."""
    system, n = BETWEEN_ROUNDS[name], 300
    rng = np.random.default_rng(1)
    clients, contexts = rng.integers(0, 3, n), rng.uniform(-0.5, 0.5, (n, 4, 3))  # of different norm: no ties
    means = 0.5 + contexts @ THETA
    rewards = (rng.random((n, 4)) < means).astype(float)
    env = recorded(clients, contexts, means, rewards, n_clients=3, noise=0.5)
    live = fb.simulate(system, env, n, 0)
    frame = {
        "decision": np.repeat(np.arange(n), 4),
        "user": np.repeat(clients, 4),
        **{feature: contexts[:, :, k].ravel() for k, feature in enumerate(FEATURES)},
        "chosen": (np.arange(4) == live.arms[:, None]).ravel(),
        "click": rewards.ravel(),
    }
    found = replay(system, from_frame(frame, "user", FEATURES, "click", logged="uniform", noise=0.5))
    assert found.used == n
    assert found.estimates[0].value == pytest.approx(live.reward[-1] / n)
    assert live.communication.uploads > 0
    assert found.uploads == live.communication.uploads
    assert found.downloads == live.communication.downloads


@pytest.mark.parametrize("system", [fb.fclub_dc, fb.club, fb.dyclu, fb.colin])
def test_models_in_one_place_are_not_replayed_as_something_else(system: Any) -> None:
    sentence = f"{system().name} cannot be evaluated on a log: it has models in one place"
    assert sentence in str(_error(lambda: replay(system(), make_world(0).log)))
    assert sentence in str(_error(lambda: evaluate_frozen(system(), make_world(0).log)))
    gossip = fb.feducb(epsilon=float("inf"), topology="ring")
    assert "it has peers" in str(_error(lambda: replay(gossip, make_world(0).log)))


def test_one_model_for_all_learns_from_every_client() -> None:
    """Replay of the centralised learner equals replay of LinUCB on the log with all clients called one."""
    world = make_world(3)
    one = from_frame(
        {**world.frame, "user": np.zeros_like(world.frame["user"])}, "user", FEATURES, "click", propensity="p"
    )
    central, single = replay(fb.linucb_central(), world.log), replay(fb.linucb(), one)
    assert (central.arms == single.arms).all()


def test_each_action_has_a_row_with_the_situation() -> None:
    frame = {"user": [0, 1, 0], "age": [0.1, 0.2, 0.3], "action": ["b", "a", "c"], "click": [1, 0, 1]}
    log = from_frame(frame, "user", "age", "click", logged="uniform")
    assert (log.n_actions, log.dim, log.n_decisions) == (3, 2, 3)
    assert log.chosen.tolist() == [1, 0, 2]
    assert log.action_names == ("a", "b", "c")
    assert log.offered(1).tolist() == [[0, 0.2, 1], [1, 0.2, 1], [2, 0.2, 1]]
    np.testing.assert_array_equal(
        log.contexts(np.array([0, 1]), np.array([0, 2])), [log.offered(0)[0], log.offered(1)[2]]
    )


def test_categories_are_encoded() -> None:
    colours = ["red", "blue", "red", "green"]
    frame = {"user": [0, 1, 0, 1], "colour": colours, "action": ["b", "a", "c", "a"], "click": [1, 0, 1, 0]}
    log = from_frame(frame, "user", ["colour"], "click", logged="uniform")
    assert log.X.tolist() == [[0, 0, 1, 1], [1, 0, 0, 1], [0, 0, 1, 1], [0, 1, 0, 1]]  # blue, green, red, constant
    many = {**frame, "colour": [f"c{k}" for k in range(100)], "user": [0] * 100, "click": [0] * 100}
    many["action"] = ["a", "b"] * 50
    hashed = from_frame(many, "user", ["colour"], "click", logged="uniform")
    assert hashed.dim == 65
    assert (np.abs(hashed.X).sum(axis=1) == 2).all()


def test_the_noise_of_a_log_is_estimated_or_declared() -> None:
    rng = np.random.default_rng(0)
    n = 2000
    age, action = rng.random(n), rng.integers(0, 2, n)
    click = (rng.random(n) < 0.01).astype(float)
    frame = {"user": [0] * n, "age": age, "action": action, "click": click}
    log = from_frame(frame, "user", ["age"], "click", logged="uniform")
    assert log.noise == pytest.approx(click.std(), rel=0.05)  # not half the range, 0.5
    assert from_frame(frame, "user", ["age"], "click", logged="uniform", noise=0.3).noise == 0.3
    with pytest.raises(FedbanditError, match="noise is -1"):
        from_frame(frame, "user", ["age"], "click", noise=-1.0)


def test_actions_are_learned_and_evaluated() -> None:
    rng = np.random.default_rng(0)
    n = 3000
    age, action = rng.random(n), rng.integers(0, 3, n)
    means = np.stack([age, 1 - age, np.full(n, 0.5)], axis=1)
    click = (rng.random(n) < means[np.arange(n), action]).astype(float)
    frame = {"user": rng.integers(0, 4, n), "age": age, "action": action, "click": click}
    log = from_frame(frame, "user", ["age"], "click", logged="uniform")
    found = evaluate_frozen(fb.async_linucb(alpha=0.3), log)
    assert all(estimate.covers(0.75) or abs(estimate.value - 0.72) < 0.06 for estimate in found.estimates)
    assert found.estimates[0].interval[0] > found.logged.interval[1]


def test_the_order_of_arms_does_not_tell_which_was_chosen() -> None:
    world = make_world(0, n=2000)
    order = np.argsort(~world.frame["chosen"].reshape(2000, 4), axis=1, kind="stable")
    first = {
        name: np.take_along_axis(column.reshape(2000, 4), order, axis=1).ravel() for name, column in world.frame.items()
    }
    log = from_frame(first, "user", FEATURES, "click", propensity="p")
    assert np.bincount(log.chosen, minlength=4).max() < 600
    np.testing.assert_array_equal(log.rewards, world.log.rewards)
    chosen = log.contexts(np.arange(2000), log.chosen)
    np.testing.assert_array_equal(chosen, world.log.contexts(np.arange(2000), world.log.chosen))


def test_pandas_frames_and_arrow_tables_are_read() -> None:
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    world = make_world(0, n=50)
    for frame in (pd.DataFrame(world.frame), pa.table(world.frame)):
        log = from_frame(frame, "user", list(FEATURES), "click", propensity="p")
        np.testing.assert_array_equal(log.X, world.log.X)
        np.testing.assert_array_equal(log.rewards, world.log.rewards)


def test_doubts_are_said() -> None:
    world = make_world(0, n=2000, skew=6.0)
    found = evaluate_frozen(fb.linucb(), world.log)
    assert any("smallest propensity" in warning for warning in found.warnings)
    few = replay(fb.linucb(), make_world(0, n=60).log)
    assert "Only 17 decisions were accepted" in few.warnings[0]
    assert replay(fb.linucb(), make_world(0).log).warnings == ()
    one = evaluate_frozen(fb.linucb(), make_world(0, n=40).log)
    assert any("effective sample size" in warning for warning in one.warnings)
    assert any("of the weight" in warning for warning in one.warnings)


def refused(**change: Any) -> str:
    """The sentence for a log that was changed so."""
    frame: dict[str, Any] = {**make_world(0, n=20).frame, **change.pop("columns", {})}
    for name in change.pop("without", ()):
        del frame[name]
    keywords: dict[str, Any] = {"client": "user", "features": FEATURES, "reward": "click", "propensity": "p", **change}
    with pytest.raises(FedbanditError) as error:
        evaluate_frozen(fb.linucb(), from_frame(frame, **keywords))
    return str(error.value)


def spoilt(name: str, row: int, value: Any) -> dict[str, Array]:
    column = np.array(make_world(0, n=20).frame[name])
    column[row] = value
    return {name: column}


def test_logs_that_say_too_little_are_refused() -> None:
    chosen = int(np.flatnonzero(make_world(0, n=20).frame["chosen"])[2])
    assert "has no propensities" in refused(propensity=None)
    assert "arms that were not chosen" in refused(without=("decision",))
    assert "arms that were not chosen" in refused(without=("chosen",))
    assert "not both" in refused(action="user", decision="decision")
    assert "There is no column 'clck'; did you mean 'click'?" in refused(reward="clck")
    assert f"Row {chosen + 1}: click is nan" in refused(columns=spoilt("click", chosen, np.nan))
    assert f"Row {chosen + 1}: the propensity is 0, but must be in (0, 1]." in refused(columns=spoilt("p", chosen, 0.0))
    assert f"Row {chosen + 1}: the propensity is 1.5" in refused(columns=spoilt("p", chosen, 1.5))
    assert f"Row {chosen + 1}: p is nan" in refused(columns=spoilt("p", chosen, np.nan))
    assert "said to be uniform, but the propensity" in refused(columns=spoilt("p", chosen, 0.1), logged="uniform")
    assert "Row 9: decision 2 has 0 chosen arms" in refused(columns=spoilt("chosen", chosen, False))
    assert "belongs to two clients" in refused(columns=spoilt("user", 5, 77))
    alone = np.r_[np.arange(76) // 4, 19, 19, 19, 99]
    assert "Row 80: decision 99 has one arm" in refused(
        columns={"decision": alone, "chosen": np.isin(np.arange(80), [*range(0, 80, 4), 79])}
    )
    assert "Row 4: f1 is inf" in refused(columns=spoilt("f1", 3, np.inf))
    assert "holds one action only" in refused(action="same", columns={"same": np.zeros(80)}, without=("decision",))
    assert "train is 1.5" in str(_error(lambda: evaluate_frozen(fb.linucb(), make_world(0).log, train=1.5)))
    assert "leaves decisions on both sides" in str(
        _error(lambda: evaluate_frozen(fb.linucb(), make_world(0, n=20).log, train=0.01))
    )


def _error(call: Any) -> FedbanditError:
    with pytest.raises(FedbanditError) as error:
        call()
    return error.value


def test_replay_needs_a_uniform_log() -> None:
    skewed = make_world(0, n=2000, skew=2.0)
    assert "logged uniformly" in str(_error(lambda: replay(fb.linucb(), skewed.log)))
    actions = {"user": [0] * 600, "x": [1.0] * 600, "action": [0] * 400 + [1] * 200, "click": [1, 0] * 300}
    lie = from_frame(actions, "user", ["x"], "click", logged="uniform")
    sentence = "arm 0 was chosen 400 times where 300 are to be expected"
    assert sentence in str(_error(lambda: replay(fb.linucb(), lie)))
    assert sentence in str(_error(lambda: evaluate_frozen(fb.linucb(), lie)))


def by_device(lie: bool, seed: int = 0, n: int = 2000) -> dict[str, Any]:
    """Two pages, each shown half of the time; if that is a lie, one to nine of ten phones, the other to tablets."""
    rng = np.random.default_rng(seed)
    device = rng.choice(["phone", "tablet"], n)
    page = (
        np.where(rng.random(n) < np.where(device == "phone", 0.9, 0.1), "a", "b") if lie else rng.choice(["a", "b"], n)
    )
    age, user = rng.random(n), rng.integers(0, 5, n)
    return {"user": user, "device": device, "age": age, "action": page, "click": rng.random(n) < 0.4}


def test_a_log_that_is_uniform_on_the_whole_only_is_refused() -> None:
    def uniform(frame: dict[str, Any], *features: str, **names: Any) -> Any:
        return from_frame(frame, names.pop("client", "user"), features, "click", logged="uniform", **names)

    lie = by_device(lie=True)
    assert "said to be uniform, but where device=" in str(_error(lambda: replay(fb.uniform(), uniform(lie, "device"))))
    sentence = "but where the client is "
    assert sentence in str(_error(lambda: evaluate_frozen(fb.uniform(), uniform(lie, "age", client="device"))))
    assert "the segment is" in str(_error(lambda: replay(fb.uniform(), uniform(lie, "age", segment="device"))))
    older = {**lie, "age": lie["age"] + (lie["device"] == "phone")}
    assert "age is in its quarter" in str(_error(lambda: replay(fb.uniform(), uniform(older, "age"))))
    for seed in range(20):
        require_uniform(uniform(by_device(lie=False, seed=seed), "device", "age", segment="device"))


def test_propensities_that_cannot_be_right_are_doubted() -> None:
    for system in (fb.uniform(), fb.linucb()):
        right, wrong = ({**by_device(lie=False), "p": np.full(2000, p)} for p in (0.5, 0.95))
        assert evaluate_frozen(system, from_frame(right, "user", ["age"], "click", propensity="p")).warnings == ()
        found = evaluate_frozen(system, from_frame(wrong, "user", ["age"], "click", propensity="p"))
        assert any("The mean weight is" in warning for warning in found.warnings)
    for seed in range(10):
        found = evaluate_frozen(fb.linucb(), make_world(seed, n=600, skew=1.0).log)
        assert not any("mean weight" in warning for warning in found.warnings)


def test_random_arms_stay_the_yardstick_beside_greedy_models() -> None:
    log = make_world(0).log
    greedy = evaluate_frozen(fb.uniform(), log, greedy=True)
    assert greedy.estimates == evaluate_frozen(fb.uniform(), log).estimates
    assert "exploring as the policy does" in greedy.question


def test_a_log_is_never_simulated() -> None:
    log: Any = make_world(0).log
    assert "nothing can be simulated on it" in str(_error(lambda: fb.simulate(fb.linucb(), log, 10)))
    something: Any = 3
    assert "must come from" in str(_error(lambda: replay(fb.linucb(), something)))
    system: Any = fb.linucb
    assert "did you forget to call the preset, as fb.linucb()?" in str(_error(lambda: replay(system, log)))


def test_estimators_by_hand() -> None:
    weights, rewards = np.array([2.0, 0.0, 2.0, 0.0]), np.array([1.0, 1.0, 0.0, 1.0])
    assert inverse_propensity(weights, rewards) == Estimate("inverse propensity", 0.5, 0.5)  # 2 and three zeros
    assert self_normalised(weights, rewards) == Estimate("self-normalised", 0.5, np.sqrt(2) / 4)
    assert effective_sample_size(weights) == 2
    assert effective_sample_size(np.zeros(3)) == 0
    exact = doubly_robust(weights, rewards, rewards, np.full(4, 0.75))
    assert (exact.value, exact.standard_error) == (0.75, 0)
    assert Estimate("x", 1.0, 0.5).interval == pytest.approx((0.02, 1.98), abs=1e-4)
    assert "never takes the arm" in str(_error(lambda: self_normalised(np.zeros(2), np.zeros(2))))
    assert "at least 2 are needed" in str(_error(lambda: mean("reward", np.ones(1))))


@pytest.mark.parametrize("system", [fb.uniform(), fb.linucb(policy="igw")])
def test_chance_is_weighed(system: fb.System) -> None:
    """A policy with probabilities of its own: every decision is of use, with the weight π(a)/p."""
    world = make_world(5, n=600, skew=1.0)
    found = evaluate_frozen(system, world.log, greedy=False)
    assert found.used == 300
    if system.name == "uniform":
        np.testing.assert_allclose(found.weights, 0.25 / world.log.propensities[300:])
        assert found.estimates[0].covers(float(world.means[300:].mean()))
    if system.name == "uniform":
        return
    greedy = evaluate_frozen(system, world.log, greedy=True)
    assert "taking the largest estimated mean" in greedy.question
    assert set(greedy.weights[greedy.weights > 0]) == set((1 / world.log.propensities[300:])[greedy.weights > 0])


def rare_log(rng: np.random.Generator, n: int, rate: float) -> tuple[Array, Array, Array, float]:
    """Weights of a policy that takes one of three arms, on a log with known propensities; clicks; r̂; the truth."""
    p = rng.dirichlet([4.0, 2.0, 2.0], n)
    logged = (p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    worth = rate * np.array([0.5, 1.5, 1.0])
    rewards = (rng.random(n) < worth[logged]).astype(float)
    return np.where(logged == 1, 1 / p[np.arange(n), logged], 0.0), rewards, worth[logged], 1.5 * rate


@pytest.mark.parametrize(("rate", "n"), [(0.004, 1000), (0.004, 10_000), (0.05, 600), (0.3, 600)])
def test_intervals_of_click_rates_cover_the_truth(rate: float, n: int) -> None:
    rng, logs = np.random.default_rng(int(1000 * rate) + n), 200
    covered = {"inverse propensity": 0, "self-normalised": 0, "doubly robust": 0, "mean": 0, "difference": 0}
    for _ in range(logs):
        weights, rewards, predicted, truth = rare_log(rng, n, rate)
        found = (
            inverse_propensity(weights, rewards),
            self_normalised(weights, rewards),
            doubly_robust(weights, rewards, 0.8 * predicted, np.full(n, 0.8 * truth)),
        )
        for estimate in found:
            covered[estimate.name] += estimate.covers(truth)
        clicks = (rng.random(160) < rate).astype(float)
        covered["mean"] += mean("mean", clicks).covers(rate)
        everywhere = inverse_propensity(np.ones(n), rewards)
        expected = rate * (0.5 * 0.5 + 1.5 * 0.25 + 1.0 * 0.25)
        covered["difference"] += difference("difference", found[0], everywhere).covers(truth - expected)
    assert min(covered.values()) >= 0.9 * logs, covered


@pytest.mark.parametrize(("rate", "n", "agree"), [(0.004, 2000, 0.95), (0.05, 600, 0.9), (0.05, 3000, 0.5)])
def test_rare_rewards_are_paired(rate: float, n: int, agree: float) -> None:
    """Two policies that mostly agree: the difference is known better than as if the logs were two, and covered."""
    rng, logs, covered, lengths = np.random.default_rng(n), 60, dict.fromkeys(("ips", "snips", "dr"), 0), []
    worth = rate * np.array([0.5, 1.5, 1.0])
    for _ in range(logs):
        p = 0.9 * rng.dirichlet([4.0, 2.0, 2.0], n) + 0.1 / 3
        logged = (p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
        rewards = (rng.random(n) < worth[logged]).astype(float)
        others = np.where(rng.random(n) < agree, 1, 0)
        one, other = (np.where(logged == arms, 1 / p[np.arange(n), logged], 0.0) for arms in (1, others))
        of_logged = 0.8 * worth[logged]
        found = {
            "ips": (inverse_propensity(one, rewards), inverse_propensity(other, rewards)),
            "snips": (self_normalised(one, rewards), self_normalised(other, rewards)),
            "dr": (
                doubly_robust(one, rewards, of_logged, np.full(n, 0.8 * worth[1])),
                doubly_robust(other, rewards, of_logged, 0.8 * worth[others]),
            ),
        }
        for name, pair in found.items():
            gap = difference(name, *pair)
            covered[name] += gap.covers((1 - agree) * (worth[1] - worth[0]))
            assert difference(name, pair[0], pair[0]).interval == (0, 0)
        apart = np.hypot(*(np.ptp(estimate.interval) for estimate in found["ips"]))
        lengths.append(np.ptp(difference("ips", *found["ips"]).interval) / apart)
    assert min(covered.values()) >= 0.9 * logs, covered
    assert np.mean(lengths) < (0.6 if agree >= 0.9 else 0.9)


def test_a_picture_has_the_intervals_that_are_told() -> None:
    rng, n = np.random.default_rng(0), 4000
    frame = {"user": rng.integers(0, 8, n), "age": rng.random(n), "action": rng.integers(0, 3, n)}
    log = from_frame({**frame, "click": rng.random(n) < 0.01}, "user", ["age"], "click", logged="uniform")
    for found in (evaluate_frozen(fb.uniform(), log), replay(fb.linucb(), log)):
        everything = part_of(found, np.ones(found.decisions, dtype=bool))
        assert everything == found.estimates[0]
        most = part_of(found, np.arange(found.decisions) < found.decisions - 1)
        assert most is not None
        assert most.interval == pytest.approx(found.estimates[0].interval, rel=0.1)
        some = part_of(found, log.clients[found.first :] == 3)
        assert some is not None
        assert some.interval[1] > 0
        assert some.interval[0] > -0.005, "a rate of clicks is not below 0, but for the regression's part"
    assert part_of(replay(fb.linucb(), log), np.arange(n) < 1) is None


def test_no_click_is_no_certainty() -> None:
    nothing = mean("clicks", np.zeros(160))
    assert nothing.interval[1] > 0.01
    for estimate in (inverse_propensity(np.ones(160), np.zeros(160)), self_normalised(np.ones(160), np.zeros(160))):
        assert estimate.value == 0
        assert estimate.interval[1] == pytest.approx(3.689 / 160, rel=1e-3), "no event of n: the exact Poisson bound"


def test_systems_are_compared_in_pairs() -> None:
    log = make_world(2, n=3000).log
    found = compare([fb.uniform(), fb.linucb(alpha=0.3), fb.async_linucb(alpha=0.3)], log, method="frozen")
    assert found.baseline == "uniform"
    assert found.names[-1] == "uniform"
    assert found.differences[-1] is None
    gap = found.differences[0]
    assert gap is not None
    best, base = found.evaluations[0].estimates[0], found.evaluations[-1].estimates[0]
    assert gap.value == pytest.approx(best.value - base.value)
    assert gap.interval[0] > 0
    for one, own in zip(found.evaluations, found.from_logged, strict=True):
        assert own.value == pytest.approx(one.estimates[0].value - one.logged.value)
        assert own.standard_error == pytest.approx(
            np.std(one.estimates[0].terms - one.logged.terms, ddof=1) / np.sqrt(one.decisions)
        )
    assert found.from_logged[0].interval[0] > 0, "better than arms at random, which wrote the log"
    assert found.from_logged[-1].covers(0.0), "uniform is what wrote it"
    assert "uniform − the log's own policy: " in str(found)
    assert found.as_json()["systems"][0]["difference_from_logged"]["low"] > 0
    twice = compare([fb.linucb(), fb.linucb()], log)
    same = next(gap for gap in twice.differences if gap is not None)
    assert (same.value, same.interval) == (0, (0, 0)), "the same choices on the same decisions"
    assert twice.names == ("linucb", "linucb (2)")
    named = compare({"timid": fb.linucb(alpha=0.3), "bold": fb.linucb(alpha=3.0)}, log)
    assert (set(named.names), named.baseline) == ({"timid", "bold"}, "timid")
    assert "no system" in str(_error(lambda: compare([], log)))
    assert "method='frozen'" in str(_error(lambda: compare([fb.linucb()], log, method="replay", greedy=True)))
