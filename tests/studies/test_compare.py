"""Systems side by side: aggregated rightly, as a table, as JSON, in files."""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import fedbandit as fb
from fedbandit import files
from fedbandit.cli.main import main
from fedbandit.errors import FedbanditError
from fedbandit.studies.compare import format_table, lines_of, trials_of, write_comparison
from fedbandit.studies.specs import EnvironmentSpec, SystemSpec
from fedbandit.studies.trials import Run
from fedbandit.studies.workers import Workers, run_trials

SMALL = ["--clients", "4", "--dim", "3", "--arms", "5", "--horizon", "300"]
WORLD = EnvironmentSpec.parse("homogeneous:n_clients=4,dim=3,n_arms=5")
LABELS = ["linucb", "async-linucb:gamma_upload=2", "async-linucb:gamma_upload=9"]


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    """Three systems, of which two differ in a keyword, with two seeds."""
    specs = [(label, SystemSpec.parse(label)) for label in LABELS]
    return run_trials(trials_of(specs, WORLD, 300, [0, 1]), Workers(jobs=1))


def test_aggregation_is_mean_and_standard_error(runs: list[Run]) -> None:
    lines = lines_of(runs)
    assert [line["label"] for line in lines] == LABELS
    first, second = (run.report["regret"] for run in runs if run.label.series == "linucb")
    assert lines[0]["regret"] == pytest.approx((first + second) / 2)
    assert lines[0]["regret_standard_error"] == pytest.approx(abs(first - second) / 2)
    assert {value for key, value in lines_of(runs[:1])[0].items() if key.endswith("_error")} == {None}
    table = format_table(lines).splitlines()
    assert table[0].split() == ["system", "regret", "reward", "uploads", "downloads", "MB", "seconds", "guarantee"]
    assert all(line.startswith(label) for line, label in zip(table[1:4], LABELS, strict=True))
    assert len({line.index("±") for line in table[1:4]}) == 1
    assert table[-2:] == [f"guarantee {run.report['guarantee']}" for run in runs[:2]]
    assert "±" not in format_table(lines_of(runs[:1]))


def test_compare_prints_a_table_and_writes_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "deep" / "results"
    systems = ["linucb", "async-linucb:gamma_upload=2", "async-linucb"]
    words = ["compare", *systems, *SMALL, "--seeds", "2", "--jobs", "1", "--gamma-download", "3", "--out", str(out)]
    assert main(words) == 0
    captured = capsys.readouterr()
    assert all(f"\n{system} " in captured.out for system in systems)
    assert "guarantee none" in captured.out
    assert captured.err == ""
    written = {"runs.csv", "curves.csv", "summary.json", "table.md", "table.tex", "regret.png"}
    assert {path.name for path in out.iterdir()} == written
    with open(out / "runs.csv", newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [(line["label"], line["seed"]) for line in lines] == [(label, seed) for seed in "01" for label in systems]
    env = fb.environments.homogeneous(n_clients=4, dim=3, n_arms=5)
    result = fb.simulate(fb.async_linucb(gamma_upload=2.0, gamma_download=3.0), env, 300, 0, engine="plain")
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
    monkeypatch.setattr("fedbandit.studies.compare.write_comparison", lambda *_, **__: [])
    words = "compare linucb uniform --clients 3 --dim 2 --arms 3 --horizon 50 --seeds 2 --jobs 1 --json --out ."
    assert main(words.split()) == 0
    captured = capsys.readouterr()
    assert [line["label"] for line in json.loads(captured.out)["systems"]] == ["linucb", "uniform"]
    assert "pip install 'fedbandit[plots]'" in captured.err


def test_missing_software_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runs: list[Run]) -> None:
    for module in ("matplotlib", "matplotlib.pyplot", "pandas"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(FedbanditError, match=r"fedbandit\[frames\]"):
        files.require_format("parquet")
    env = WORLD()
    with pytest.raises(FedbanditError, match=r"fedbandit\[plots\]"):
        fb.simulate(fb.linucb(), env, 5, 0).plot()
    written = write_comparison(tmp_path, "csv", runs, {}, env)
    assert [path.name for path in written] == ["runs.csv", "curves.csv", "summary.json", "table.md", "table.tex"]


def test_compare_in_python() -> None:
    env = fb.environments.homogeneous(n_clients=4, dim=3, n_arms=4)
    found = fb.compare({"alone": fb.linucb(), "together": fb.async_linucb()}, env, horizon=300, seeds=[1, 4])
    assert [line["label"] for line in found.lines] == ["alone", "together"]
    alone = [fb.simulate(fb.linucb(), env, 300, seed).regret[-1] for seed in (1, 4)]
    assert found.lines[0]["regret"] == pytest.approx(np.mean(alone))
    assert "together" in str(found)
    assert "<table>" in found._repr_html_()
    assert found.to_markdown(["regret", "bytes"]).splitlines()[0] == "| system | regret | MB |"
    with pytest.raises(FedbanditError, match="There is no measure 'regrets'; did you mean 'regret'"):
        found.to_latex(["regrets"])
    frame = found.to_frame()
    assert set(frame["label"]) == {"alone", "together"}
    assert set(frame["system"]) == {"linucb", "async-linucb"}
    for band in ("error", "interval", "quantiles", "runs"):
        figure = found.plot(log=False, band=band)
        assert figure.axes[0].get_yscale() == "linear"
    assert found.plot(log=True).axes[0].get_yscale() == "log"


def test_what_cannot_be_compared_is_refused() -> None:
    env = fb.environments.homogeneous(n_clients=4, dim=3, n_arms=4)
    for systems, options, sentence in (
        ([], {"horizon": 5}, "There is no system to compare"),
        ([fb.linucb(), fb.linucb()], {"horizon": 5}, "Two of the systems are called linucb"),
        ([fb.linucb()], {}, "horizon is None, but homogeneous has no end"),
        ([fb.linucb()], {"horizon": 5, "seeds": 0}, "seeds is 0, but must be a whole number"),
    ):
        with pytest.raises(FedbanditError, match=sentence):
            fb.compare(systems, env, **options)  # type: ignore[arg-type]


def test_equal_runs_have_no_error() -> None:
    """A recorded stream is one stream: seeds change the draws of random policies alone."""
    rng = np.random.default_rng(0)
    contexts = rng.uniform(-0.5, 0.5, (50, 3, 2))
    means = contexts.sum(axis=2)
    env = fb.environments.recorded(np.zeros(50, dtype=int), contexts, means, means, noise=0.1)
    certain, random = str(fb.compare([fb.linucb(), fb.uniform()], env, seeds=3)).splitlines()[1:3]
    assert re.match(r"linucb +[\d.]+ +", certain)
    assert re.match(r"uniform +[\d.]+ ± +[\d.]+", random)


def test_the_table_as_markdown_and_latex() -> None:
    env = fb.environments.homogeneous(n_clients=5, dim=3, n_arms=4)
    comparison = fb.compare([fb.linucb()], env, 100, seeds=2)
    assert comparison.to_markdown().startswith("| system | regret |")
    assert r"\begin{tabular}" in comparison.to_latex()
