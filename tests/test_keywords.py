"""Every keyword of every system and environment is explained, and nothing is explained that does not exist."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fedbandit import keywords
from fedbandit.cli.main import main
from fedbandit.presets.compose import keywords_of
from fedbandit.studies.specs import ENVIRONMENTS_BY_TEXT, SYSTEMS
from tests.cli.command_line import refusal


@pytest.mark.parametrize(("makers", "environment"), [(SYSTEMS, False), (ENVIRONMENTS_BY_TEXT, True)])
def test_every_keyword_has_a_meaning_and_every_meaning_a_keyword(makers: dict[str, Any], environment: bool) -> None:
    taken = {(name, keyword) for name, maker in makers.items() for keyword in keywords_of(maker)}
    silent = [
        f"{name}.{key}" for name, key in sorted(taken) if not keywords.meaning(name, key, environment=environment)
    ]
    assert not silent, f"fedbandit/keywords.py says nothing about {silent}"
    table = keywords.ENVIRONMENTS if environment else keywords.SYSTEMS
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
    assert "scale Default: 10.0." in text
    assert main(["list"]) == 0
    assert "fedbandit list policies | structures" in capsys.readouterr().out
