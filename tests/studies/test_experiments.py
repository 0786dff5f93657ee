"""Many runs: the same in every process, aggregated rightly, written whole or not at all."""

from __future__ import annotations

import csv
import json
import os
import sys
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

import fedbandit as fb
from fedbandit.cli.main import main
from fedbandit.engine.simulation import Simulation
from fedbandit.engine.thinning import thinned
from fedbandit.environments.block import Block
from fedbandit.environments.synthetic import SyntheticStream
from fedbandit.errors import FedbanditError
from fedbandit.studies import report as reporting
from fedbandit.studies import tables
from fedbandit.studies.compare import aggregate, format_table, trials_of
from fedbandit.studies.plots import draw_comparison, look_of, save_figure
from fedbandit.studies.runner import Refusal, Run, Trial, bundled, run_together, run_trial, run_trials
from fedbandit.studies.specs import Spec, build_environment, build_system

SMALL = ["--clients", "4", "--dim", "3", "--arms", "5", "--horizon", "300"]
WORLD = Spec.parse("homogeneous:n_clients=4,dim=3,n_arms=5")


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    """Three systems, of which two differ in a keyword, with two seeds."""
    systems = [Spec.parse(text) for text in ("linucb", "async-linucb:gamma_upload=2", "async-linucb:gamma_upload=9")]
    return run_trials(trials_of([(spec.label, spec) for spec in systems], WORLD, 300, [0, 1]), processes=1)


def without_seconds(run: Run) -> dict[str, object]:
    return {key: value for key, value in run.report.items() if key != "seconds"}


def test_a_trial_equals_simulate(runs: list[Run]) -> None:
    env = fb.environments.homogeneous(n_clients=4, dim=3, n_arms=5)
    result = fb.simulate(fb.async_linucb(gamma_upload=2.0), env, horizon=300, seed=1)
    run = next(run for run in runs if run.label == "async-linucb:gamma_upload=2" and run.report["seed"] == 1)
    assert run.report["regret"] == result.regret[-1]
    assert len(run.curve.round) == 200
    np.testing.assert_array_equal(run.curve.regret, result.regret[run.curve.round - 1])
    np.testing.assert_array_equal(run.curve.downloads, result.communication.download_curve[run.curve.round - 1])
    assert run.curve.round[-1] == 300
    by_hand = run_trial(Trial("mine", fb.async_linucb(gamma_upload=2.0), env, 300, 1))
    assert without_seconds(by_hand) == without_seconds(run)


def test_processes_give_the_same_runs_in_the_same_order(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("import fedbandit as fb\n\n\ndef mine(ridge=1.0):\n    return fb.linucb(ridge=ridge)\n")
    systems = [Spec.parse(text) for text in (f"{mine}:mine", f"{mine}:mine:ridge=0.1", "async-linucb")]
    trials = trials_of([(spec.label, spec) for spec in systems], WORLD, 300, [0, 1])
    before = dict(os.environ)
    seen: list[Run] = []
    together = run_trials(trials, processes=2, progress=seen.append)
    alone = run_trials(trials, processes=1)
    assert [run.label for run in together] == [trial.label for trial in trials]
    assert [without_seconds(run) for run in together] == [without_seconds(run) for run in alone]
    assert sorted(map(id, seen)) == sorted(map(id, together))
    assert dict(os.environ) == before


def test_trials_on_the_same_fresh_contexts_draw_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    real = SyntheticStream._draw_chunk

    def counting(stream: SyntheticStream, c: int) -> Block:
        drawn.append(c)
        return real(stream, c)

    env = fb.environments.homogeneous(n_clients=4, dim=20, n_arms=200)  # chunks of 131 interactions
    trials = [Trial(name, Spec(name), env, 300, 1) for name in ("linucb", "async_linucb", "uniform", "sync_linucb")]
    alone = [run_trial(trial) for trial in trials]
    monkeypatch.setattr(SyntheticStream, "_draw_chunk", counting)
    together = run_together([*trials, Trial("bad", Spec("linucb"), env, 300, 1, extra="nonsense")])
    assert sorted(drawn) == [0, 1, 2]
    assert [without_seconds(run) for run in together[:4] if isinstance(run, Run)] == list(map(without_seconds, alone))
    assert isinstance(together[4], Refusal), "one that is refused must not end the others"


def test_bundles_leave_no_process_idle_and_no_trial_out() -> None:
    pooled = Spec.parse("homogeneous:n_clients=4,dim=3,n_arms=5,pool=10")
    fresh = [Trial("", Spec("linucb"), WORLD, horizon, seed) for seed in (0, 1) for horizon in (50, 60) for _ in "abc"]
    drawn_from_a_pool = [Trial("", Spec("linucb"), pooled, 50, 0) for _ in "ab"]
    bundles = bundled([*fresh, *drawn_from_a_pool], 2)
    assert bundles == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11], [12], [13]]
    assert sorted(map(len, bundled(fresh[:6], 4))) == [1, 1, 2, 2]
    assert sorted(chain.from_iterable(bundled(fresh, 40))) == list(range(12))
    assert bundled([], 4) == []


