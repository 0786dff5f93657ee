"""Faults where one total is noised for all, of choices after downloads, and of budgets that differ.

Each is planted in what is deployed, and the whole audit is run: it must fail, by the check that is meant to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

import fedbandit as fb
from fedbandit.audit import audit_system
from fedbandit.machines.client import ClientMachine
from fedbandit.machines.exchange import Exchange
from fedbandit.machines.sums import client as sums_client
from fedbandit.messages import Collect, Message
from fedbandit.network.client.durable import DurableClient
from fedbandit.privacy import PrivateStatistics
from fedbandit.privacy.mechanism import epsilon_of
from fedbandit.privacy.published_total import PublishedTotal
from fedbandit.privacy.release_stream import ReleaseStream
from fedbandit.privacy.secure import SecureSource
from fedbandit.privacy.sum_stream import SumStream
from fedbandit.sums import Sums, zero_sums
from tests.audit.test_planted import (
    Forgetful,
    Hasty,
    SharedNoise,
    Unbounded,
    Unclipped,
    numpy_on_the_network,
    scaled,
    statistics,
)

pytest.importorskip("opendp", reason="secure noise needs fedbandit[secure]")
pytest.importorskip("cryptography", reason="secure sums need fedbandit[secure]")

Patch = Callable[[pytest.MonkeyPatch], None]


def own_mixed_in(patch: pytest.MonkeyPatch) -> None:
    """With each download a client mixes its own exact data in, whatever it may choose by."""
    right = Exchange._own_and_others

    def planted(self: Exchange, message: Any) -> Any:
        kept, self._keeps_own = self._keeps_own, True
        try:
            return right(self, message)
        finally:
            self._keeps_own = kept

    patch.setattr(Exchange, "_own_and_others", planted)


def weights_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What has left a client of secure sums is forgotten in a crash, so that it may weigh as much again."""
    right = SumStream.restore

    def planted(self: SumStream, saved: Mapping[str, Any]) -> None:
        right(self, saved)
        self.squares[:] = 0

    patch.setattr(SumStream, "restore", planted)


def published_again(patch: pytest.MonkeyPatch) -> None:
    """After a restart a trusted coordinator publishes all it was ever told, with fresh noise."""
    right = PublishedTotal.restore

    def planted(self: PublishedTotal, saved: Mapping[str, Any]) -> None:
        right(self, saved)
        told, new = self.stream.own, self._new
        self._new = Sums(new.V + told.V, new.b + told.b, new.n + told.n)
        self._noisy = zero_sums(told.b.size)
        self.stream = ReleaseStream(self.stream.mechanism, self.stream.source)

    patch.setattr(PublishedTotal, "restore", planted)


def half_of_secure_shares(patch: pytest.MonkeyPatch) -> None:
    """The secure source draws half of the noise for shares of sums, and for nothing else."""
    right = SecureSource.discrete_gaussian
    patch.setattr(SecureSource, "discrete_gaussian", lambda self, std, size: right(self, std / 2, size))


def all_excess_told(patch: pytest.MonkeyPatch) -> None:
    """A client tells all portions of its noise that may ever be told."""
    patch.setattr(sums_client, "taken_back", lambda levels, _: len(levels) - 1)


def one_budget(patch: pytest.MonkeyPatch) -> None:
    """Whoever asked for less gets the noise of the largest ε."""
    patch.setattr(PrivateStatistics, "mechanism_of", lambda self, _: self.mechanisms[-1])


def counted_only(patch: pytest.MonkeyPatch) -> None:
    """The ledger of secure sums goes by how many contributions there were, as if each record were in the first."""
    booked = property(lambda self: epsilon_of(self.mechanism, releases=self.spent) if self.spent else 0.0)
    patch.setattr(SumStream, "spent_epsilon", booked)


def sent_first(patch: pytest.MonkeyPatch) -> None:
    """A contribution may be sent before it is stored as spent."""

    def planted(self: DurableClient, epoch: int, included: int) -> Message:
        return self.machine.receive(Collect(self.machine.member, epoch, included))[0]

    patch.setattr(DurableClient, "contribute", planted)


def unbounded_load(patch: pytest.MonkeyPatch) -> None:
    """All records of a client together may weigh what each of them may, whatever was planned."""
    right = SumStream.contribute

    def planted(self: SumStream, epoch: int, included: int, sums: Sums) -> Any:
        self.terms = replace(self.terms, load=float(self.terms.contribution or 1))
        return right(self, epoch, included, sums)

    patch.setattr(SumStream, "contribute", planted)


