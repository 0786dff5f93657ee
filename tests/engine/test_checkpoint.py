"""Checkpoints: of another kind, number, simulation or shape they are refused, and nothing else is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.checks import horizon_of, small_world
from fedbandit.engine.checkpoint import read_checkpoint, write_checkpoint
from fedbandit.engine.simulation import Simulation
from fedbandit.files import read_arrays, write_arrays
from fedbandit.presets import PRESETS
from fedbandit.state import newest

REPEATS = ("/steps", "/observed")  # pairs of user and count: the same pairs twice are the same


def spoilt(arrays: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The same arrays with one of them gone, longer, of another type, or one more."""
    for name, array in arrays.items():
        yield f"{name} is gone", {key: value for key, value in arrays.items() if key != name}
        if array.size:
            yield f"{name} is complex", {**arrays, name: array.astype(np.complex128)}
        if array.size and not name.endswith(REPEATS):
            yield f"{name} is longer", {**arrays, name: np.concatenate([np.atleast_1d(array)] * 2)}
    yield "a row of an older version", {**arrays, "row": np.zeros(344)}


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize(
    "preset", ["linucb", "linucb_central", "async_linucb_am", "hetofedbandit", "feducb", "ldp_goblin", "fclub", "sclub"]
)
def test_a_spoilt_checkpoint_is_refused(preset: str, tmp_path: Path) -> None:
    system = PRESETS[preset]()
    env = small_world(system)

    def simulation() -> Simulation:
        return Simulation(system, env, horizon_of(system), 0, engine="plain")

    begun = simulation()
    begun.advance()
    path = tmp_path / "checkpoint.npz"
    write_checkpoint(path, begun, "mine")
    head, arrays = read_arrays(path)
    assert (head["kind"], head["format"]) == ("checkpoint", newest("checkpoint"))
    read_checkpoint(path, simulation(), "mine")
    accepted = []
    for what, others in spoilt(arrays):
        write_arrays(path, head, others)
        try:
            read_checkpoint(path, simulation(), "mine")
        except fb.FedbanditError as error:
            if "remove the file and let the simulation start over" in str(error):
                continue
        accepted.append(what)
    assert not accepted


def test_a_checkpoint_goes_on_with_its_own_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What "auto" chooses depends on the compiler's cache, which may be warm when a run is resumed."""
    pytest.importorskip("numba", reason="Numba is not installed")
    env = fb.environments.homogeneous(n_clients=2, dim=2, n_arms=2)
    path = tmp_path / "checkpoint.npz"
    write_checkpoint(path, Simulation(fb.linucb(), env, 10, 0, engine="plain"), "mine")
    monkeypatch.setattr("fedbandit.engine.fast.is_warm", lambda *_: True)
    warm = Simulation(fb.linucb(), env, 10, 0)
    engines: list[str] = [warm.engine]
    read_checkpoint(path, warm, "mine")
    engines.append(warm.engine)
    assert engines == ["fast", "plain"]
    warm.advance()
    assert warm.result().engine == "plain"
    with pytest.raises(fb.FedbanditError, match="is of the plain engine; go on with that one"):
        read_checkpoint(path, Simulation(fb.linucb(), env, 10, 0, engine="fast"), "mine")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"kind": "client"}, "which has that of a client"),
        ({"format": 99}, r"is of format 99, written by fedbandit .* reads format 1 or 2 or 3; .* or remove the file"),
        ({"identity": "other"}, "belongs to another simulation"),
        ({"learner": {}}, "does not fit"),
    ],
)
def test_another_head_is_refused(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    env = fb.environments.homogeneous(n_clients=2, dim=2, n_arms=2)
    path = tmp_path / "checkpoint.npz"
    write_checkpoint(path, Simulation(fb.linucb(), env, 10, 0, engine="plain"), "mine")
    head, arrays = read_arrays(path)
    write_arrays(path, {**head, **change}, arrays)
    with pytest.raises(fb.FedbanditError, match=sentence):
        read_checkpoint(path, Simulation(fb.linucb(), env, 10, 0, engine="plain"), "mine")
    del head["kind"]
    write_arrays(path, head, arrays)
    with pytest.raises(fb.FedbanditError, match="does not say what it is"):
        read_checkpoint(path, Simulation(fb.linucb(), env, 10, 0, engine="plain"), "mine")


def test_a_checkpoint_outlives_a_release(tmp_path: Path) -> None:
    """Its number says whether it is read: a process of another version goes on from it."""
    script = (
        "import sys\n"
        "import fedbandit._version\n"
        "fedbandit._version.__version__ = sys.argv[2]\n"
        "import fedbandit as fb\n"
        "from fedbandit.engine.simulation import Simulation\n"
        "env = fb.environments.homogeneous(n_clients=2, dim=4, n_arms=4096)\n"
        "simulation = Simulation(fb.linucb(), env, 100, 0, engine='plain')\n"
        "print(simulation.keep(sys.argv[1], 1))\n"
        "simulation.advance()\n"
    )
    found = []
    for version in ("0.1.0", "0.2.0"):
        words = [sys.executable, "-c", script, str(tmp_path / "checkpoint.npz"), version]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found.append(done.stdout.strip())
    assert found == ["False", "True"]


def test_what_cannot_be_written_is_refused_before_anything_is_run(tmp_path: Path) -> None:
    env = fb.environments.homogeneous(n_clients=2, dim=2, n_arms=2)
    told: list[int] = []
    with pytest.raises(fb.FedbanditError, match=r"a\.npz' cannot be written: there is no folder '.*nowhere'\.$"):
        fb.simulate(
            fb.linucb(), env, 50, engine="plain", checkpoint=tmp_path / "nowhere" / "a.npz", progress=told.append
        )
    assert told == []
