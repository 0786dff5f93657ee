"""The audit passes what is right and fails every planted fault: in a mechanism, in a client, in a trigger."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.audit import AuditReport, audit_system, private_systems
from fedbandit.audit.mechanism_attack import likelihood_attack, neighbouring_increments
from fedbandit.audit.neighbours import Limits, worst_records
from fedbandit.cli.main import main
from fedbandit.errors import FedbanditError
from fedbandit.machines.client import ClientMachine
from fedbandit.messages import Message, Request, Upload
from fedbandit.presets import PRESETS
from fedbandit.privacy import NoisyRewards, PrivateStatistics
from fedbandit.privacy.blt import blt
from fedbandit.privacy.mechanism import Mechanism, reward_mechanism
from fedbandit.privacy.noise import Source, gram_neighbours
from fedbandit.privacy.published import l2_laplace_tree
from fedbandit.privacy.release_stream import ReleaseStream
from fedbandit.protocols import CountTriggered, EventTriggered, Growth, Never, Synchronous
from fedbandit.rewards import RewardRule
from fedbandit.types import Array
from fedbandit.world import World
from tests.cli.command_line import refusal, report

BY_COUNTS = Synchronous(growth=1.5, batch=16)


@dataclass(frozen=True)
class Faulty(PrivateStatistics):
    """Statistics with less noise than their claim needs."""

    factor: float = 1.0

    def _mechanism(self, epsilon: float, releases: int, world: World) -> Mechanism:
        right = super()._mechanism(epsilon, releases, world)
        return replace(right, scale=self.factor * right.scale)


def failed(found: AuditReport) -> set[str]:
    """The names of the checks that failed."""
    return {check.name for check in found.checks if not check.passed}


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


FAULTS = {
    "sensitivity without its √2": Faulty(factor=math.sqrt(0.5)),
    "noise 10 % low": Faulty(factor=0.9),
    "one tree level too few": Faulty(kind="tree", factor=math.sqrt(2 / 3)),  # 6 releases have 3 levels
}


@pytest.mark.parametrize("fault", FAULTS)
def test_too_little_noise_fails(fault: str) -> None:
    """By the exact check, and by what clients send; with enough streams by likelihood ratios too."""
    system = fb.System(protocol=BY_COUNTS, privacy=FAULTS[fault])
    assert system.told(World(3, 2, 600, per_round=3)).protocol.releases(World(3, 2, 600, per_round=3)) == 6
    found = audit_system(system, trials=12_000)
    assert {"mechanism, exact", "client, contents"} <= failed(found)
    assert found.lower_bound > found.guarantee.epsilon
    if fault == "sensitivity without its √2":
        assert "mechanism, likelihood ratio" in failed(found)


@dataclass(frozen=True)
class FaultyRewards(NoisyRewards):
    """Rewards with less noise than their claim needs."""

    epsilon: float = 1.0
    factor: float = 0.9

    @property
    def reward_rule(self) -> RewardRule:
        right = super().reward_rule
        return right._replace(scale=self.factor * right.scale)


def test_too_little_noise_on_rewards_fails() -> None:
    """By what a client learns from, and by counting."""
    for factor, checks in ((1.0, set()), (0.9, {"client, noised rewards", "mechanism, likelihood ratio"})):
        found = audit_system(fb.System(protocol=Never(), privacy=FaultyRewards(factor=factor)), trials=20_000)
        assert failed(found) == checks


@pytest.mark.parametrize(("right", "dim"), [(True, 5), (False, 5), (False, 25)])
def test_laplace_noise_with_an_l2_sensitivity_fails(right: bool, dim: int) -> None:
    """Coordinate by coordinate; gamma noise with the same sensitivity passes."""
    mechanism = reward_mechanism(1.0, 0.0, 1, dim, kind="tree") if right else l2_laplace_tree(1.0, 1, dim)
    pair = neighbouring_increments(mechanism, Limits(1.0, dim, 0.0, 1.0, False), 1)
    claim = fb.Guarantee(basis="proven", epsilon=1.0)
    check, _ = likelihood_attack(mechanism, pair, claim, np.random.default_rng(0), 20_000)
    assert check.passed == right
    assert (check.lower_bound > 1.2) != right


class QuietSource:
    """A generator whose normals are 10 % too small, whatever the mechanism says."""

    def __init__(self, rng: Any) -> None:
        self.rng = rng

    def standard_normal(self, size: tuple[int, ...]) -> Array:
        return np.asarray(0.9 * self.rng.standard_normal(size))


class Quiet(ClientMachine):
    """A client that draws less noise than its mechanism says."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        assert self.stream is not None
        source = self.stream.source

        def quiet(k: int) -> Source:
            return QuietSource(source(k))  # type: ignore[return-value]

        self.stream.source = quiet


