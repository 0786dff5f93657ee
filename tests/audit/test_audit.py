"""The audit passes what is right, and says what it has not attacked; `test_planted` has what is wrong."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.audit import AuditReport, attack, audit_system, private_systems
from fedbandit.audit.mechanism_attack import likelihood_attack, neighbouring_increments
from fedbandit.audit.neighbours import RecordLimits, worst_records
from fedbandit.cli.main import main
from fedbandit.errors import FedbanditError
from fedbandit.machines.client import ClientMachine
from fedbandit.presets import PRESETS
from fedbandit.privacy import NoisyRewards, PrivateStatistics
from fedbandit.privacy.mechanism import reward_mechanism
from fedbandit.privacy.noise import gram_neighbours
from fedbandit.privacy.published import l2_laplace_tree
from fedbandit.protocols import CountTriggered, EventTriggered, Never, Synchronous
from tests.cli.command_line import refusal, report

BY_COUNTS = Synchronous(growth=1.5, batch=16)


def failed(found: AuditReport) -> set[str]:
    """The names of the checks that failed."""
    return {check.name for check in found.checks if not check.passed and not check.skipped}


RIGHT = {
    "feducb": fb.feducb(),
    "feducb for each client": fb.feducb(epsilon=[0.5, 2.0, 1.0]),
    "dp_linucb": fb.dp_linucb(),
    "dp_linucb with contexts": fb.dp_linucb(delta=1e-5),
    "async_linucb": fb.async_linucb(gamma_upload=1.5, privacy=PrivateStatistics()),
    "count_linucb by trees": fb.count_linucb(privacy=PrivateStatistics(kind="tree")),
    "a client's whole contribution": fb.count_linucb(privacy=PrivateStatistics(contribution=40)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_passes(name: str) -> None:
    """And the bound is not empty: at least half of ε is found."""
    found = audit_system(RIGHT[name], trials=4_000, rounds=100)
    assert found.passed, str(found)
    claim = RIGHT[name].guarantee.epsilon
    assert 0.5 * claim < found.lower_bound <= claim
    assert found.guarantee.basis == "proven"


@pytest.mark.parametrize(("right", "dim"), [(True, 5), (False, 5), (False, 25)])
def test_laplace_noise_with_an_l2_sensitivity_fails(right: bool, dim: int) -> None:
    """Coordinate by coordinate; gamma noise with the same sensitivity passes."""
    mechanism = reward_mechanism(1.0, 0.0, 1, dim, kind="tree") if right else l2_laplace_tree(1.0, 1, dim)
    pair = neighbouring_increments(mechanism, RecordLimits(1.0, dim, 0.0, 1.0, False), 1)
    claim = fb.Guarantee(basis="proven", epsilon=1.0)
    check, _ = likelihood_attack(mechanism, pair, claim, np.random.default_rng(0), 20_000)
    assert check.passed == right
    assert (check.lower_bound > 1.2) != right


@pytest.mark.parametrize(
    "system",
    [
        fb.feducb(calibration="published"),
        fb.async_linucb(privacy=PrivateStatistics(calibration="published")),
    ],
    ids=lambda system: system.name,
)
def test_published_triggers_are_told_by_their_timing(system: fb.System) -> None:
    """Their noise is more than enough; when clients speak is not noised at all."""
    found = audit_system(system, trials=1_000)
    assert failed(found) == {"client, times and counts"}
    assert found.guarantee.basis == "as published"
    assert found.guarantee.true_epsilon == math.inf
    assert found.lower_bound > 2 * found.guarantee.epsilon
    assert "FAILED" in str(found)


@pytest.mark.parametrize("protocol", [EventTriggered(), Synchronous(threshold=1.0)])
def test_raw_triggers_are_refused_under_proven(protocol: Any) -> None:
    """With the reason, and what to use instead."""
    with pytest.raises(FedbanditError, match=r"its trigger reads raw data.*no finite ε holds; use CountTriggered"):
        fb.System(protocol=protocol, privacy=PrivateStatistics())
    fb.System(protocol=protocol, privacy=NoisyRewards(1.0))  # times are functions of noised rewards
    with pytest.raises(FedbanditError, match="nothing is ever released"):
        fb.System(protocol=Never(), privacy=PrivateStatistics())
    fb.System(protocol=CountTriggered(), privacy=PrivateStatistics())


def test_the_worst_records_are_those_of_the_proof() -> None:
    """Where they exist; otherwise the nearest ones that may be."""
    a, b = worst_records(RecordLimits(2.0, 3, -1.0, 1.0, True), 0.7)
    for record, M in zip((a, b), gram_neighbours(2.0, 1.0, 0.7, 3), strict=True):
        row = np.append(record.x, 0.7 * record.y)
        np.testing.assert_allclose(np.outer(row, row), M)
    a, b = worst_records(RecordLimits(1.0, 3, -5.0, 5.0, True), 1.0)
    np.testing.assert_allclose(a.x, -b.x)


def test_private_presets_are_found() -> None:
    """Without a list to edit."""
    found = dict(private_systems(PRESETS))
    assert {"feducb", "dp_linucb"} <= set(found)
    assert not {"linucb", "async_linucb", "dislinucb"} & set(found)


KEYS = ["system", "epsilon", "delta", "lower_bound", "passed", "basis"]


def test_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One object for one system, with a picture; several for all; status 1 where a claim fails."""
    picture = tmp_path / "scores.png"
    quick = ("--trials", "1000", "--horizon", "60")
    found = report(capsys, "audit", "feducb", "--epsilon", "2", "--delta", "1e-6", *quick, "--out", str(picture))
    assert list(found)[:6] == KEYS
    assert [found[key] for key in ("system", "epsilon", "delta", "passed", "basis")] == [
        "feducb",
        2,
        1e-6,
        True,
        "proven",
    ]
    assert 0 < found["lower_bound"] <= 2
    assert picture.read_bytes().startswith(b"\x89PNG")
    several = report(capsys, "audit", *quick)["audits"]
    assert {"feducb", "dp_linucb"} <= {one["system"] for one in several}
    assert main(["audit", "feducb", "--calibration", "published", "--horizon", "100", "--trials", "1000"]) == 1
    out = capsys.readouterr().out
    assert "as published" in out
    assert "FAIL  ε ≥" in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("linucb",), "linucb claims no privacy, so there is nothing to audit"),
        (("feducb", "--epsilon", "0"), "epsilon is 0"),
        (("feducb", "--delta", "2"), "delta is 2"),
        (("feducb", "--trials", "5"), "trials is 5, but must be a whole number ≥ 1000"),
        (("feducb", "--gamma-upload", "2"), "--gamma-upload is not a keyword of feducb"),
        (("--out", "a.png"), "--out draws one system"),
    ],
)
def test_refusals(words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence each."""
    assert sentence in refusal(capsys, "audit", *words)


def test_the_audit_in_the_docs_is_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """To the last digit."""
    assert main(["audit", "feducb"]) == 0
    docs = (Path(__file__).parents[2] / "docs" / "privacy.md").read_text(encoding="utf-8")
    assert f"$ fedbandit audit feducb\n{capsys.readouterr().out}```" in docs


def test_what_the_claim_takes_as_given_is_measured() -> None:
    """One flipped reward changes choices, and what is released of these tells far more than the ε of one record."""
    found = audit_system(fb.feducb(), trials=1_000, rounds=200)
    (choices,) = (check for check in found.checks if check.name == "client, choices")
    assert choices.verdict == "SKIP"
    assert float(choices.detail.rpartition("ε = ")[2]) > 10 * found.guarantee.epsilon


NETWORK_NOISE = "network client, noise"


@pytest.mark.parametrize("own", ["exact", "released"])
@pytest.mark.parametrize("trust", ["sums", "coordinator"])
def test_what_is_not_attacked_of_a_total_is_said(trust: Any, own: Any) -> None:
    """Every attack on a client is made or skipped, and an ε that was computed is not called measured."""
    found = audit_system(fb.feducb(trust=trust, own=own), trials=1_000, rounds=60)
    alone = audit_system(fb.feducb(own=own), trials=1_000, rounds=60)
    verdicts = {check.name: check.verdict for check in found.checks}
    assert {check.name for check in alone.checks} - {"mechanism"} <= set(verdicts)
    spared = {"sums": {"mechanism, likelihood ratio"}, "coordinator": {"members, independent noise", NETWORK_NOISE}}
    given = {"client, choices"} if own == "exact" else set[str]()
    assert {name for name, verdict in verdicts.items() if verdict == "SKIP"} == spared[trust] | given
    text = str(found)
    assert f"passed, {found.skipped} not attacked" in text
    assert ("claimed ε = 1, computed ε = 1.000: " in text) == ("measured" not in text) == (trust == "sums")
    assert "simulation noise (in this audit)\n" in text
    assert "NOT PRIVATE IN USE" not in text


@pytest.mark.parametrize(
    "system", [fb.ldp_colin(mechanism="sums", gamma_upload=2.0, gamma_download=2.0), RIGHT["dp_linucb with contexts"]]
)
def test_choices_are_attacked_after_releases_too(system: fb.System) -> None:
    """Downloads are sent, the same ones in both worlds: a pass is about some arms, and says about how many."""
    found = audit_system(system, trials=1_000, rounds=60)
    (choices,) = (check for check in found.checks if check.name == "client, choices")
    assert choices.verdict == "pass"
    assert choices.detail.startswith("59 arms, with the same download after each of ")


def test_where_there_is_no_client_to_attack_the_report_says_so() -> None:
    """The mechanism is attacked all the same."""

    def no_machine(*_: Any, **__: Any) -> ClientMachine:
        raise FedbanditError("There are no separate clients.")

    found = audit_system(fb.feducb(), trials=1_000, make_machine=no_machine)
    assert found.checks[-1].detail == "not attacked: There are no separate clients."
    assert found.checks[-1].verdict == "SKIP"
    assert (found.passed, found.skipped) == (True, 1)
    assert not replace(found, checks=found.checks[-1:]).passed  # skipping everything is not passing


def test_a_claim_that_the_system_itself_calls_false_fails() -> None:
    """Whatever attacks find: the collaborative paper's noise has √6 times its ε here, computed."""
    found = audit_system(fb.dp_colin(calibration="published"), trials=1_000, rounds=20)
    assert not found.passed
    assert found.guarantee.true_epsilon == pytest.approx(math.sqrt(6))
    assert "FAILED: the true ε is 2.449" in str(found)
    assert "mechanism, exact" in failed(found)


def test_a_sound_system_whose_streams_begin_anew_passes() -> None:
    """More releases than one mechanism is for are no fault where each record is in one stream."""
    found = audit_system(fb.ldp_colin(mechanism="sums", gamma_upload=2.0, gamma_download=2.0), trials=1_000)
    assert found.passed, str(found)


def test_any_mechanism_can_be_attacked() -> None:
    """Right noise is accepted, half of it is not, and floating point that only one world produces is recognised."""
    rng = np.random.default_rng(0)
    one, other = np.zeros(3), np.array([0.6, 0.8, 0.0])
    right = attack(lambda x: x + rng.laplace(0.0, 1.4, 3), one, other)  # ε = ‖D‖₁/1.4 = 1
    assert 0.4 < right.lower_bound <= 1.0
    assert attack(lambda x: x + rng.laplace(0.0, 0.45, 3), one, other).lower_bound > 1.0
    assert attack(lambda x: x + rng.choice([0.1, 0.2, 0.3]), 0.0, 1e-3, trials=3_000).lower_bound > 3
    with pytest.raises(FedbanditError, match="that alone tells them apart"):
        attack(lambda x: np.zeros(int(x)), 1, 2, trials=100)
    with pytest.raises(FedbanditError, match="now more numbers and now fewer"):
        attack(lambda _: np.zeros(rng.integers(1, 3)), 1, 2, trials=100)
