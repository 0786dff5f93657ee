"""Faults of noise whose scale is right where an audit looks first: its distribution, its copies, its last bits, whose
it is, and what is told of it. They had passed an audit that knew scales and correlations of releases only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.audit import audit_system
from fedbandit.machines.client import ClientMachine
from fedbandit.network.coordinator import recorded
from fedbandit.privacy import PrivateStatistics, sum_terms
from fedbandit.privacy.noise import Kind, Source, perturb
from fedbandit.privacy.secure import SecureSource
from fedbandit.privacy.sum_stream import SumStream, draw_integers
from fedbandit.protocols import Scheduled
from fedbandit.protocols.pool import Pool
from fedbandit.types import Array
from tests.audit.test_planted import Altered, Planted, altered

pytest.importorskip("opendp", reason="secure noise needs fedbandit[secure]")
pytest.importorskip("cryptography", reason="secure sums need fedbandit[secure]")

Patch = Callable[[pytest.MonkeyPatch], None]


class Anew(Planted):
    """A mechanism that has made all its releases is followed by another with the same noise."""

    def plant(self, k: int) -> Source:
        assert self.stream is not None
        return self.right(k % self.stream.mechanism.n_max)


class HalfForOthers(Planted):
    """Half of the noise for all clients but the first."""

    def plant(self, k: int) -> Source:
        def half(source: Source, kind: Kind, values: Array, scale: float) -> Array:
            return perturb(source, kind, values, scale / 2)

        return Altered(self.right(k), half) if self.member else self.right(k)


class HalfSharesForOthers(ClientMachine):
    """The same of shares of noise in secure sums."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        assert isinstance(self.stream, SumStream)
        right = self.stream._noise
        if self.member:
            self.stream._noise = lambda epoch: right(epoch) // 2  # type: ignore[method-assign]


def one_for_a_row(source: Source, kind: Kind, values: Array, scale: float) -> Array:
    """One number for all that is right of the diagonal in a row, and below it."""
    drawn = perturb(source, kind, np.zeros_like(values), scale)
    d = values.shape[-1]
    first = np.minimum.outer(np.arange(d), np.arange(d))
    copied = drawn[first, np.minimum(first + 1, d - 1)]
    return values + np.where(np.eye(d, dtype=bool), drawn, copied)


def in_place_of_secure(how: Callable[[Any, Kind, Array, float], Array]) -> Patch:
    """Another kind of noise from the secure source."""
    right = SecureSource.perturb

    def planted(self: SecureSource, kind: Kind, values: Array, scale: float) -> Array:
        if kind == "symmetric":
            return self._perturb_symmetric(values, scale)
        return how(lambda numbers: right(self, kind, np.zeros(numbers), scale), kind, values, scale)

    return lambda patch: patch.setattr(SecureSource, "perturb", planted)


def uniform(_: Any, kind: Kind, values: Array, scale: float) -> Array:
    """Of the same variance."""
    width = scale * math.sqrt(3 if kind == "vector" else 6)
    return values + np.random.default_rng().uniform(-width, width, values.shape)


def one_number(draw: Any, kind: Kind, values: Array, scale: float) -> Array:  # noqa: ARG001
    """The same for all numbers."""
    return np.asarray(values + draw(1))


def without_grid(draw: Any, kind: Kind, values: Array, scale: float) -> Array:  # noqa: ARG001
    """Right noise, but added in floating point."""
    return np.asarray(values + draw(values.shape))


def one_number_a_share(patch: pytest.MonkeyPatch) -> None:
    """A share of secure noise is one number, again and again."""
    right = SecureSource.discrete_gaussian
    patch.setattr(SecureSource, "discrete_gaussian", lambda self, std, size: np.repeat(right(self, std, 1), size))


def colluders_counted(patch: pytest.MonkeyPatch) -> None:
    """Shares of noise reckon with everybody in a sum, also with those who tell theirs."""
    right = sum_terms.portions_of
    patch.setattr(sum_terms, "portions_of", lambda levels, _: right(levels, 0))


def told_and_kept(patch: pytest.MonkeyPatch) -> None:
    """All portions of a share are one draw: whoever is told the excess knows what is left."""

    def planted(self: SumStream, epoch: int) -> Any:
        stds = self.terms.unit_stds
        drawn = draw_integers(self.source(epoch), 2.0**30, stds.size) / 2**30
        portions = np.rint(np.sqrt(self.terms.portions)[:, None] * stds * drawn).astype(np.int64)
        self.excess = portions[1:].view(np.uint64)
        return portions.sum(axis=0)

    patch.setattr(SumStream, "_noise", planted)


