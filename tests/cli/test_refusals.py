"""The command line on bad input: one sentence on standard error, exit status 2, and nothing half done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.command_line import recorded_arrays, refusal, write_my_file


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("simulat linucb", "There is no command 'simulat'; did you mean 'simulate'?"),
        ("simulate asynk-linucb", "There is no system 'asynk-linucb'; did you mean 'async-linucb'?"),
        ("simulate linucb --env homogenous", "There is no environment 'homogenous'; did you mean 'homogeneous'?"),
        ("simulate linucb --horizn 5", "There is no flag '--horizn'; did you mean '--horizon'?"),
        ("simulate async-linucb --gama-upload=5", "There is no flag '--gama-upload'; did you mean '--gamma-upload'?"),
        ("simulate async-linucb:gama_upload=5", "did you mean 'gamma_upload'?"),
        ("simulate uniform:ridge=1", "uniform takes no keywords, but was given 'ridge'."),
        ("simulate uniform:ridge", "'ridge' in 'uniform:ridge' is not of the form keyword=value."),
        ("simulate linucb --threshold 3", "--threshold is a keyword neither of linucb nor of homogeneous."),
        ("simulate async-linucb --gamma-upload 0.5", "gamma_upload is 0.5, but must be ≥ 1"),
        ("simulate linucb --policy ucv", "There is no policy 'ucv'; did you mean 'ucb'?"),
        ("simulate linucb --arms 30 --pool 20", "pool is 20, but must be None or a size of at least n_arms = 30."),
        ("simulate linucb --clients 0", "n_clients is 0"),
        ("simulate linucb --dim 2.5", "dim is 2.5"),
        ("simulate linucb --noise much", "noise is 'much', but must be a value of type float."),
        ("simulate linucb --noise 1,2", "noise is '1,2', but must be a value of type float."),
        ("simulate linucb --delay 1,2,3", "delay"),
        ("simulate linucb --arrivals 0.5,x --clients 2", "'x'"),
        ("simulate linucb --clients 1e25", "n_clients is 1"),
        ("simulate linucb --horizon 1e25", "but must be a whole number ≤ 1000000000000."),
        ("simulate linucb --dim 1e9", "dim is 1000000000, but must be a whole number ≤ 100000."),
        ("simulate linucb --delay 1e30", "delay is 1"),
        ("simulate linucb --drift 1e30", "drift is (1e+30"),
        ("simulate linucb --checkpoint a --checkpoint-every 0", "checkpoint_every is 0, but must be a whole number"),
        ("simulate linucb --horizon 0", "horizon is 0, but must be a whole number ≥ 1."),
        ("simulate linucb --horizon long", "'long' is not a whole number"),
        ("simulate linucb --horizon inf", "'inf' is not a whole number"),
        ("simulate linucb --seed -1", "seed is -1"),
        ("simulate", "The following arguments are required: SYSTEM"),
        ("simulate linucb --env recorded", "recorded needs --path."),
        ("simulate linucb --env recorded --path nowhere.npz", "There is no file 'nowhere.npz'."),
        ("simulate my.py", "'my.py' is a file; name the function in it as well: my.py:my_system."),
        ("simulate nowhere.py:f", "There is no file"),
        ("simulate linucb --save nowhere/a.npz", "'nowhere/a.npz' cannot be written: there is no folder 'nowhere'."),
        ("simulate linucb --checkpoint nowhere/a", "'nowhere/a' cannot be written: there is no folder 'nowhere'."),
        ("simulate linucb --plot a.picture", "'a.picture' must end in "),
        ("simulate linucb --plot .", "cannot be written"),
        ("compare linucb linucb", "linucb is given twice"),
        ("compare linucb async-linucb:gamma_upload=0", "gamma_upload is 0"),
        ("compare linucb --env homogeneous uniform", "'uniform' is one argument too many"),
        ("compare linucb --seeds 0", "'0' does not name at least one seed"),
        ("compare linucb --seeds 1,1", "'1,1' does not name at least one seed, each once"),
        ("compare linucb --jobs 0", "--jobs is 0, but must be at least 1."),
        ("compare linucb --format xml", "invalid choice: 'xml'"),
    ],
)
def test_bad_input_is_refused_with_one_sentence(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sentence in refusal(capsys, *words.split())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "entry", "value", "sentence"),
    [
        ("rewards", (2, 1), np.nan, "A value of rewards in round 2 is not finite."),
        ("arms", (1, 0, 0), np.inf, "A context in round 1 is not finite."),
        ("clients", 0, -1, "the smallest client is -1"),
    ],
)
def test_bad_numbers_in_recorded_data_are_refused(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    name: str,
    entry: Any,
    value: float,
    sentence: str,
) -> None:
    log = recorded_arrays()
    log[name][entry] = value
    np.savez(tmp_path / "log.npz", **log)
    words = ["simulate", "linucb", "--env", "recorded", "--path", str(tmp_path / "log.npz")]
    assert sentence in refusal(capsys, *words)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"means": None}, "has no array 'means'"),
        ({"means": np.ones((30, 3))}, "the shape of means in round 0 is (3,)"),
        ({"means": np.float64(3.0)}, "the number of rounds in means is 1"),
        ({"arms": np.ones((29, 4, 2))}, "the number of rounds in arms is 29"),
        ({"arms": np.ones(30)}, "the shape of arms in round 0 is ()"),
        ({"counts": np.ones((2, 2))}, "counts in"),
        ({"counts": np.ones(2, dtype=int)}, "must be one whole number for each of the 30 rounds in arms."),
        ({"counts": np.repeat([1, -1], 15)}, "is -1 in round 15, but must be from 1 to 4"),
        ({"counts": np.full(30, 2), "means": np.ones((35, 4))}, "the number of rounds in means is 35"),
        ({"counts": np.repeat([2, 5], 15)}, "is 5 in round 15, but must be from 1 to 4"),
        ({"counts": np.zeros(30, dtype=int)}, "is 0 in round 0, but must be from 1 to 4"),
    ],
)
def test_bad_shapes_of_recorded_data_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arrays: dict[str, Any], sentence: str
) -> None:
    changed = {name: array for name, array in {**recorded_arrays(), **arrays}.items() if array is not None}
    np.savez(tmp_path / "log.npz", **changed)
    words = ["simulate", "linucb", "--env", "recorded", "--path", str(tmp_path / "log.npz")]
    assert sentence in refusal(capsys, *words)


@pytest.mark.parametrize(
    ("flag", "value", "sentence"),
    [
        ("--horizon", "31", "horizon is 31, but must be at most 30"),
        ("--clients", "2", "the largest client is 2"),
        ("--bound", "0.01", "above the declared bound 0.01"),
        ("--pool", "9", "--pool is a keyword neither of linucb nor of recorded."),
    ],
)
@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_flags_that_do_not_fit_recorded_data_are_refused(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    command: str,
    flag: str,
    value: str,
    sentence: str,
) -> None:
    np.savez(tmp_path / "log.npz", **recorded_arrays())
    words = [command, "linucb", "--env", "recorded", "--path", str(tmp_path / "log.npz")]
    assert sentence in refusal(capsys, *words, flag, value)


def test_other_files_are_not_recorded_data(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text, single, pickled = tmp_path / "a.npz", tmp_path / "b.npy", tmp_path / "c.npz"
    text.write_text("hello")
    np.save(single, np.ones(3))
    np.savez(pickled, clients=np.array([None, "x"], dtype=object))
    for path, sentence in (
        (text, "plain arrays"),
        (single, "one array"),
        (pickled, "plain arrays"),
        (tmp_path, "plain"),
    ):
        assert sentence in refusal(capsys, "simulate", "linucb", "--env", "recorded", "--path", str(path))


def test_bad_files_of_systems_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    broken, my_file = tmp_path / "broken.py", write_my_file(tmp_path)
    broken.write_text("def f(:\n")
    assert "SyntaxError" in refusal(capsys, "simulate", f"{broken}:f")
    assert "did you mean" in refusal(capsys, "simulate", f"{my_file}:my_sistem")
    assert "returned 3, which is not a System" in refusal(capsys, "simulate", f"{my_file}:not_a_system")
    assert "gamma_upload is 0.5" in refusal(capsys, "simulate", f"{my_file}:my_system", "--strength", "0.5")


def test_a_folder_that_cannot_be_made_is_refused_before_anything_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "folder"):
        assert "cannot be made" in refusal(capsys, "compare", "linucb", "--out", str(out), "--horizon", "1e9")


def test_a_checkpoint_of_another_simulation_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text("hello")
    assert "is not a file that fedbandit wrote" in refusal(capsys, "simulate", "linucb", "--checkpoint", str(path))
