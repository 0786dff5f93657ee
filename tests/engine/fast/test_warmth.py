"""Compiling is announced, counted apart, cached where that is possible, and not asked of short runs."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numba
import pytest
from numba.core.registry import cpu_target

import fedbandit as fb
from fedbandit.engine.fast import warmth
from fedbandit.engine.fast.warmth import Compiling
from fedbandit.engine.simulation import WORTH_COMPILING, which_engine


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
    for horizon, expected in ((WORTH_COMPILING, "plain"), (WORTH_COMPILING + 1, "fast")):
        world = fb.World(n_clients=3, dim=2, horizon=horizon)
        assert which_engine("auto", fb.async_linucb().told(world), world) == expected
    folder = tmp_path / "some" / f"fedbandit-{warmth.source_stamp()[:16]}"
    folder.mkdir(parents=True)
    world = fb.World(n_clients=3, dim=2, horizon=100)
    system = fb.async_linucb().told(world)
    index = folder / "loop.run-31.py{}{}.nbi".format(*sys.version_info)
    target = cpu_target.target_context.codegen().magic_tuple()
    for version, processor, expected in (
        ("0.1", target, "plain"),
        (numba.__version__, (target[0], "generic", ""), "plain"),
        (numba.__version__, target, "fast"),
    ):
        index.write_bytes(pickle.dumps(version, -1) + pickle.dumps(("stamp", {("signature", processor): "1"}), -1))
        assert which_engine("auto", system, world) == expected
    assert which_engine("auto", fb.fclub_dc().told(world), world) == "plain", "its loop is another one"
    unreadable = folder / index.name.replace("31", "32")
    unreadable.mkdir()
    assert which_engine("auto", system, world) == "fast", "another index is there"
    index.rename(folder / "loop.run-31.py27.nbi")
    assert which_engine("auto", system, world) == "plain", "of another Python"


def test_who_has_no_cache_imports_no_compiler(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "import fedbandit as fb\n"
        "env = fb.environments.homogeneous(n_clients=2, dim=2, n_arms=2)\n"
        "assert fb.simulate(fb.async_linucb(), env, 10).engine == 'plain'\n"
        "assert not {'numba', 'llvmlite'} & set(sys.modules)\n"
    )
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_cache_for_another_processor_is_cold(tmp_path: Path) -> None:
    """As Numba itself writes and reads it: a kernel is compiled for one processor, and asked for on another."""
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from fedbandit.engine.fast.rewards import learnt\n"
        "from fedbandit.engine.fast.warmth import is_warm\n"
        "from fedbandit.rewards import RewardRule, reward_plan\n"
        "if sys.argv[1] == 'compile':\n"
        "    learnt(reward_plan(RewardRule(0.0, 1.0), 0), 2.0, 0, 0)\n"
        "print(is_warm('rewards.learnt'))\n"
    )

    def warm(word: str, processor: str) -> str:
        env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_CPU_NAME": processor, "FEDBANDIT_QUIET": "1"}
        if not processor:
            del env["NUMBA_CPU_NAME"]
        done = subprocess.run(
            [sys.executable, "-c", script, word], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert warm("look", "") == "False"
    assert warm("compile", "generic") == "True"
    assert warm("look", "") == "False"
    assert warm("look", "generic") == "True"


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
