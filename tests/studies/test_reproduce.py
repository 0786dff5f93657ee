"""Experiments from end to end: written whole, resumed, the same bytes for the same seeds."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.cli.main import main
from fedbandit.engine.draws import Ahead
from fedbandit.errors import FedbanditError
from fedbandit.privacy import NoisyRewards
from fedbandit.studies import Below, Curves, Experiment, Panel, Point, Scale, Sweep, Tradeoff, Trend
from fedbandit.studies import reproduce as reproducing
from fedbandit.studies import store as storing
from fedbandit.studies import trials as running
from fedbandit.studies.reproduce import make_plan, reproduce
from fedbandit.studies.store import Store, address_of, code_version
from fedbandit.studies.trials import Label, Run, Trial
from fedbandit.studies.workers import Workers
from fedbandit.user_code import module_at
from tests.cli.command_line import refusal, report

WORLD = fb.environments.homogeneous(n_clients=4, dim=3, n_arms=5)
HERE = Workers(jobs=1)


ALL_PANELS = (Curves(), Tradeoff(), Sweep(x="γ"), Curves(y="estimation_error"))


def tiny(panels: Sequence[Panel] = (Curves(),)) -> Experiment:
    """Six points of four kinds, one of which cannot be run; two seeds."""
    points = [
        Point("alone", fb.linucb, WORLD, 300),
        Point("random", fb.uniform, WORLD, 300),
        *(
            Point("async", partial(fb.async_linucb, gamma_upload=g, gamma_download=g), WORLD, 300, value=g)
            for g in (1.5, 4.0)
        ),
        Point("by hand", lambda: fb.async_linucb(privacy=NoisyRewards(2.0)), WORLD, 300, extra="estimates"),
        Point("not there", fb.linucb, partial(fb.environments.lastfm, "/nowhere")),
    ]
    return Experiment(
        title="tiny",
        name="test/tiny",
        reference="nobody 2026",
        reports="async <is> better & cheaper",
        remarks=("a remark",),
        scales={"quick": Scale(points, 2)},
        panels=panels,
        measures=("regret", "messages", "normalised_reward", "estimation_error"),
        printed={("alone", ""): 12.5},
        claims=(
            Below("alone", "random", factor=1.1),
            Trend("async", measure="messages", direction="falls"),
            Below("alone", "not there", otherwise="there is no such data set here"),
            Below("random", "alone", otherwise="random arms learn <nothing>"),
        ),
    )


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("test/tiny/quick/*.parquet"))}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole")
    reproduce([tiny(ALL_PANELS)], "quick", out, workers=HERE)
    return out


def test_everything_is_written(whole: Path) -> None:
    folder = whole / "test" / "tiny" / "quick"
    assert {path.name for path in folder.iterdir()} == {
        *("runs.parquet", "curves.parquet", "table.md", "table.tex"),
        *("figure.png", "figure.pdf", "report.html", "summary.json"),
    }
    summary = json.loads((folder / "summary.json").read_text())
    assert [claim["holds"] for claim in summary["claims"]] == [True, True, None, False]
    assert list(summary["skipped"]) == ["not there"]
    assert "lastfm" in summary["skipped"]["not there"]
    assert summary["runs"] == 10
    assert summary["code"] == code_version()
    table = (folder / "table.md").read_text().splitlines()
    assert table[0].startswith("| system | value | cumulative regret | messages (uploads + downloads) |")
    assert re.fullmatch(r"\| alone \|  \| [\d.,]+ ± [\d.]+ \| 0 ± 0 \| .* \| – \| 12.5 \|", table[2])
    tex = (folder / "table.tex").read_text()
    assert tex.count(r"\\") == len(table) - 1
    assert r"$\pm$" in tex


def test_the_report_needs_nothing_else(whole: Path) -> None:
    html = (whole / "test" / "tiny" / "quick" / "report.html").read_text()
    assert 'src="data:image/png;base64,' in html
    assert not re.search(r"(src|href)=(?!\"data:)", html)
    assert "async &lt;is&gt; better &amp; cheaper" in html
    assert "random arms learn &lt;nothing&gt;" in html
    for part in ("nobody 2026", "a remark", "✔", "✘", "–", "2-DP proven", "numpy ", fb.__version__, "seeds each"):
        assert part in html
    index = (whole / "index.html").read_text()
    assert 'href="test/tiny/quick/report.html"' in index
    assert "2 claims hold ✔, 1 do not ✘, 1 are open (–)" in index


def test_parquet_has_what_simulate_gives(whole: Path) -> None:
    pd = pytest.importorskip("pandas", reason="Parquet needs fedbandit[frames]")
    runs = pd.read_parquet(whole / "test/tiny/quick/runs.parquet")
    env = fb.environments.homogeneous(n_clients=4, dim=3, n_arms=5)
    result = fb.simulate(fb.async_linucb(gamma_upload=4.0, gamma_download=4.0), env, 300, seed=1, engine="plain")
    row = runs[(runs.series == "async") & (runs.value == "4") & (runs.seed == 1)].iloc[0]
    assert row.regret == result.regret[-1]
    assert row.messages == result.communication.messages
    random = fb.simulate(fb.uniform(), env, 300, seed=1, engine="plain")
    assert row.normalised_reward == result.reward[-1] / random.reward[-1]
    assert "seconds" not in runs.columns  # they differ from run to run
    curves = pd.read_parquet(whole / "test/tiny/quick/curves.parquet")
    mine = curves[(curves.series == "async") & (curves.value == "4") & (curves.seed == 1)]
    np.testing.assert_array_equal(mine.regret, result.regret[mine["round"].to_numpy() - 1])
    assert len(curves) == 10 * 200


def test_estimates_come_closer(whole: Path) -> None:
    (path,) = {
        path
        for path in (whole / "runs").rglob("*.npz")
        if b"trace.estimation_error" in path.read_bytes() and b'"seed": 0' in path.read_bytes()
    }
    run = Store(whole / "runs").get(path.stem, Label("x"))
    assert run is not None
    assert run.traces["round"][-1] == 300
    assert 0 < run.extra["estimation_error"] == run.traces["estimation_error"][-1] < 1.5


def test_an_interrupted_run_goes_on_and_ends_the_same(whole: Path, tmp_path: Path) -> None:
    done: list[int] = []

    def stop_after_four(interactions: int) -> None:
        done.append(interactions)
        if len(done) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce([tiny()], "quick", tmp_path, workers=HERE, progress=stop_after_four)
    assert not (tmp_path / "test").exists()
    begun: list[tuple[int, int]] = []
    later: list[int] = []
    reproduce([tiny()], "quick", tmp_path, workers=HERE, progress=later.append, begin=lambda *both: begun.append(both))
    assert begun == [(10 * 300, 4 * 300)]
    assert len(later) == 6
    assert files(tmp_path) == files(whole)
    again: list[int] = []
    reproduce([tiny()], "quick", tmp_path, workers=HERE, progress=again.append)
    assert again == []
    assert files(tmp_path) == files(whole)


def test_a_killed_process_leaves_whole_runs_only(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(
        "environment: 'homogeneous:n_clients=4,dim=3,n_arms=5'\nhorizon: 20000\nseeds: 12\n"
        "systems: [linucb, {name: async-linucb, gamma_upload: 2, gamma_download: 2}]\n"
    )
    out = tmp_path / "killed"
    code = "import sys; from fedbandit.cli.main import main; sys.exit(main())"
    words = ["run", str(own), "--jobs", "1", "--out"]
    process = subprocess.Popen([sys.executable, "-c", code, *words, str(out)], stdout=subprocess.DEVNULL)
    try:
        while process.poll() is None and len(list(out.glob("runs/*/*.npz"))) < 2:
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    kept = len(list(out.glob("runs/*/*.npz")))
    assert 2 <= kept <= 24
    from fedbandit.cli.main import main

    for folder in (out, tmp_path / "whole"):
        assert main([*words, str(folder), "--json"]) == 0
    for name in ("runs.parquet", "curves.parquet"):
        one, two = (folder / "mine" / "own" / "run" / name for folder in (out, tmp_path / "whole"))
        assert one.read_bytes() == two.read_bytes()


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_ray_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="needs fedbandit[ray]")
    monkeypatch.setenv("PYTHONPATH", str(Path(fb.__file__).parents[1]))  # for its workers
    experiment = tiny()
    scale = experiment.scales["quick"]
    small = replace(experiment, scales={"quick": Scale(scale.points[:3], 1)}, claims=())
    reproduce([small], "quick", tmp_path / "ray", workers=Workers("ray", jobs=1))
    reproduce([small], "quick", tmp_path / "here", workers=HERE)
    assert files(tmp_path / "ray") == files(tmp_path / "here")


def test_ray_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(FedbanditError, match=r"fedbandit\[ray\]"):
        reproduce([tiny()], "quick", tmp_path, workers=Workers("ray"))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_another_version_is_refused(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / storing.MARK).write_text('{"version": "0.0.1"}')
    said = refusal(capsys, "reproduce", "beyond/tight-noise", "--out", str(tmp_path))
    assert "holds results of fedbandit 0.0.1" in said
    assert "give another folder" in said
    (tmp_path / storing.MARK).write_text("nonsense")
    assert "cannot be read" in refusal(capsys, "reproduce", "beyond/tight-noise", "--out", str(tmp_path))
    assert Store.open(whole).folder == whole / "runs"


def test_a_broken_run_is_run_again(tmp_path: Path) -> None:
    small = replace(tiny(), scales={"quick": Scale(tiny().scales["quick"].points[:4], 1)}, claims=())
    reproduce([small], "quick", tmp_path, workers=HERE)
    before = files(tmp_path)
    path = next((tmp_path / "runs").rglob("*.npz"))
    path.write_bytes(path.read_bytes()[:200])
    done: list[int] = []
    reproduce([small], "quick", tmp_path, workers=HERE, progress=done.append)
    assert len(done) == 1
    assert files(tmp_path) == before


def test_an_address_depends_on_all_that_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    def address(trial: Trial) -> str:
        return address_of(trial, trial.point.make_system(), trial.point.make_environment())

    point = Point("a", fb.linucb(), WORLD)
    trial = Trial(point, 300, 0)
    noisy = fb.environments.homogeneous(n_clients=4, dim=3, n_arms=5, noise=0.2)
    others = [
        trial,
        replace(trial, point=replace(point, system=fb.linucb(ridge=0.2))),
        replace(trial, point=replace(point, env=noisy)),
        replace(trial, horizon=301),
        replace(trial, seed=1),
        replace(trial, point=replace(point, extra="clusters")),
    ]
    assert len({address(other) for other in others}) == len(others)
    before = address(trial)
    same = replace(point, series="b", facet="c", value=1, system=fb.linucb)
    assert address(replace(trial, point=same, checkpoint="x")) == before
    monkeypatch.setattr(storing, "code_version", lambda: "other code")
    assert address(trial) != before


def test_an_address_depends_on_the_users_file(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    words = ("run", str(mine), "--jobs", "1", "--out", str(tmp_path / "out"))
    text = (
        "from dataclasses import dataclass\nimport fedbandit as fb\n"
        "from fedbandit.studies import Curves, Experiment, Point, Scale\n"
        "@dataclass(frozen=True)\nclass Mine(fb.environments.Homogeneous):\n    pass\n"
        "points = [Point('a', fb.linucb, Mine(n_clients=4, dim=3, n_arms=5), 50)]\n"
        "EXPERIMENT = Experiment('mine', {'small': Scale(points, 1)}, (Curves(),))\n"
    )
    for times, content in ((1, text), (1, text), (2, text + "# changed\n")):
        mine.write_text(content)
        module_at.cache_clear()
        assert main([*words]) == 0
        assert len(list((tmp_path / "out" / "runs").rglob("*.npz"))) == times


def test_an_address_depends_on_what_the_users_file_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody's second step is to split the file in two."""
    front, algorithm = tmp_path / "front_of_mine.py", tmp_path / "algorithm_of_mine.py"
    front.write_text("import algorithm_of_mine\ndef mine(): return algorithm_of_mine.system()\n")
    yaml = tmp_path / "z.yaml"
    yaml.write_text(f"environment: homogeneous\nhorizon: 20\nseeds: 1\nsystems: ['{front}:mine']\npanels: [curves]\n")
    for times, alpha in ((1, 0.5), (1, 0.5), (2, 0.7)):
        algorithm.write_text(f"import fedbandit as fb\ndef system(): return fb.linucb()  # {alpha}\n")
        module_at.cache_clear()
        monkeypatch.delitem(sys.modules, "algorithm_of_mine", raising=False)
        assert main(["run", str(yaml), "--jobs", "1", "--out", str(tmp_path / "out")]) == 0
        assert len(list((tmp_path / "out" / "runs").rglob("*.npz"))) == times