class Overweight(ClientMachine):
    """What was missed is sent again whatever it weighs."""

    def contribute(self, epoch: int, included: int) -> list[Message]:
        assert isinstance(self.stream, SumStream)
        self.stream.squares[:] = 0
        return super().contribute(epoch, included)


class Unbooked(ClientMachine):
    """The client's own book forgets its second contribution."""

    def contribute(self, epoch: int, included: int) -> list[Message]:
        said = super().contribute(epoch, included)
        assert isinstance(self.stream, SumStream)
        self.stream.spent -= epoch == 2
        return said


class Fault(NamedTuple):
    """How a fault is planted, and the check that must find it."""

    check: str
    system: fb.System
    patch: Patch | None = None
    client: type[ClientMachine] = ClientMachine


SUMS, TRUSTED = fb.feducb(trust="sums"), fb.feducb(trust="coordinator")
OWN = {trust: fb.feducb(trust=trust, own="released") for trust in ("nobody", "sums", "coordinator")}
BUDGETS = fb.feducb(epsilon=[0.5, 1.0, 2.0])
CHOICES, BOUNDS = "client, choices", "client, bounds"
FAULTS = {
    "own exact data mixed in with each download": Fault(CHOICES, OWN["nobody"], own_mixed_in),
    "own exact data mixed in with each total of sums": Fault(CHOICES, OWN["sums"], own_mixed_in),
    "own exact data mixed in with each published total": Fault(CHOICES, OWN["coordinator"], own_mixed_in),
    "weights of contributions forgotten in a crash": Fault("client, restarts", SUMS, weights_forgotten),
    "records published again after a coordinator's crash": Fault(
        "coordinator, publications", TRUSTED, published_again
    ),
    "half of the secure noise in shares of sums": Fault("secure noise, scale", SUMS, half_of_secure_shares),
    "all excess noise told, whatever the list says": Fault("sums, excess noise", SUMS, all_excess_told),
    "the noise of the largest ε for all clients": Fault("mechanism of client 0, exact", BUDGETS, one_budget),
    "a ledger of sums that counts contributions, not what they weigh": Fault("client, ledger", SUMS, counted_only),
    "a contribution that the ledger of sums forgets": Fault("client, ledger", SUMS, client=Unbooked),
    "a contribution sent before it is stored": Fault("network client, stored first", SUMS, sent_first),
    "a client's whole contribution to sums with √k noise": Fault(
        "sums, contributions", statistics(scaled(40**-0.5), trust="sums", contribution=40)
    ),
    "a client's whole contribution to sums whose load is not bounded": Fault(
        "sums, contributions", statistics(lambda right: right, trust="sums", contribution=40), unbounded_load
    ),
    "contributions beyond the planned weight": Fault("client, contents", SUMS, client=Overweight),
    "the same share of noise for all clients of sums": Fault("members, independent noise", SUMS, client=SharedNoise),
    "shares of noise of the coordinator's seed on a network": Fault(
        "network client, noise", SUMS, numpy_on_the_network
    ),
    "L not enforced in secure sums": Fault(BOUNDS, SUMS, client=Unbounded),
    "B not enforced in secure sums": Fault(BOUNDS, SUMS, client=Unclipped),
    "B not enforced at a trusted coordinator": Fault(BOUNDS, TRUSTED, client=Unclipped),
    "the same data told to a trusted coordinator twice": Fault("client, retries", TRUSTED, client=Forgetful),
    "what was told to a trusted coordinator told again after a crash": Fault(
        "client, restarts", TRUSTED, client=Hasty
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the check that is meant to, and so the audit fails."""
    fault = FAULTS[name]
    if fault.patch is not None:
        fault.patch(monkeypatch)
    found = audit_system(fault.system, trials=1_000, rounds=60, make_machine=fault.client)
    assert fault.check in {check.name for check in found.checks if check.verdict == "FAIL"}, str(found)
    assert not found.passed


WHOLE = statistics(lambda right: right, trust="sums", contribution=40)


@pytest.mark.parametrize(
    "system", [SUMS, TRUSTED, BUDGETS, WHOLE, *OWN.values()], ids=lambda system: str(system.privacy.trust)
)
def test_without_a_fault_they_pass(system: fb.System) -> None:
    """So none of the faults above is found by accident; what is not attacked is said, and why."""
    found = audit_system(system, trials=1_000, rounds=60)
    assert found.passed, str(found)
    assert all(check.detail for check in found.checks if check.skipped)
    assert math.isfinite(found.lower_bound)
