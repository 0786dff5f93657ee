"""Every keyword of every system and environment is explained, and nothing is explained that does not exist."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedbandit import keywords
from fedbandit.cli.list import parts
from fedbandit.cli.main import main
from fedbandit.presets.compose import keywords_of
from fedbandit.studies.specs import ENVIRONMENTS_BY_TEXT, SYSTEMS, hyphenated
from tests.cli.command_line import refusal

PARTS = {hyphenated(name): maker for makers in parts().values() for name, maker in makers.items()}


@pytest.mark.parametrize(
    ("kind", "makers", "table"),
    [
        ("system", SYSTEMS, keywords.SYSTEMS),
        ("environment", ENVIRONMENTS_BY_TEXT, keywords.ENVIRONMENTS),
        ("part", PARTS, keywords.PARTS),
    ],
)
def test_every_keyword_has_a_meaning_and_every_meaning_a_keyword(
    kind: keywords.Kind, makers: dict[str, Any], table: dict[str, str]
) -> None:
    taken = {(name, key) for name, maker in makers.items() for key in keywords_of(maker) if key not in keywords.SETTLED}
    silent = [f"{name}.{key}" for name, key in sorted(taken) if not keywords.meaning(name, key, kind, makers[name])]
    assert not silent, f"neither docstrings nor fedbandit/keywords.py say anything about {silent}"
    stale = [entry for entry in table if not any(entry in (key, f"{name}.{key}") for name, key in taken)]
    assert not stale, f"fedbandit/keywords.py explains {stale}, which nothing takes"


def test_one_system_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "async-linucb"]) == 0
    text = capsys.readouterr().out
    assert "--gamma-upload" in text
    assert "a client uploads when det V" in " ".join(text.split())
    assert "Default: 5.0." in " ".join(text.split())
    assert main(["list", "homogeneous", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["kind"] == "environment"
    assert {"name": "n_clients", "default": "100", "meaning": "N ≥ 1 clients."} in entry["keywords"]
    assert "did you mean 'async-linucb'?" in refusal(capsys, "list", "asyn-linucb")


def test_help_about_one_system_is_about_that_system(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["simulate", "async-linucb", "--help"])
    text = capsys.readouterr().out
    assert "--gamma-upload" in text
    assert "--alpha-split" not in text


def test_parts_are_listed_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "policies"]) == 0
    assert "linphe   Add fresh noise to every past reward" in capsys.readouterr().out
    for kind, one in (("structures", "everyone"), ("protocols", "count-triggered"), ("privacies", "no-privacy")):
        assert main(["list", kind, "--json"]) == 0
        (entries,) = json.loads(capsys.readouterr().out).values()
        assert one in {entry["name"] for entry in entries}
    assert main(["list", "igw"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("policy igw Draw arm a with probability")
    assert "Larger explores less. Default: 10.0." in text
    for kind in parts():
        assert main(["list", kind]) == 0
        for line in capsys.readouterr().out.splitlines()[1:]:
            assert line.endswith("."), "a sentence is cut"
    assert main(["list", "private-statistics"]) == 0
    assert "\n  portions" not in capsys.readouterr().out
    assert main(["list"]) == 0
    assert "fedbandit list policies | structures" in capsys.readouterr().out


def test_a_part_in_a_file_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.py"
    file.write_text('def my_system(c: float = 5.0):\n    """Mine.\n\n    c: a constant.\n    """\n', encoding="utf-8")
    assert main(["list", f"{file}:my_system"]) == 0
    assert (
        " ".join(capsys.readouterr().out.split())
        == f"from {file}:my_system Mine. c: a constant. c a constant. Default: 5.0."
    )


def test_a_part_explains_its_own_keyword_whatever_others_mean_by_it() -> None:
    def mine(alpha: float, growth: float) -> None:
        """Mine.

        alpha: how bold it is,
            from 0 to 1.
        """

    assert keywords.meaning("mine", "alpha", "part", mine) == "how bold it is, from 0 to 1."
    assert keywords.meaning("mine", "growth", "part", mine) == keywords.SYSTEMS["growth"]
    assert keywords.meaning("linphe", "alpha", "part", mine) == keywords.PARTS["linphe.alpha"]
