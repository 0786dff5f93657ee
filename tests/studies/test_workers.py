"""Many trials: the same runs in every process, and in as few bundles as leave none idle."""

from __future__ import annotations

import os
import sys
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.errors import FedbanditError
from fedbandit.studies.specs import EnvironmentSpec, SystemSpec
from fedbandit.studies.trials import Point, Run, Trial
from fedbandit.studies.workers import Workers, bundled, run_trials
from fedbandit.user_code import module_at
from tests.studies.test_trials import WORLD, without_seconds

MINE = """
from dataclasses import dataclass

import fedbandit as fb


@dataclass(frozen=True)
class Mine(fb.environments.Homogeneous):
    pass


def mine(ridge=1.0):
    return fb.linucb(ridge=ridge)
"""


def test_processes_give_the_same_runs_in_the_same_order(tmp_path: Path) -> None:
    """Systems by text and by name, and an environment of a user's file, which each process has to load."""
    mine = tmp_path / "mine.py"
    mine.write_text(MINE)
    module = module_at(mine)
    env = EnvironmentSpec.parse("homogeneous:n_clients=4,dim=3,n_arms=5")
    points = [
        Point("text", SystemSpec.parse(f"{mine}:mine:ridge=0.1"), env),
        Point("name", fb.async_linucb, env),
        Point("mine", module.mine, module.Mine(n_clients=4, dim=3, n_arms=5)),
    ]
    trials = [Trial(point, 300, seed) for seed in (0, 1) for point in points]
    before = dict(os.environ)
    seen: list[Run] = []
    together = run_trials(trials, Workers(jobs=2), seen.append)
    alone = run_trials(trials, Workers(jobs=1))
    assert [run.label for run in together] == [trial.point.label for trial in trials]
    assert [without_seconds(run) for run in together] == [without_seconds(run) for run in alone]
    assert sorted(map(id, seen)) == sorted(map(id, together))
    assert dict(os.environ) == before


def test_what_has_no_name_cannot_be_sent_to_a_process() -> None:
    trials = [Trial(Point("a", lambda: fb.linucb(), WORLD), 50, seed) for seed in (0, 1)]
    with pytest.raises(FedbanditError, match=r"a cannot be sent to another process .*--jobs 1"):
        run_trials(trials, Workers(jobs=2))
    assert len(run_trials(trials, Workers(jobs=1))) == 2


def test_bundles_leave_no_process_idle_and_no_trial_out() -> None:
    pooled = fb.environments.homogeneous(n_clients=4, dim=3, n_arms=5, pool=10)
    same = [fb.environments.homogeneous(n_clients=4, dim=3, n_arms=5) for _ in "abc"]
    fresh = [Trial(Point("", fb.linucb, env), horizon, seed) for seed in (0, 1) for horizon in (50, 60) for env in same]
    drawn_from_a_pool = [Trial(Point("", fb.linucb, pooled), 50, 0) for _ in "ab"]
    bundles = bundled([*fresh, *drawn_from_a_pool], 2)
    assert bundles == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11], [12], [13]]
    assert sorted(map(len, bundled(fresh[:6], 4))) == [1, 1, 2, 2]
    assert sorted(chain.from_iterable(bundled(fresh, 40))) == list(range(12))
    assert bundled([], 4) == []


def test_environments_that_are_made_are_bundled_by_how_they_are_made(tmp_path: Path) -> None:
    """Not by the environments: of many, the first are gone when the last are made, and then ids are used again."""
    names = [str(tmp_path / f"{k}.npy") for k in range(12)]
    for k, name in enumerate(names):
        np.save(name, np.full((4, 3), 0.01 * k))
    trials = [
        Trial(Point("", fb.linucb, partial(fb.environments.fclub, theta=name, n_servers=1)), 50, 0)
        for _ in "ab"
        for name in names
    ]
    assert bundled(trials, 1) == [[k, 12 + k] for k in range(12)]


def test_a_bad_trial_ends_the_others_with_its_sentence() -> None:
    trials = [Trial(Point(str(seed), fb.linucb, WORLD), 0 if seed == 1 else 50, seed) for seed in range(6)]
    with pytest.raises(FedbanditError, match="horizon is 0"):
        run_trials(trials, Workers(jobs=2))


def test_ray_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(FedbanditError, match=r"fedbandit\[ray\]"):
        Workers("ray")
