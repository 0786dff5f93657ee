"""`fedbandit simulate`: what scripts rely on, and what flags mean."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.cli.main import main
from tests.cli.command_line import recorded_arrays, refusal, report, write_my_file

PLAIN = ["--engine", "plain"]  # what "auto" takes depends on what is compiled already
SMALL = ["--clients", "4", "--dim", "3", "--arms", "5", "--horizon", "60", *PLAIN]
CONTRACT = [
    "system",
    "environment",
    "horizon",
    "seed",
    "regret",
    "reward",
    "uploads",
    "downloads",
    "scalars",
    "bytes",
    "engine",
    "seconds",
    "guarantee",
]


def test_simulate_prints_the_contract_and_equals_the_library(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["async-linucb", "--env", "homogeneous", *SMALL, "--seed", "7", "--gamma-upload", "2", "--warm-join"]
    printed = report(capsys, "simulate", *words)
    assert list(printed) == CONTRACT
    env = fb.environments.homogeneous(n_clients=4, dim=3, n_arms=5)
    result = fb.simulate(fb.async_linucb(gamma_upload=2.0, warm_join=True), env, horizon=60, seed=7, engine="plain")
    expected = {**result.summary(), "system": "async-linucb", "seconds": printed["seconds"]}
    assert printed == expected
    assert printed["uploads"] > 0


def test_simulate_prints_a_readable_summary_with_the_guarantee(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "linucb", *SMALL]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("linucb on homogeneous: 60 rounds, seed 0\n")
    assert "guarantee  none" in captured.out
    assert re.search(r"engine +(plain|fast)\n", captured.out)
    assert captured.err == ""  # no progress bar where nobody watches


@pytest.mark.parametrize("engine", ["plain", "fast"])
def test_the_engine_can_be_chosen(capsys: pytest.CaptureFixture[str], engine: str) -> None:
    assert main(["simulate", "linucb", *SMALL, "--engine", engine]) == 0
    assert re.search(rf"engine +{engine}\n", capsys.readouterr().out)


def test_names_may_have_hyphens_or_underscores_and_an_alias(capsys: pytest.CaptureFixture[str]) -> None:
    reports = [report(capsys, "simulate", name, *SMALL) for name in ("sync-linucb", "sync_linucb", "dislinucb")]
    for printed in reports:
        del printed["seconds"]
    assert reports[0]["system"] == "sync-linucb"
    assert reports[0] == reports[1] == reports[2]


@pytest.mark.parametrize(
    ("flags", "keywords"),
    [
        (["--pool", "20"], {"pool": 20}),
        (["--drift", "20,40"], {"drift": (20, 40)}),
        (["--drift", "20"], {"drift": (20,)}),
        (["--delay", "5"], {"delay": 5}),
        (["--delay", "1,10"], {"delay": (1, 10)}),
        (["--arrivals", "skewed"], {"arrivals": "skewed"}),
        (["--arrivals=0.7,0.1,0.1,0.1"], {"arrivals": (0.7, 0.1, 0.1, 0.1)}),
        (["--noise", "0.5", "--rewards", "gaussian"], {"noise": 0.5}),
        (["--rounds", "all", "--horizon", "2e1"], {"rounds": "all"}),
    ],
)
def test_keywords_of_the_environment_are_flags(
    capsys: pytest.CaptureFixture[str], flags: list[str], keywords: dict[str, Any]
) -> None:
    printed = report(capsys, "simulate", "linucb", *SMALL, *flags)
    env = fb.environments.homogeneous(n_clients=4, dim=3, n_arms=5, **keywords)
    result = fb.simulate(fb.linucb(), env, horizon=printed["horizon"], seed=0, engine="plain")
    assert printed["regret"] == result.regret[-1]


def test_keywords_of_the_system_are_flags_or_inline(capsys: pytest.CaptureFixture[str]) -> None:
    env = fb.environments.homogeneous(n_clients=4, dim=3, n_arms=5)
    flagged = report(capsys, "simulate", "async-linucb", *SMALL, "--gamma-download", "inf", "--policy", "lints")
    inline = report(capsys, "simulate", "async-linucb:gamma-download=inf,policy=lints", *SMALL)
    result = fb.simulate(
        fb.async_linucb(gamma_download=np.inf, policy="lints"), env, horizon=60, seed=0, engine="plain"
    )
    assert flagged["regret"] == inline["regret"] == result.regret[-1]
    assert flagged["downloads"] == 0
    wide = report(capsys, "simulate", "linucb:noise=2", *SMALL)
    assert wide["regret"] == fb.simulate(fb.linucb(noise=2.0), env, horizon=60, seed=0, engine="plain").regret[-1]


def test_a_policy_may_have_parameters_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """As text on the command line and in Python."""
    env = fb.environments.homogeneous(n_clients=4, dim=3, n_arms=5)
    told = report(capsys, "simulate", "async-linucb", *SMALL, "--policy", "ucb(noise=0.3, confidence=0.5)")
    for policy in ("ucb(noise=0.3, confidence=0.5)", fb.policies.UCB(noise=0.3, confidence=0.5)):
        result = fb.simulate(fb.async_linucb(policy=policy), env, horizon=60, seed=0, engine="plain")
        assert told["regret"] == result.regret[-1]
    assert main(["simulate", "async-linucb", *SMALL, "--policy", "ucb(nose=1)"]) == 2
    assert "did you mean 'noise'" in capsys.readouterr().err


@pytest.mark.parametrize("gamma", ["2,3,4", "exp(1/N)", "inf"])
def test_thresholds_may_differ_by_client_or_be_rules_by_name(gamma: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "async-linucb", "--clients", "3", "--dim", "3", "--arms", "4", "--horizon", "50"]
    assert (report(capsys, *words, "--gamma-upload", gamma)["uploads"] == 0) == (gamma == "inf")


def test_simulate_saves_and_plots(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    saved, plot = tmp_path / "a.npz", tmp_path / "a.png"
    printed = report(capsys, "simulate", "async-linucb", *SMALL, "--save", str(saved), "--plot", str(plot))
    assert fb.Result.load(saved).regret[-1] == printed["regret"]
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert sorted(tmp_path.iterdir()) == [saved, plot]


def test_simulate_goes_on_from_a_checkpoint(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    env = fb.environments.homogeneous(n_clients=4, dim=3, n_arms=5, pool=20)
    state = tmp_path / "state"
    result = fb.simulate(fb.linucb(), env, horizon=5000, seed=0, engine="plain", checkpoint=state, checkpoint_every=1)
    words = ["simulate", "linucb", *SMALL, "--pool", "20", "--horizon", "5000", "--checkpoint", str(state)]
    assert report(capsys, *words)["regret"] == result.regret[-1]
    assert "belongs to another simulation" in refusal(capsys, *words, "--seed", "1")


def test_what_is_not_said_has_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    printed = report(capsys, "simulate", "uniform", "--arms", "2", *PLAIN)
    assert (printed["environment"], printed["horizon"], printed["seed"]) == ("homogeneous", 30_000, 0)
    env = fb.environments.homogeneous(n_clients=100, dim=25, n_arms=2)
    assert printed["regret"] == fb.simulate(fb.uniform(), env, horizon=30_000, seed=0, engine="plain").regret[-1]


def test_recorded_data_come_from_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, log = tmp_path / "log.npz", recorded_arrays()
    np.savez(path, **log)
    printed = report(capsys, "simulate", "linucb", "--env", "recorded", "--path", str(path), *PLAIN)
    assert printed["horizon"] == 30
    env = fb.environments.recorded(**log)
    assert printed["regret"] == fb.simulate(fb.linucb(), env, horizon=30, seed=0, engine="plain").regret[-1]


def test_recorded_rounds_may_offer_different_numbers_of_arms(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    counts = 1 + np.arange(30) % 4
    path, log = tmp_path / "log.npz", recorded_arrays()
    np.savez(path, **log, counts=counts, delays=np.full(30, 2))
    printed = report(capsys, "simulate", "linucb", "--env", "recorded", "--path", str(path), *PLAIN)
    ragged: dict[str, Any] = {
        name: [log[name][t, :count] for t, count in enumerate(counts)] for name in ("arms", "means", "rewards")
    }
    env = fb.environments.recorded(log["clients"], **ragged, delays=np.full(30, 2))
    assert printed["regret"] == fb.simulate(fb.linucb(), env, horizon=30, seed=0, engine="plain").regret[-1]


def test_a_system_may_stand_in_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    my_file = write_my_file(tmp_path)
    env = fb.environments.homogeneous(n_clients=4, dim=3, n_arms=5)
    plain = report(capsys, "simulate", f"{my_file}:my_system", *SMALL)
    assert plain["system"] == "my-system"
    assert plain["uploads"] == fb.simulate(fb.async_linucb(gamma_upload=2.0), env, 60, 0).communication.uploads
    inline = report(capsys, "simulate", f"{my_file}:my-system:strength=3,keen=true", *SMALL)
    flagged = report(capsys, "simulate", "--keen", "--strength", "3", f"{my_file}:my_system", *SMALL, "--label", "7")
    assert inline["uploads"] == flagged["uploads"]
    assert inline["downloads"] == flagged["downloads"] != plain["downloads"]