def test_a_resumed_trial_of_a_bundle_is_left_behind_and_catches_up(tmp_path: Path) -> None:
    env = fb.environments.homogeneous(n_clients=2, dim=20, n_arms=200)
    trials = [Trial(name, Spec(name), env, 400, 0) for name in ("linucb", "async_linucb")]
    expected = [without_seconds(run_trial(trial)) for trial in trials]
    half = Simulation(build_system(Spec("linucb")), env, 400, 0)
    half.keep(tmp_path / "half", every=1)
    while not half.finished:  # at last it is resumed at its end
        half.advance()
        resumed = run_together([replace(trials[0], checkpoint=str(tmp_path / "half")), trials[1]])
        assert [without_seconds(run) for run in resumed if isinstance(run, Run)] == expected


def test_a_bad_trial_ends_the_others_with_its_sentence() -> None:
    trials = [Trial(str(seed), Spec("linucb"), WORLD, 0 if seed == 1 else 50, seed) for seed in range(6)]
    with pytest.raises(FedbanditError, match="horizon is 0"):
        run_trials(trials, processes=2)


def test_aggregation_is_mean_and_standard_error(runs: list[Run]) -> None:
    lines = aggregate(runs)
    assert [line.label for line in lines] == ["linucb", "async-linucb:gamma_upload=2", "async-linucb:gamma_upload=9"]
    first, second = (run.report["regret"] for run in runs if run.label == "linucb")
    assert lines[0].means["regret"] == pytest.approx((first + second) / 2)
    assert lines[0].errors["regret"] == pytest.approx(abs(first - second) / 2)
    assert set(aggregate(runs[:1])[0].errors.values()) == {None}
    table = format_table(lines).splitlines()
    assert table[0].split() == ["system", "regret", "reward", "uploads", "downloads", "MB", "seconds", "guarantee"]
    assert all(line.startswith(label) for line, label in zip(table[1:4], (line.label for line in lines), strict=True))
    assert len({line.index("±") for line in table[1:4]}) == 1
    assert table[-2:] == [f"guarantee {run.report['guarantee']}" for run in runs[:2]]
    assert "±" not in format_table(aggregate(runs[:1]))