def first_published_bare(patch: pytest.MonkeyPatch) -> None:
    """The total that a trusted coordinator noises is right, but the first that members are sent is another."""
    right = Pool._publish

    def planted(self: Pool, members: Any) -> bool:
        new = self.total._new  # type: ignore[attr-defined]
        done = right(self, members)
        if done and self.total.epoch == 1:
            members.V[0], members.b[0] = new.V, new.b
        return done

    patch.setattr(Pool, "_publish", planted)


def numpy_at_the_coordinator(patch: pytest.MonkeyPatch) -> None:
    """A trusted coordinator on a network draws noise from the seed in its terms."""
    right = recorded.coordinator_of
    patch.setattr(recorded, "coordinator_of", lambda agreement, _: right(agreement, None))


class Fault(NamedTuple):
    """How a fault is planted, and the check that must find it."""

    check: str
    system: fb.System
    patch: Patch | None = None
    client: type[ClientMachine] = ClientMachine


NOBODY, SUMS, TRUSTED = fb.feducb(), fb.feducb(trust="sums"), fb.feducb(trust="coordinator")
SECURE, MEMBERS, MANY = "secure noise, scale", "members, independent noise", "sums, shares of noise, N = 40"
FAULTS = {
    "one number of noise for a whole row": Fault("client, contents", NOBODY, client=altered(one_for_a_row)),
    "the noise of a mechanism again in the one that follows it": Fault(MEMBERS, NOBODY, client=Anew),
    "half of the noise for all clients but one": Fault(MEMBERS, NOBODY, client=HalfForOthers),
    "half of the shares of noise for all clients but one": Fault(MEMBERS, SUMS, client=HalfSharesForOthers),
    "uniform noise of the right variance from the secure source": Fault(SECURE, NOBODY, in_place_of_secure(uniform)),
    "one secure number for all of a release": Fault(SECURE, NOBODY, in_place_of_secure(one_number)),
    "secure noise that is added in floating point": Fault(SECURE, NOBODY, in_place_of_secure(without_grid)),
    "secure noise that is added to rewards in floating point": Fault(
        SECURE, fb.dp_linucb(), in_place_of_secure(without_grid)
    ),
    "one secure number for all of a share": Fault(SECURE, SUMS, one_number_a_share),
    "shares of noise that reckon with those who collude": Fault(MANY, SUMS, colluders_counted),
    "excess noise that tells what is left": Fault(MANY, SUMS, told_and_kept),
    "a first publication of a trusted coordinator without noise": Fault(
        "coordinator, noise", TRUSTED, first_published_bare
    ),
    "noise of its seed at a trusted coordinator on a network": Fault(
        "network coordinator, noise", TRUSTED, numpy_at_the_coordinator
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the check that is meant to, and so the audit fails."""
    fault = FAULTS[name]
    if fault.patch is not None:
        fault.patch(monkeypatch)
    found = audit_system(fault.system, trials=6_000, rounds=60, make_machine=fault.client)
    assert fault.check in {check.name for check in found.checks if check.verdict == "FAIL"}, str(found)
    assert not found.passed


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("system", [NOBODY, SUMS, TRUSTED, fb.dp_linucb()], ids=str)
def test_without_a_fault_they_pass(system: fb.System, seed: int) -> None:
    """Whatever the seed: none of these checks fails by chance."""
    found = audit_system(system, trials=6_000, rounds=60, seed=seed)
    assert found.passed, str(found)


CLOCKED: tuple[tuple[Any, Any, Any], ...] = (
    ("sums", "exact", "public"),
    ("sums", "released", "padded"),
    ("coordinator", "exact", "public"),
    ("coordinator", "released", "public"),
)
ON_A_SCHEDULE = {
    f"{trust}, {own}, {counts}": fb.System(
        protocol=Scheduled(growth=1.5, batch=4), privacy=PrivateStatistics(trust=trust, own=own, counts=counts)
    )
    for trust, own, counts in CLOCKED
}


@pytest.mark.parametrize("name", ON_A_SCHEDULE)
def test_clients_of_totals_are_called_by_the_clock(name: str) -> None:
    """An audit that does not call them sees nothing that they contribute, and failed sound systems for it."""
    found = audit_system(ON_A_SCHEDULE[name], trials=1_000, rounds=60)
    assert found.passed, str(found)
    (contents,) = (check for check in found.checks if check.name == "client, contents")
    assert "ε = 1.0000" in contents.detail
    assert not contents.skipped