class Nervous(ClientMachine):
    """A client with a raw trigger, whatever its system says."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.trigger, self.threshold = Growth(np.array([1.0])), 1.0


class Talkative(ClientMachine):
    """A client whose uploads say how large the determinant of its exact data is."""

    def upload(self) -> Upload:
        return replace(super().upload(), known=self.model.logdet)


class Leaky(ClientMachine):
    """A client whose requests say how large the determinant of its exact data is."""

    def observe(self, number: int, reward: float) -> list[Message]:
        sent = super().observe(number, reward)
        return [replace(m, growth=self.model.logdet) if isinstance(m, Request) else m for m in sent]


class Renoising(ClientMachine):
    """A client that draws fresh noise when it sends an upload again."""

    @property
    def outbox(self) -> dict[int, Upload]:
        """What is to be sent again."""
        fresh = np.random.default_rng()
        return {
            number: replace(upload, sums=upload.sums._replace(b=upload.sums.b + fresh.standard_normal(self.dim)))
            for number, upload in self._kept.items()
        }

    @outbox.setter
    def outbox(self, kept: dict[int, Upload]) -> None:
        self._kept = kept

    def upload(self) -> Upload:
        upload = super().upload()
        self._kept[upload.sequence] = upload
        return upload


class Forgetful(ClientMachine):
    """A client that does not note what it has released when it was asked, and releases it again."""

    def receive(self, message: Message) -> list[Message]:
        before = self.model.dump()
        sent = super().receive(message)
        self.model.load(*before)
        return sent


class Unlimited(ClientMachine):
    """A client whose cap is not the one that its noise was calibrated for."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        assert self.stream is not None
        self.stream = ReleaseStream(replace(self.stream.mechanism, factorisation=blt(1000)), self.stream.source)


@pytest.mark.parametrize(
    ("client", "check", "sentence"),
    [
        (Quiet, "client, contents", "at the stated scale, of which 0.8"),
        (Nervous, "client, times and counts", "Request in round"),
        (Talkative, "client, times and counts", "shows without noise: Upload in round"),
        (Leaky, "client, times and counts", "Request in round"),
        (Renoising, "client, retries", "differs from what was sent first"),
        (Forgetful, "client, retries", "released the same data twice"),
        (Unlimited, "client, cap", "at most 6 are allowed"),
    ],
)
def test_faulty_clients_fail(client: type[ClientMachine], check: str, sentence: str) -> None:
    """The mechanism is right, and passes; the client that runs it is not."""
    found = audit_system(fb.feducb(), trials=6_000, make_machine=client)
    assert check in failed(found), str(found)
    assert not failed(found) & {"mechanism, exact", "mechanism, likelihood ratio"}
    (detail,) = (one.detail for one in found.checks if one.name == check)
    assert sentence in detail


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
    a, b = worst_records(Limits(2.0, 3, -1.0, 1.0, True), 0.7)
    for record, M in zip((a, b), gram_neighbours(2.0, 1.0, 0.7, 3), strict=True):
        row = np.append(record.x, 0.7 * record.y)
        np.testing.assert_allclose(np.outer(row, row), M)
    a, b = worst_records(Limits(1.0, 3, -5.0, 5.0, True), 1.0)
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


def test_where_there_is_no_client_to_attack_the_report_says_so() -> None:
    """The mechanism is attacked all the same."""

    def no_machine(*_: Any) -> ClientMachine:
        raise FedbanditError("There are no separate clients.")

    found = audit_system(fb.feducb(), trials=1_000, make_machine=no_machine)
    assert [check.name for check in found.checks] == ["mechanism, likelihood ratio", "mechanism, exact", "client"]
    assert found.checks[-1].detail == "not attacked: There are no separate clients."
