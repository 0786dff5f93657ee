"""Experiments of one's own: what a YAML file can say, and one sentence for whatever is wrong with it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import fedbandit as fb
from fedbandit.errors import FedbanditError
from fedbandit.studies.specs import described
from fedbandit.studies.user_file import read_experiment
from tests.cli.command_line import refusal

GOOD = """
title: Does skew matter?
environment: {name: homogeneous, n_clients: 4, dim: 3, n_arms: 4, arrivals: $who}
horizon: 200
seeds: 2
grid:
  who: [uniform, skewed]
  gamma: [2, 8.5]
systems:
  - linucb
  - {name: async-linucb, label: Async, gamma_upload: $gamma, gamma_download: $gamma, warm_join: true}
panels:
  - {kind: sweep, y: regret, x: who acts}
  - curves
claims:
  - {kind: below, lower: Async, upper: linucb, factor: 0.5, measure: regret}
  - {kind: ordered, series: [Async, linucb]}
"""


def written(folder: Path, text: str, name: str = "my_own.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_grid_becomes_points(tmp_path: Path) -> None:
    experiment = read_experiment(written(tmp_path, GOOD))
    assert experiment.name == "mine/my-own"
    points = experiment.scales["run"].points
    assert [(point.series, point.value, point.facet) for point in points] == [
        ("linucb", "", "who = uniform"),
        ("Async", 2, "who = uniform"),
        ("Async", 8.5, "who = uniform"),
        ("linucb", "", "who = skewed"),
        ("Async", 2, "who = skewed"),
        ("Async", 8.5, "who = skewed"),
    ]
    assert described(points[2].system) == "async-linucb:gamma_upload=8.5,gamma_download=8.5,warm_join=true"
    assert described(points[5].env) == "homogeneous:n_clients=4,dim=3,n_arms=4,arrivals=skewed"
    assert points[2].make_system() == fb.async_linucb(gamma_upload=8.5, gamma_download=8.5, warm_join=True)
    assert [type(panel).__name__ for panel in experiment.panels] == ["Sweep", "Curves"] * 2
    assert [panel.facet for panel in experiment.panels] == ["who = uniform"] * 2 + ["who = skewed"] * 2
    assert [claim.needs for claim in experiment.claims] == [("Async", "linucb")] * 4
    assert experiment.claims[2].text.endswith("(who = skewed)")


def test_a_short_file_is_enough(tmp_path: Path) -> None:
    experiment = read_experiment(written(tmp_path, "environment: homogeneous\nsystems: [linucb, uniform]\nhorizon: 10"))
    assert experiment.title == "my_own.yaml"
    assert experiment.scales["run"].seeds == 5
    assert [type(panel).__name__ for panel in experiment.panels] == ["Curves", "Tradeoff"]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("systems:", "sytems:", "no key of an experiment (my_own.yaml) 'sytems'; did you mean 'systems'?"),
        ("horizon: 200", "horizont: 200", "'horizont'; did you mean 'horizon'?"),
        ("horizon: 200", "horizon: many", "horizon is 'many', but must be a whole number ≥ 1."),
        ("seeds: 2", "seeds: 0", "seeds is 0, but must be a whole number ≥ 1."),
        ("environment: {name", "environment: {nam", "An entry of environment has no 'name'"),
        ("kind: below", "kind: bellow", "no kind of claim 'bellow'; did you mean 'below'?"),
        ("lower: Async", "lowr: Async", "no key of the claim 'below' 'lowr'; did you mean 'lower'?"),
        ("upper: linucb, ", "", "The claim 'below' has no 'upper', which it needs."),
        ("upper: linucb", "upper: lunicb", "no series 'lunicb'; did you mean 'linucb'?"),
        ("measure: regret", "measure: regrte", "no measure 'regrte'; did you mean 'regret'?"),
        ("kind: sweep, y: regret", "kind: sweep, why: regret", "no key of the panel 'sweep' 'why'"),
        ("- curves", "- curvs", "no kind of panel 'curvs'; did you mean 'curves'?"),
        ("gamma_upload: $gamma", "gamma_upload: $gama", "no grid 'gama'; did you mean 'gamma'?"),
        ("who: [uniform, skewed]", "who: uniform", "grid: who is 'uniform', but must be a list."),
        ("  gamma: [2, 8.5]", "  gamma: [2]\n  other: [1]", "grid has 'other', but no system"),
        ("  gamma: [2, 8.5]", "  gamma: []", "grid: gamma is an empty list, but must have at least one entry."),
        ("- linucb\n", "- {name: uniform, label: Async}\n", "the same label"),
        ("systems:", "systems: [", "is not YAML in line"),
        ("series: [Async, linucb]", "series: Async", "series is 'Async', but must be a list of at least two."),
    ],
)
def test_what_is_wrong_is_said_with_the_key(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    assert old in GOOD
    with pytest.raises(FedbanditError) as error:
        read_experiment(written(tmp_path, GOOD.replace(old, new, 1)))
    assert sentence in str(error.value)


def test_files_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "There is no file" in refusal(capsys, "run", str(tmp_path / "none.yaml"))
    assert "must end in .yaml" in refusal(capsys, "run", str(written(tmp_path, "", "my.txt")))
    assert "but must be keys" in refusal(capsys, "run", str(written(tmp_path, "")))
    assert "has no 'environment'" in refusal(capsys, "run", str(written(tmp_path, "title: x")))
    assert "has no EXPERIMENT" in refusal(capsys, "run", str(written(tmp_path, "x = 1", "my.py")))
    wrong = GOOD.replace("gamma_upload:", "gama_upload:")
    out = ("--out", str(tmp_path / "out"))
    said = refusal(capsys, "run", str(written(tmp_path, wrong)), *out)
    assert "no keyword of async-linucb 'gama_upload'; did you mean 'gamma_upload'?" in said
    assert "no system 'lunicb'" in refusal(
        capsys,
        "run",
        str(
            written(
                tmp_path,
                GOOD.replace("- linucb", "- lunicb")
                .replace("upper: linucb", "upper: lunicb")
                .replace("[Async, linucb]", "[Async, lunicb]"),
            )
        ),
        *out,
    )
    assert "needs --workers ray" in refusal(capsys, "run", str(written(tmp_path, GOOD)), "--address", "x", *out)
    assert "--jobs is 0" in refusal(capsys, "run", str(written(tmp_path, GOOD)), "--jobs", "0", *out)


def test_without_pyyaml_it_is_said_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(FedbanditError, match=r"needs PyYAML: pip install 'fedbandit\[studies\]'"):
        read_experiment(written(tmp_path, GOOD))


def test_no_system_is_said(tmp_path: Path) -> None:
    with pytest.raises(FedbanditError, match="systems is an empty list"):
        read_experiment(written(tmp_path, "environment: homogeneous\nsystems: []\nhorizon: 10"))


def test_a_function_in_a_file_is_called_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import fedbandit as fb\ndef my_system(): return fb.linucb()\n")
    text = f"environment: homogeneous\nsystems: ['{tmp_path}/mine.py:my_system']\nhorizon: 10"
    (point,) = read_experiment(written(tmp_path, text)).scales["run"].points
    assert point.series == "my-system"
