"""One system on one environment with one seed: the same as `simulate`, alone or beside others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.engine.simulation import Simulation
from fedbandit.environments.block import Block
from fedbandit.environments.synthetic import SyntheticStream
from fedbandit.errors import FedbanditError
from fedbandit.studies.trials import (
    WORTH_LOADING,
    Label,
    Point,
    Refusal,
    Run,
    Trial,
    accepted,
    made_environment,
    run_together,
)

WORLD = fb.environments.homogeneous(n_clients=4, dim=3, n_arms=5)

RECORDED = fb.environments.recorded(np.zeros(60, int), np.ones((60, 2, 2)) / 2, np.ones((60, 2)), np.ones((60, 2)))


def run_trial(trial: Trial) -> Run:
    (run,) = run_together([trial])
    return accepted(run)


def without_seconds(run: Run | Refusal) -> dict[str, object]:
    assert isinstance(run, Run)
    return {key: value for key, value in run.report.items() if key != "seconds"}


def test_a_trial_equals_simulate() -> None:
    result = fb.simulate(fb.async_linucb(gamma_upload=2.0), WORLD, horizon=300, seed=1, engine="plain")
    run = run_trial(Trial(Point("mine", partial(fb.async_linucb, gamma_upload=2.0), WORLD, value=2), 300, 1))
    assert run.label == Label("mine", 2)
    assert run.n_clients == 4
    assert run.report["regret"] == result.regret[-1]
    assert len(run.curve.round) == 200
    np.testing.assert_array_equal(run.curve.regret, result.regret[run.curve.round - 1])
    np.testing.assert_array_equal(run.curve.downloads, result.communication.download_curve[run.curve.round - 1])
    assert run.curve.round[-1] == 300
    by_hand = run_trial(Trial(Point("mine", fb.async_linucb(gamma_upload=2.0), WORLD), 300, 1))
    assert without_seconds(by_hand) == without_seconds(run)


def test_trials_on_the_same_fresh_contexts_draw_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    real = SyntheticStream._draw_chunk

    def counting(stream: SyntheticStream, c: int) -> Block:
        drawn.append(c)
        return real(stream, c)

    env = fb.environments.homogeneous(n_clients=4, dim=20, n_arms=200)  # chunks of 131 interactions
    points = [Point(f.__name__, f, env) for f in (fb.linucb, fb.async_linucb, fb.uniform, fb.sync_linucb)]
    trials = [Trial(point, 300, 1) for point in points]
    alone = [run_trial(trial) for trial in trials]
    monkeypatch.setattr(SyntheticStream, "_draw_chunk", counting)
    together = run_together([*trials, Trial(replace(points[0], extra="nonsense"), 300, 1)])
    assert sorted(drawn) == [0, 1, 2]
    assert list(map(without_seconds, together[:4])) == list(map(without_seconds, alone))
    assert isinstance(together[4], Refusal), "one that is refused must not end the others"


def test_a_resumed_trial_of_a_bundle_is_left_behind_and_catches_up(tmp_path: Path) -> None:
    env = fb.environments.homogeneous(n_clients=2, dim=20, n_arms=200)
    trials = [Trial(Point(f.__name__, f, env), 400, 0) for f in (fb.linucb, fb.async_linucb)]
    expected = [without_seconds(run_trial(trial)) for trial in trials]
    half = Simulation(fb.linucb(), env, 400, 0, engine="plain")
    half.keep(tmp_path / "half", every=1)
    while not half.finished:  # at last it is resumed at its end
        half.advance()
        resumed = run_together([replace(trials[0], checkpoint=str(tmp_path / "half")), trials[1]])
        assert list(map(without_seconds, resumed)) == expected


def test_the_engine_depends_on_the_trial_alone() -> None:
    def engine(preset: Callable[[], fb.System], horizon: int, extra: str = "") -> object:
        point = Point("a", preset, WORLD, extra=extra)
        return run_trial(Trial(point, horizon, 0)).report["engine"]

    assert engine(fb.linucb, WORTH_LOADING) == "plain"
    assert engine(fb.linucb, WORTH_LOADING + 1) == "fast"
    assert engine(fb.linucb, WORTH_LOADING + 1, "estimates") == "plain"  # its models must be seen


def test_an_environment_is_made_once_for_many_trials() -> None:
    made: list[int] = []

    def maker(n: int, name: object = None) -> fb.environments.Environment:  # noqa: ARG001
        made.append(n)
        return fb.environments.homogeneous(n_clients=n, dim=3, n_arms=5)

    assert made_environment(partial(maker, 4)) is made_environment(partial(maker, 4))
    assert made_environment(partial(maker, 5)).n_clients == 5
    assert made == [4, 5]
    assert made_environment(partial(maker, 6, name=[1])).n_clients == 6  # what cannot be hashed is made each time
    assert made_environment(WORLD) is WORLD


@pytest.mark.parametrize(
    ("point", "sentence"),
    [
        (Point("a", lambda: 3, WORLD), "The system of a is 3, which is not a System."),  # type: ignore[arg-type, return-value]
        (Point("a", fb.linucb, WORLD, extra="activity"), "need a data set of likes, which homogeneous is not"),
        (Point("a", fb.linucb, RECORDED, extra="estimates"), "recorded has no parameters"),
    ],
)
def test_a_point_that_makes_no_sense_is_refused_with_its_sentence(point: Point, sentence: str) -> None:
    with pytest.raises(FedbanditError, match=sentence):
        run_trial(Trial(point, 50, 0))


def test_messages_of_clients_seen_so_far_are_those_that_the_code_of_async_linucb_counts() -> None:
    """A synchronisation is one of everybody who has acted; asynchronous messages are counted as they are."""
    env = fb.environments.homogeneous(n_clients=30, dim=3, n_arms=4, arrivals="skewed")
    sync = run_trial(Trial(Point("", partial(fb.sync_linucb, threshold=0.5), env, extra="seen"), 300, 1))
    result = fb.simulate(fb.sync_linucb(threshold=0.5), env, 300, 1)
    acting, expected = env.open(1).block(0, 300).clients.tolist(), 0
    for t, uploads in enumerate(result.communication.per_round_uploads.tolist()):
        assert uploads in (0, 30)
        expected += 2 * len(set(acting[: t + 1])) if uploads else 0
    assert 0 < sync.extra["messages_seen"] == expected < sync.report["uploads"] + sync.report["downloads"]
    free = run_trial(Trial(Point("", fb.async_linucb, env, extra="seen"), 300, 1))
    assert free.extra["messages_seen"] == free.report["uploads"] + free.report["downloads"]
