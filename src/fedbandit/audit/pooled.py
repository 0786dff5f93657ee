"""The audit of a system in which one noisy total is all that is released: secure sums, or a trusted coordinator."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fedbandit.audit.client_attack import retry_check, timing_check
from fedbandit.audit.life_attack import choices_check, downloads_of, restart_check, wild_records
from fedbandit.audit.likelihood import independent_numbers, scale_interval, whiten
from fedbandit.audit.mechanism_attack import (
    exact_check,
    likelihood_attack,
    neighbouring_increments,
    secure_source,
    source_check,
)
from fedbandit.audit.neighbours import History, RecordLimits, pairs_of, some_history, with_first
from fedbandit.audit.observer import MakeMachine, uploads_of
from fedbandit.audit.report import CONFIDENCE, SURE, TOLERANCE, Check, skip
from fedbandit.audit.sum_client_attack import sum_client_checks, sum_twin_check
from fedbandit.audit.total_attack import contributions_check, make_sums, published_epsilon, shares_check, total_checks
from fedbandit.errors import FedbanditError
from fedbandit.machines.client import ClientMachine
from fedbandit.machines.link import Link
from fedbandit.messages import Download, Message, Upload
from fedbandit.privacy.calibration import special_functions
from fedbandit.privacy.mechanism import Mechanism, stack
from fedbandit.privacy.private_statistics import PrivateStatistics
from fedbandit.privacy.published_total import PublishedTotal
from fedbandit.privacy.sum_stream import SumStream
from fedbandit.privacy.sum_terms import SumTerms
from fedbandit.streams import Purpose, generator
from fedbandit.sums import Sums, add, zero_sums
from fedbandit.system import System
from fedbandit.types import Array
from fedbandit.world import World

FEWEST = 200
"""Numbers of each publication that are looked at, at least."""
MANY = 40
"""Clients of a federation in which some may collude (N/20)."""


@dataclass(frozen=True)
class Pooled:
    """A system that has a total, told its world, and how its clients are made and called."""

    system: System
    told: System
    world: World
    larger: World
    limits: RecordLimits
    make: MakeMachine
    other: MakeMachine
    rounds: int
    runs: int
    trials: int
    calls: Collection[int]

    @property
    def privacy(self) -> PrivateStatistics:
        """The part that noises."""
        assert isinstance(self.told.privacy, PrivateStatistics)
        return self.told.privacy


def attack_total(pooled: Pooled, rng: np.random.Generator) -> Iterator[Check]:
    """All attacks: on the total, on clients, on sums or on the coordinator, and on clients of a network."""
    privacy, limits, claim = pooled.privacy, pooled.limits, pooled.told.guarantee
    yield from total_checks(privacy, limits, claim)
    yield from _larger(pooled)
    mechanism, records = privacy.mechanisms[0], privacy.contribution or 1
    yield timing_check(
        pooled.make, mechanism, limits, rng, records=records, hears=None, padded=privacy.padded,
        rounds=pooled.rounds, calls=pooled.calls,
    )  # fmt: skip
    yield choices_check(
        pooled.make, None, limits, claim, rng, rounds=pooled.rounds, calls=pooled.calls,
        downloads=downloads_of(pooled.told, pooled.world),
    )  # fmt: skip
    if privacy.trust == "sums":
        terms = privacy.sum_terms
        yield skip("mechanism, likelihood ratio", "not made: contributions and shares are attacked exactly instead")
        yield from sum_client_checks(
            pooled.make, pooled.other, terms, limits, claim, rng,
            records=records, rounds=pooled.rounds, runs=min(pooled.runs, 20), calls=pooled.calls,
        )  # fmt: skip
        yield from _sums_on_a_network(pooled, terms, rng)
        return
    yield likelihood_attack(
        mechanism, neighbouring_increments(mechanism, limits, 1), claim, rng, pooled.trials
    )[0]  # fmt: skip
    yield from _told_a_coordinator(pooled, mechanism, rng)
    yield _publications_noise(pooled, mechanism)
    yield from _coordinator_on_a_network(pooled, mechanism)


def _larger(pooled: Pooled) -> Iterator[Check]:
    """The same total in a larger world: noise must be enough there, too."""
    name = f"mechanism, d = {pooled.larger.dim}"
    if pooled.privacy.contribution is not None:
        yield skip(name, "not made: how a client's interactions are spread over releases decides")
        return
    told = pooled.system.told(pooled.larger)
    privacy = told.privacy
    assert isinstance(privacy, PrivateStatistics)
    limits = RecordLimits.of(pooled.larger, privacy.reward_rule, told.guarantee.protects)
    claim = told.guarantee
    if privacy.trust == "sums":
        yield contributions_check(privacy.sum_terms, limits, claim, make_sums, name)
        yield _shares_among_many(pooled)
    else:
        yield exact_check(privacy.mechanisms[0], limits, 1, claim.epsilon, claim.delta, name)


# Secure sums


def _shares_among_many(pooled: Pooled) -> Check:
    """Shares of noise where there are enough clients for some to collude, and for excess noise to be told."""
    N = max(MANY, pooled.world.n_clients)
    name, rounds = f"sums, shares of noise, N = {N}", pooled.world.horizon // pooled.world.per_round
    try:
        told = pooled.system.told(replace(pooled.world, n_clients=N, per_round=N, horizon=rounds * N, graph=None))
    except FedbanditError as error:
        return skip(name, str(error))
    assert isinstance(told.privacy, PrivateStatistics)
    return shares_check(told.privacy.sum_terms, make_sums, name=name)


def _sums_on_a_network(pooled: Pooled, terms: SumTerms, rng: np.random.Generator) -> Iterator[Check]:
    """Secure noise, a coordinator that does not follow the protocol, clients as a network makes them, and copies."""
    from fedbandit.audit.copy_attack import sum_copies_check, sum_stored_check
    from fedbandit.audit.mask_attack import mask_checks
    from fedbandit.network.client.options import noise_source

    system, world = pooled.system, pooled.world
    try:
        source = noise_source(system, report=False, lasts=True)
    except FedbanditError as error:
        yield from (skip(name, str(error)) for name in ("secure noise, scale", "network client, noise"))
    else:
        secure = secure_source()
        if isinstance(secure, str):
            yield skip("secure noise, scale", secure)
        else:
            yield shares_check(terms, lambda terms, _: SumStream(terms, lambda _: secure), name="secure noise, scale")
        history = some_history(pooled.limits, min(pooled.rounds, 50), rng)
        yield sum_twin_check(partial(ClientMachine, 0, system, world, 0, source=source), history)
    yield sum_stored_check(system, world, terms.mechanism, pooled.limits)
    try:
        yield from mask_checks(terms, world.n_clients)
    except FedbanditError as error:  # without the extra `secure`
        yield skip("sums, masks and keys", str(error))
    yield sum_copies_check(system, world, terms.mechanism, pooled.limits)


# A trusted coordinator


def _told_a_coordinator(pooled: Pooled, mechanism: Mechanism, rng: np.random.Generator) -> Iterator[Check]:
    """What clients tell a coordinator that they trust: a record that is told twice, or is too long, has more ε."""
    limits, claim, rounds, calls = pooled.limits, pooled.told.guarantee, pooled.rounds, pooled.calls
    rest = some_history(limits, rounds, rng)
    pair = next(iter(pairs_of(limits, mechanism).values()))

    def tells(history: History, *, ask: bool = False) -> list[Sums]:
        return uploads_of(pooled.make(0), history, calls=calls, ask=ask)

    for name, length, ask in (("client, contents", rounds, False), ("client, long life", 2 * rounds, True)):
        rest = some_history(limits, length, rng)
        one, other = (tells(with_first(rest, record, 1), ask=ask) for record in pair)
        true = published_epsilon(pooled.privacy, one, other, claim.delta)
        passed = true <= claim.epsilon * TOLERANCE and bool(one)
        detail = f"{len(one)} uploads in {length} rounds, ε = {true:.4f} for all that is published of them"
        yield Check(name, passed, 0.0 if passed else true, detail)
    yield retry_check(pooled.make, limits, rng, rounds=rounds, calls=calls, padded=pooled.privacy.padded)
    yield restart_check(pooled.make, limits, rng, rounds=rounds, calls=calls)
    yield _told_bounds(pooled, tells)
    client = pooled.make(0)
    made = uploads_of(client, some_history(limits, rounds, rng), calls=calls)
    booked = -1 if client.stream is None else client.stream.spent
    detail = f"{booked} uploads in the client's book, {len(made)} seen"
    yield Check("client, ledger", booked == len(made), 0.0, detail)


def _told_bounds(pooled: Pooled, tells: Callable[[History], list[Sums]]) -> Check:
    """Whether a record beyond L and B is refused, or moves what is published no further than one within."""
    name, found, refused, claim = "client, bounds", list[list[Sums]](), 0, pooled.told.guarantee
    wild, tame = wild_records(pooled.limits)
    for record in wild:
        try:
            found.append(tells(with_first([tame] * min(pooled.rounds, 50), record, 1)))
        except FedbanditError:
            refused += 1
    largest = max(
        (
            published_epsilon(pooled.privacy, one, other, claim.delta)
            for i, one in enumerate(found)
            for other in found[:i]
        ),
        default=0.0,
    )
    passed = largest <= claim.epsilon * TOLERANCE
    detail = f"{len(wild)} records beyond the bounds: {refused} refused, ε = {largest:.4f} between the others"
    return Check(name, passed, 0.0 if passed else largest, detail)


def _publications_noise(pooled: Pooled, mechanism: Mechanism) -> Check:
    """Whether the noise of publications has its scale, and is drawn anew for each of them, whatever the seed."""
    name, d = "coordinator, noise", mechanism.dim
    n = min(mechanism.n_max, 16)
    drawn = []
    for seed in range(max(pooled.runs, 20)):
        total = pooled.privacy.total(partial(generator, seed, Purpose.NOISE, pooled.world.n_clients))
        assert isinstance(total, PublishedTotal)
        rows = []
        for _ in range(n):
            total.add(Sums(np.zeros((d, d)), np.zeros(d), 1))
            noisy = total.publish()
            assert noisy is not None
            rows.append(stack(noisy.V, noisy.b, mechanism.reward_weight))
        drawn.append(whiten(mechanism, np.zeros((n, d + 1, d + 1)), np.array(rows)[:, None])[:, 0])
    z = np.array(drawn)[..., :-1, -1]  # runs × publications × d: b, off the diagonal
    low, high = scale_interval(replace(mechanism, noise="vector"), z, CONFIDENCE)
    if n > 1:
        a, b = z[:, :-1], z[:, 1:]
        found = float((a * b).mean() / (z * z).mean())
        if abs(found) > 5 / math.sqrt(a.size):
            return Check(name, False, 0.0, f"the noise of two publications has a correlation of {found:.2f}")
    if high >= 1 and (bare := _bare_downloads(pooled)):
        return Check(name, False, math.inf, bare)
    detail = f"{z.size:,} numbers: {low:.2f}–{high:.2f} of the stated scale, none of which is used twice"
    return Check(name, high >= 1, 0.0, detail)


class _Overheard(Link):
    """A federation whose messages are looked at: the noise in what members are sent of each publication."""

    def __init__(self, system: System, world: World, seed: int) -> None:
        self.told, self.noise = zero_sums(world.dim), dict[int, Array]()
        self._at, self._exact = 0, self.told
        super().__init__(system, world, seed)

    def carry(self, message: Message) -> Message:
        """One message, as it arrives."""
        assert self.coordinator is not None
        assert self.coordinator.pool is not None
        total = self.coordinator.pool.total
        assert isinstance(total, PublishedTotal)
        if total.epoch > self._at:
            self._at, self._exact = total.epoch, self.told
        if isinstance(message, Upload):
            self.told = add(self.told, message.sums)
        if isinstance(message, Download) and message.sums.n and self._at and self._at not in self.noise:
            mechanism, exact, std = total.stream.mechanism, self._exact, math.sqrt(total.variance or 0.0)
            N = stack(message.sums.V - exact.V, message.sums.b - exact.b, mechanism.reward_weight) / std
            self.noise[self._at] = independent_numbers(mechanism, N)[0, :-1]
        return super().carry(message)


def _bare_downloads(pooled: Pooled) -> str:
    """Of a whole federation: the publication of which members are sent numbers with too little noise; "" if none."""
    noise: dict[int, list[Array]] = {}
    rng = np.random.default_rng(0)
    words = (pooled.world.dim + 1) * (pooled.world.dim + 2) // 2
    for seed in range(max(FEWEST // words, 3)):
        link = _Overheard(pooled.system, pooled.world, seed)
        for t in range(min(pooled.rounds, 50)):
            for i in range(pooled.world.n_clients):
                (record,) = some_history(pooled.limits, 1, rng)
                link.observe(i, link.select(i, record.x[None]).number, record.y)
            if link.next_wake(t) == t + 1:
                link.end_round(t + 1)
        for epoch, numbers in link.noise.items():
            noise.setdefault(epoch, []).append(numbers)
    for epoch, rows in sorted(noise.items()):
        z = np.concatenate(rows)
        least = 2 * float(special_functions().gammaincinv(z.size / 2, (1 - SURE) / len(noise)))
        if float((z * z).sum()) < least:
            seen = math.sqrt(float((z * z).mean()))
            return f"what members are sent of publication {epoch} has {seen:.2f} of its noise"
    return ""


def _coordinator_on_a_network(pooled: Pooled, mechanism: Mechanism) -> Iterator[Check]:
    """Secure noise of its scale, which clients do not draw; and uploads that are stored before they are sent."""
    from fedbandit.audit.copy_attack import coordinators_check, stored_check, told_copies_check

    secure = secure_source()
    yield skip("secure noise, scale", secure) if isinstance(secure, str) else source_check(mechanism, secure, "secure")
    yield skip("members, independent noise", "not attacked: clients draw none; see coordinator, noise")
    yield skip("network client, noise", "not attacked: clients draw none; see network coordinator, noise")
    yield stored_check(pooled.system, pooled.world, mechanism, pooled.limits)
    try:
        yield coordinators_check(pooled.system, pooled.world)
        yield told_copies_check(pooled.system, pooled.world, mechanism, pooled.limits)
    except FedbanditError as error:  # without the extra `secure`
        yield skip("client, copies", str(error))
