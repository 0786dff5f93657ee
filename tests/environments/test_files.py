"""Recorded arrays and logs from files: what is read is what was written, and faults are named with their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbandit.environments.log_file import log_file
from fedbandit.environments.recorded_file import recorded_file
from fedbandit.errors import FedbanditError

RNG = np.random.default_rng(0)
ARRAYS: dict[str, Any] = {
    "clients": np.array([0, 1, 1]),
    "arms": RNG.standard_normal((3, 4, 2)),
    "means": RNG.random((3, 4)),
    "rewards": RNG.random((3, 4)),
}
COLUMNS: dict[str, Any] = {"client": "who", "features": ["age"], "reward": "click"}


def saved(folder: Path, **changes: Any) -> Path:
    """An .npz file of the arrays, some of them changed, or left out if None."""
    path = folder / "mine.npz"
    np.savez(path, **{name: value for name, value in {**ARRAYS, **changes}.items() if value is not None})
    return path


def test_recorded_arrays(tmp_path: Path) -> None:
    """With a graph, delays, and rounds that offer fewer arms than there is room for."""
    graph, delays, counts = np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([0, 2, 1]), np.array([4, 2, 3])
    env = recorded_file(saved(tmp_path, graph=graph, delays=delays, counts=counts), noise=0.3)
    block = env.open(seed=0).block(0, 3)
    assert block.counts.tolist() == [4, 2, 3]
    assert (env.declared_noise, env.longest_delay, env.longest) == (0.3, 2, 3)
    np.testing.assert_array_equal(block.X[block.arms[1, :2]], ARRAYS["arms"][1, :2])
    np.testing.assert_array_equal(block.rewards[2, :3], ARRAYS["rewards"][2, :3])
    np.testing.assert_array_equal(env.graph_of(seed=5), graph)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"means": None}, r"has no array 'means'; it must have clients, arms, means, rewards"),
        ({"counts": np.array([4, 2])}, "must be one whole number for each of the 3 rounds in arms"),
        ({"counts": np.array([4, 0, 2])}, "is 0 in round 1, but must be from 1 to 4, its arms"),
        ({"rewards": np.ones((3, 3))}, r"the shape of rewards in round 0 is \(3,\), but must be \(4,\)"),
    ],
)
def test_recorded_arrays_that_make_no_sense(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    """One sentence each."""
    with pytest.raises(FedbanditError, match=sentence):
        recorded_file(saved(tmp_path, **changes))


def test_files_that_are_none(tmp_path: Path) -> None:
    """Missing, of one array, of something else."""
    single, text = tmp_path / "one.npy", tmp_path / "text.npz"
    np.save(single, np.ones(3))
    text.write_text("nothing of the kind")
    for path, sentence in (
        (tmp_path / "nowhere.npz", "There is no file"),
        (single, "holds one array instead of several; write it with numpy.savez"),
        (text, "is not an .npz file of plain arrays"),
    ):
        with pytest.raises(FedbanditError, match=sentence):
            recorded_file(path)


def test_logs_in_csv_and_parquet_say_the_same(tmp_path: Path) -> None:
    """Decisions, clients, rewards."""
    pandas = pytest.importorskip("pandas", reason="Parquet needs fedbandit[frames]")
    frame = pandas.DataFrame({"who": ["a", "b", "a"], "age": [0.1, 0.2, 0.3], "action": [0, 1, 0], "click": [1, 0, 1]})
    frame.to_csv(tmp_path / "log.csv", index=False)
    frame.to_parquet(tmp_path / "log.parquet")
    one, other = (log_file(tmp_path / f"log.{form}", **COLUMNS) for form in ("csv", "parquet"))
    assert one.client_names == other.client_names == ("a", "b")
    for field in ("clients", "X", "chosen", "rewards"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", r"log.csv', line 1: there is no data"),
        ("who,age,action,click\n", r"log.csv', line 2: there is no data"),
        ("who,age,action,click\na,1,x\n", r"log.csv', line 2: 3 columns instead of 4"),
        ("who,age,age,click\na,1,x,1\n", r"log.csv', line 1: a column is named twice"),
        ("who,age,action,click\na,1,x,1\nb,old,y,0\n", r"log.csv', line 3: age is old, but must be a finite number"),
        ("who,age,action,click\n\xffa,1,x,1\n", r"log.csv', near line 2: the text is not UTF-8"),
    ],
)
def test_faults_of_a_log_are_named_with_their_line(tmp_path: Path, text: str, sentence: str) -> None:
    """As an editor counts lines."""
    path = tmp_path / "log.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(FedbanditError, match=sentence):
        log_file(path, **COLUMNS)