def test_compare_prints_a_table_and_writes_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "deep" / "results"
    systems = ["linucb", "async-linucb:gamma_upload=2", "async-linucb"]
    words = ["compare", *systems, *SMALL, "--seeds", "2", "--jobs", "1", "--gamma-download", "3", "--out", str(out)]
    assert main(words) == 0
    captured = capsys.readouterr()
    assert all(f"\n{system} " in captured.out for system in systems)
    assert "guarantee none" in captured.out
    assert captured.err == ""
    assert {path.name for path in out.iterdir()} == {"runs.csv", "curves.csv", "summary.json", "regret.png"}
    with open(out / "runs.csv", newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [(line["label"], line["seed"]) for line in lines] == [(label, seed) for seed in "01" for label in systems]
    env = fb.environments.homogeneous(n_clients=4, dim=3, n_arms=5)
    result = fb.simulate(fb.async_linucb(gamma_upload=2.0, gamma_download=3.0), env, horizon=300, seed=0)
    assert float(lines[1]["regret"]) == result.regret[-1]
    assert int(lines[1]["downloads"]) == result.communication.downloads
    with open(out / "curves.csv", newline="", encoding="utf-8") as file:
        points = list(csv.DictReader(file))
    assert len(points) == len(lines) * 200
    assert points[-1]["round"] == "300"
    assert points[-1]["regret"] == lines[-1]["regret"]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["command"].startswith("fedbandit compare linucb async-linucb:gamma_upload=2")
    assert [line["label"] for line in summary["systems"]] == systems


def test_compare_prints_one_json_object(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas", reason="Parquet needs fedbandit[frames]")
    words = ["compare", "linucb", "uniform", *SMALL, "--seeds", "3,5", "--jobs", "1", "--json"]
    assert main([*words, "--out", str(tmp_path), "--format", "parquet"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    summary = json.loads(captured.out)
    assert summary["seeds"] == [3, 5]
    assert summary == json.loads((tmp_path / "summary.json").read_text())
    runs = pd.read_parquet(tmp_path / "runs.parquet")
    assert list(runs["seed"]) == [3, 3, 5, 5]
    assert runs.groupby("label")["regret"].mean()["uniform"] == pytest.approx(summary["systems"][1]["regret"])
    assert len(pd.read_parquet(tmp_path / "curves.parquet")) == 4 * 200


def test_without_a_plot_it_is_said_why(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("fedbandit.studies.report.write_comparison", lambda *_: [])
    words = "compare linucb uniform --clients 3 --dim 2 --arms 3 --horizon 50 --seeds 2 --jobs 1 --json --out ."
    assert main(words.split()) == 0
    captured = capsys.readouterr()
    assert [line["label"] for line in json.loads(captured.out)["systems"]] == ["linucb", "uniform"]
    assert "pip install 'fedbandit[plots]'" in captured.err


def test_missing_software_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runs: list[Run]) -> None:
    for name in ("matplotlib", "pandas"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(FedbanditError, match=r"fedbandit\[frames\]"):
        tables.require_format("parquet")
    with pytest.raises(FedbanditError, match=r"fedbandit\[plots\]"):
        draw_comparison(runs, "title")
    env = build_environment(WORLD)
    with pytest.raises(FedbanditError, match=r"fedbandit\[plots\]"):
        fb.simulate(fb.linucb(), env, 5, 0).plot()
    written = reporting.write_comparison(tmp_path, "csv", runs, {}, env)
    assert [path.name for path in written] == ["runs.csv", "curves.csv", "summary.json"]


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tables.write_json(tmp_path / "a.json", {"old": 1})
    with pytest.raises(ValueError, match="fields not in fieldnames"):
        tables.write_table(tmp_path / "a.csv", [{"a": 1}, {"b": 2}])
    with pytest.raises(ValueError, match="not JSON compliant"):
        tables.write_json(path, {"new": np.inf})
    assert json.loads(path.read_text()) == {"old": 1}
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FedbanditError, match="cannot be written"):
        tables.write_json(tmp_path / "nowhere" / "a.json", {})
    with pytest.raises(FedbanditError, match="must end in"):
        save_figure(Figure(), tmp_path / "a.picture")


def test_the_comparison_plot_shows_every_system_and_every_run(runs: list[Run]) -> None:
    figure = draw_comparison(runs, "a world")
    curves, costs = figure.axes
    labels = [str(line.get_label()) for line in curves.get_lines()]
    assert labels == ["linucb", "async-linucb:gamma_upload=2", "async-linucb:gamma_upload=9"]
    assert len(curves.collections) == 3  # bands
    dots = [drawn for drawn in costs.collections if isinstance(drawn, PathCollection)]
    assert sum(len(np.asarray(group.get_offsets())) for group in dots) == len(runs)
    assert "a world" in figure.get_suptitle()
    assert len({look_of(position) for position in range(200)}) == 200


def test_the_comparison_plot_copes_with_one_silent_run(runs: list[Run], tmp_path: Path) -> None:
    path = save_figure(draw_comparison(runs[:1], "one"), tmp_path / "one.svg")
    assert "one seed" in path.read_text()


def test_a_result_is_plotted_with_its_messages() -> None:
    result = fb.simulate(build_system(Spec("async_linucb")), build_environment(WORLD), 300, 0)
    figure = Figure()
    ax = figure.subplots()
    assert result.plot(ax) is ax
    regret, messages = (axes.get_lines()[0] for axes in figure.axes)
    np.testing.assert_array_equal(np.asarray(regret.get_ydata()), result.regret)
    np.testing.assert_array_equal(np.asarray(messages.get_ydata()), result.communication.message_curve)
    silent = fb.simulate(fb.linucb(), build_environment(WORLD), 20, 0)
    assert len(silent.plot(Figure().subplots()).figure.axes) == 1


def test_a_result_makes_a_figure_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    from matplotlib import pyplot

    ax = fb.simulate(fb.linucb(), build_environment(WORLD), 20, 0).plot()
    assert ax.get_title() == "linucb on homogeneous, seed 0"
    pyplot.close(ax.figure)


@pytest.mark.parametrize("horizon", [1, 7, 199, 200, 201, 12345])
def test_thinning_keeps_the_end(horizon: int) -> None:
    at = thinned(horizon, 200)
    assert len(at) == min(horizon, 200)
    assert at[-1] == horizon - 1
    assert at[0] >= 0
    assert (np.diff(at) >= 1).all()
