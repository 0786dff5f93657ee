"""Compiling is announced, counted apart, cached where that is possible, and not asked of short runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fedbandit as fb
from fedbandit.engine.fast import warmth
from fedbandit.engine.fast.warmth import Compiling
from fedbandit.engine.simulation import SHORT, which_engine


def test_it_is_said_once_and_counted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDBANDIT_QUIET", raising=False)
    compiling = Compiling()
    for _ in range(3):
        compiling.begin(which_engine)
        compiling.end()
    said = capsys.readouterr()
    assert said.err.startswith("fedbandit: compiling a loop of the fast engine, once for this version: about a minute")
    assert said.err.count("\n") == 1
    assert said.out == ""
    assert compiling.kernels == 3
    assert compiling.seconds > 0


def test_whoever_reads_a_log_is_told_that_it_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FEDBANDIT_QUIET", raising=False)
    monkeypatch.setattr(warmth, "PATIENCE", 0.0)
    compiling = Compiling()
    for _ in range(3):
        compiling.begin(which_engine)
    assert capsys.readouterr().err.splitlines()[1:] == [
        f"fedbandit: still compiling, {k} kernels so far." for k in (2, 3)
    ]


def test_nothing_is_said_where_nobody_wants_to_hear(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDBANDIT_QUIET", "1")
    Compiling().begin(which_engine)
    assert capsys.readouterr().err == ""


def test_a_cold_cache_sends_short_runs_to_the_plain_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    for horizon, expected in ((SHORT, "plain"), (SHORT + 1, "fast")):
        world = fb.World(n_clients=3, dim=2, horizon=horizon)
        assert which_engine("auto", fb.async_linucb().told(world), world) == expected
    folder = tmp_path / "some" / f"fedbandit-{warmth.source_stamp()[:16]}"
    folder.mkdir(parents=True)
    (folder / "loop.run-31.py311.nbi").touch()
    world = fb.World(n_clients=3, dim=2, horizon=100)
    assert which_engine("auto", fb.async_linucb().told(world), world) == "fast"
    assert which_engine("auto", fb.fclub_dc().told(world), world) == "plain", "its loop is another one"


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_an_installation_that_cannot_be_written_to_works() -> None:
    """No folder of its own, no home: kernels are kept in a temporary folder."""
    script = (
        "from fedbandit.engine.fast import jit\n"
        "jit.InTree.from_function = jit.UserWide.from_function = classmethod(lambda *_: None)\n"
        "from fedbandit.engine.fast.rewards import learnt\n"
        "from fedbandit.rewards import RewardRule, reward_plan\n"
        "assert learnt(reward_plan(RewardRule(0.0, 1.0), 0), 2.0, 0, 0) == 1.0\n"
        "assert 'fedbandit-kernels-' in learnt.stats.cache_path, learnt.stats.cache_path\n"
    )
    clean = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    done = subprocess.run([sys.executable, "-c", script], env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
