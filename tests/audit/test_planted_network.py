"""Faults of copies, stores, masks and answers, each found by the audit's check that is meant to."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.audit.copy_attack import copies_check, stored_check, sum_copies_check
from fedbandit.audit.mask_attack import mask_checks
from fedbandit.audit.neighbours import RecordLimits
from fedbandit.audit.report import Check
from fedbandit.machines.sums import client as sums_client
from fedbandit.machines.sums.client import SumClient
from fedbandit.machines.sums.messages import Step, SumMessage
from fedbandit.machines.sums.terms import Acquaintances
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.register import MemberRecord
from fedbandit.privacy import PrivateStatistics
from fedbandit.world import World

WORLD = World(4, 2, 1_000, per_round=4)
pytest.importorskip("cryptography", reason="secure sums need fedbandit[secure]")


def found(system: fb.System, **keywords: Any) -> Iterator[Check]:
    """All network checks of a system."""
    told = system.told(WORLD)
    assert isinstance(told.privacy, PrivateStatistics)
    limits = RecordLimits.of(WORLD, told.privacy.reward_rule, told.guarantee.protects)
    if told.privacy.trust == "sums":
        terms = told.privacy.sum_terms
        yield from mask_checks(terms, 4, keywords.get("client", SumClient))
        yield sum_copies_check(system, WORLD, terms.mechanism, limits, keywords.get("federation", Federation))
        return
    mechanism = told.privacy.mechanisms[0]
    yield stored_check(system, WORLD, mechanism, limits, make=keywords.get("durable", DurableClient))
    yield copies_check(system, WORLD, mechanism, limits, told.guarantee)


class SendsFirst(DurableClient):
    """An upload may be sent before it is stored."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.journal.replace = self.journal.write = lambda *_, **__: None  # type: ignore[method-assign]


class Unaware(Federation):
    """A coordinator that does not look at which sums a client says it was in."""

    def last_sum_of(self, member: int) -> int:  # noqa: ARG002
        return 0


class Generous(SumClient):
    """Answers whatever it is asked, as often as it is asked."""

    def receive(self, message: SumMessage) -> list[SumMessage]:
        self._awaited = message.step
        return super().receive(message)


class TwoLists(SumClient):
    """Signs whatever list of survivors it is shown, as often as it is shown one; all else it does once."""

    def receive(self, message: SumMessage) -> list[SumMessage]:
        self._awaited = message.step if message.step == Step.SURVIVORS else self._awaited
        return super().receive(message)


class Undemanding(SumClient):
    """Takes part in sums of any size."""

    def _require_quorum(self, who: Any) -> None: ...


def one_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client has the same secrets in every sum: two for each of four clients."""
    seeds = itertools.cycle(range(1, 9))
    monkeypatch.setattr(sums_client, "new_seed", lambda: next(seeds))


def no_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums_client, "own_mask", lambda _, n: np.zeros(n, dtype=np.uint64))
    monkeypatch.setattr(sums_client, "stream", lambda _, n: np.zeros(n, dtype=np.uint64))


def any_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums_client, "verifies", lambda *_: True)


def anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Acquaintances, "check", lambda *_: None)


def uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemberRecord, "note_copy", lambda *_: False)


NOBODY, SUMS = fb.feducb(), fb.feducb(trust="sums")
FAULTS: dict[str, tuple[str, fb.System, dict[str, Any], Callable[[pytest.MonkeyPatch], None] | None]] = {
    "an upload sent before it is stored": ("network client, stored first", NOBODY, {"durable": SendsFirst}, None),
    "a copy that the ledger does not count": ("client, copies", NOBODY, {}, uncounted),
    "a copy that contributes to sums again": ("client, copies", SUMS, {"federation": Unaware}, None),
    "masks and keys used again": ("sums, masks and keys", SUMS, {}, one_seed),
    "no masks": ("sums, masks and keys", SUMS, {}, no_masks),
    "both shares of one client answered": ("sums, answers", SUMS, {"client": Generous}, None),
    "two sums over one epoch": ("sums, answers", SUMS, {"client": TwoLists}, None),
    "sums over too few": ("sums, answers", SUMS, {"client": Undemanding}, None),
    "signatures that nobody checks": ("sums, answers", SUMS, {}, any_signature),
    "keys that nobody knows": ("sums, answers", SUMS, {}, anybody),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check, system, keywords, patch = FAULTS[name]
    if patch is not None:
        patch(monkeypatch)
    assert check in {one.name for one in found(system, **keywords) if one.verdict == "FAIL"}


def test_without_a_fault_all_pass() -> None:
    for system in (NOBODY, SUMS):
        assert [str(check) for check in found(system) if check.verdict != "pass"] == []