def test_shards_share_the_work_and_the_last_one_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    yaml = tmp_path / "s.yaml"
    yaml.write_text(
        "environment: {name: homogeneous, n_clients: 3, dim: 2, n_arms: 3}\nhorizon: 30\nseeds: 5\n"
        "systems: [linucb, uniform]\npanels: [curves]\n"
    )
    words = ["run", str(yaml), "--jobs", "1"]
    whole, shared = tmp_path / "whole", tmp_path / "shared"
    assert main([*words, "--out", str(whole)]) == 0
    counts = []
    for shard in ("1/3", "3/3", "2/3"):
        assert main([*words, "--out", str(shared), "--shard", shard]) == 0
        counts.append(len(list((shared / "runs").rglob("*.npz"))))
        assert ("waiting for other shards" in capsys.readouterr().out) == (shard != "2/3")
    assert counts == [4, 6, 10], "seeds 0 and 3; 2; 1 and 4: both systems of a seed see the same contexts"
    tables = [(folder / "mine/s/run/table.md").read_text() for folder in (whole, shared)]
    assert tables[0] == tables[1]
    assert "The shard is '4/3'" in refusal(capsys, *words, "--out", str(shared), "--shard", "4/3")


def test_a_refused_trial_is_a_reason_and_not_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = running.run_in_steps

    def refuse(trial: Trial, env: fb.environments.Environment, blocks: Ahead) -> Generator[int, None, Run]:
        if trial.point.series == "alone" and trial.seed == 1:
            raise FedbanditError("No, not with this seed.")
        return (yield from real(trial, env, blocks))

    monkeypatch.setattr(running, "run_in_steps", refuse)
    (summary,) = reproduce([tiny()], "quick", tmp_path, workers=HERE)
    assert summary["skipped"]["alone"] == "No, not with this seed."
    assert summary["claims"][0] == {
        "text": "alone has less regret than random, by a factor of at least 1.1.",
        "holds": None,
        "numbers": "alone was not run",
        "otherwise": "",
        "ours": False,
    }
    with pytest.raises(FedbanditError, match="alone: No, not with this seed"):
        reproduce(
            [replace(tiny(), scales={"quick": Scale(tiny().scales["quick"].points[:2], 2)}, claims=())],
            "quick",
            tmp_path / "x",
            workers=HERE,
            strict=True,
        )


def test_each_facet_has_a_table_of_values_against_series(tmp_path: Path) -> None:
    points = [
        Point(name, system, WORLD, 60, value=value, facet=facet)
        for facet in ("here", "there")
        for value in (1, 2)
        for name, system in (("alone", fb.linucb), ("random", fb.uniform))
        if (facet, name) != ("there", "random")
    ]
    shown = replace(tiny(), scales={"quick": Scale(points, 1)}, claims=(), pivot=True, panels=(Sweep(facet="here"),))
    reproduce([shown], "quick", tmp_path, workers=HERE)
    tables = (tmp_path / "test/tiny/quick/table.md").read_text()
    assert [line.count("|") for line in tables.splitlines() if line.startswith("|")] == [4] * 4 + [3] * 4
    assert tables.index("here: cumulative regret") < tables.index("there: cumulative regret")


def test_a_long_run_can_save_its_state_before_anything_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproducing, "LONG", 1)
    checkpoint = make_plan(tiny(), "quick", Store.open(tmp_path)).trials[0].checkpoint
    assert checkpoint is not None
    fb.simulate(fb.linucb(), WORLD, 300, engine="plain", checkpoint=checkpoint, checkpoint_every=1)
    reproduce([tiny()], "quick", tmp_path / "all", workers=HERE)
    assert not list((tmp_path / "all").rglob("*.checkpoint"))


def test_an_experiment_of_which_nothing_can_be_run_has_a_report(tmp_path: Path) -> None:
    only = replace(tiny(), scales={"quick": Scale(tiny().scales["quick"].points[-1:], 1)}, claims=())
    (summary,) = reproduce([only], "quick", tmp_path, workers=HERE)
    assert summary["runs"] == 0
    html = (tmp_path / "test/tiny/quick/report.html").read_text()
    assert "Nothing was run." in html
    assert "lastfm" in html


def test_the_commands_print_one_json_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "import fedbandit as fb\n"
        "from fedbandit.studies import Curves, Experiment, Point, Scale\n"
        "env = fb.environments.homogeneous(n_clients=4, dim=3, n_arms=5)\n"
        "points = [Point('a', fb.linucb, env, 50)]\n"
        "EXPERIMENT = Experiment('mine', {'small': Scale(points, 1), 'large': Scale(points, 2)}, (Curves(),))\n"
    )
    words = ("run", str(own), "--jobs", "1", "--out", str(tmp_path / "out"))
    assert report(capsys, *words)["experiments"][0]["runs"] == 1
    assert report(capsys, *words, "--scale", "large")["experiments"][0]["runs"] == 2
    assert "no scale of mine/own 'larg'; did you mean 'large'?" in refusal(capsys, *words, "--scale", "larg")
    assert (tmp_path / "out" / "mine" / "own" / "small" / "report.html").exists()
    assert main([*words[:-1], str(tmp_path / "other")]) == 0
    said = capsys.readouterr()
    assert said.err == "50 interactions to run.\n"  # there is no terminal to draw a bar on
    assert "\n1 experiment in " in said.out
