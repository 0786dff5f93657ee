"""The audit of one system."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fedbandit.audit.client_attack import contents_check, long_life_check, retry_check, rewards_check, timing_check
from fedbandit.audit.life_attack import (
    bounds_check,
    choices_check,
    independence_check,
    ledger_check,
    restart_check,
    twin_check,
)
from fedbandit.audit.likelihood import Audit
from fedbandit.audit.mechanism_attack import (
    exact_check,
    likelihood_attack,
    neighbouring_increments,
    reward_noise,
    secure_source,
    source_check,
)
from fedbandit.audit.neighbours import RecordLimits
from fedbandit.audit.observer import MakeMachine
from fedbandit.audit.peer_attack import coordinator_check, peers_check
from fedbandit.audit.report import AuditReport, Check, skip
from fedbandit.audit.total_attack import total_checks
from fedbandit.errors import FedbanditError, whole_number
from fedbandit.machines.client import ClientMachine
from fedbandit.machines.peer import PeerMachine
from fedbandit.privacy.guarantee import Guarantee
from fedbandit.privacy.mechanism import Mechanism
from fedbandit.privacy.noise import Source
from fedbandit.privacy.private_statistics import PrivateStatistics
from fedbandit.sharing import Others
from fedbandit.streams import Purpose, generator
from fedbandit.system import System
from fedbandit.world import World

TRIALS = 20_000
LEAST_TRIALS = 1_000
_STREAMS_A_RUN = 200
"""Streams of a mechanism for each run of a client, which takes about as long."""
LARGER = (12, 10**6)
"""Dimension and rounds of a larger world, in which the mechanism is looked at too."""
OF_STREAMS = (
    "mechanism, likelihood ratio",
    f"mechanism, d = {LARGER[0]}",
    "secure noise, scale",
    "client, contents",
    "client, retries",
    "client, restarts",
    "client, long life",
    "client, bounds",
    "client, ledger",
    "members, independent noise",
    "network client, noise",
    "network client, stored first",
)
"""Attacks on clients that noise what leaves them, each by itself."""


@dataclass(frozen=True)
class Makers:
    """How clients and peers are made; tests plant faults here."""

    client: Callable[..., ClientMachine] = ClientMachine
    peer: Callable[..., PeerMachine] = PeerMachine


def audit_system(
    system: System,
    *,
    n_clients: int = 3,
    dim: int = 2,
    rounds: int = 200,
    trials: int = TRIALS,
    seed: int = 0,
    world: World | None = None,
    make_machine: Callable[..., ClientMachine] = ClientMachine,
    make_peer: Callable[..., PeerMachine] = PeerMachine,
) -> AuditReport:
    """Attack what a system claims, in a world of `n_clients` that act in each of so many rounds, or in a given `world`.

    `trials` is the number of streams in each world of the likelihood-ratio attack; there are a two-hundredth as many
    runs of a client. What follows from formulas is looked at in a larger world, too.

    >>> import fedbandit as fb
    >>> report = audit_system(fb.dp_linucb(epsilon=2.0), trials=1000, rounds=50)
    >>> report.passed, report.lower_bound <= 2.0
    (True, True)
    """
    whole_number("trials", trials, LEAST_TRIALS)
    whole_number("rounds", rounds, 1)
    if system.guarantee.basis == "none":
        raise FedbanditError(f"{system.name} claims no privacy, so there is nothing to audit.")
    if world is None:
        graph = np.full((n_clients, n_clients), 1 / n_clients)
        world = World(n_clients, dim, rounds * n_clients, per_round=n_clients, graph=graph)
    makers = Makers(make_machine, make_peer)
    checks, found = _attack(system, world, rounds, trials, seed, makers)
    return AuditReport(system.name, system.told(world).guarantee, world, tuple(checks), found)


def _attack(
    system: System, world: World, rounds: int, trials: int, seed: int, makers: Makers
) -> tuple[list[Check], Audit | None]:
    told = system.told(world)
    claim = told.guarantee
    rng = generator(seed, Purpose.NOISE)
    limits = RecordLimits.of(world, told.privacy.reward_rule, claim.protects)
    if told.privacy.pooled:
        if not isinstance(told.privacy, PrivateStatistics):
            return [skip("total", f"nobody knows how to attack the total of {type(told.privacy).__name__}")], None
        make = partial(_make, makers.client, system, world, 0, seed)
        how: dict[str, Any] = {"rounds": rounds, "calls": _calls(told, world, rounds)}
        mechanism, padded = told.privacy.mechanisms[0], told.privacy.padded
        of_client = [
            timing_check(make, mechanism, limits, rng, records=1, hears=None, padded=padded, **how),
            choices_check(make, None, limits, claim, rng, **how),
        ]
        checks = [*total_checks(told.privacy, limits, claim), *of_client]
        return [*checks, *_secure_sums(system, told.privacy, world, limits), *_spared(told.privacy.trust)], None
    by_client = _mechanisms(told, world.n_clients)
    if not by_client:
        return _noised_rewards(system, told, world, rounds, trials, seed, makers, rng)
    weakest = max(by_client, key=lambda member: by_client[member].epsilon)
    mechanism = by_client[weakest]
    records = told.privacy.contribution or 1
    check, found = likelihood_attack(mechanism, neighbouring_increments(mechanism, limits, 1), claim, rng, trials)
    checks = [check] if records == 1 else []
    checks += _exact_checks(by_client, limits, records, told)
    checks += _larger(system, world, weakest, records)
    source = secure_source()
    checks.append(
        skip("secure noise", source) if isinstance(source, str) else source_check(mechanism, source, "secure")
    )
    if told.protocol.says == "gossip":
        checks.append(peers_check(makers.peer, system, world, mechanism, limits, rng, rounds=min(rounds, 100)))
    make = partial(_make, makers.client, system, world, weakest, seed)
    if told.privacy.site == "coordinator":
        checks += coordinator_check(told, world, limits, claim, runs=max(trials // _STREAMS_A_RUN, 20))
    spared = _not_attacked(told, make)
    if spared:
        return [*checks, spared], found
    runs = max(trials // _STREAMS_A_RUN, 5)
    calls = _calls(told, world, rounds)
    other = partial(_make, makers.client, system, world, (weakest + 1) % world.n_clients, seed)
    hears = not isinstance(told.sharing(world), Others)
    checks += [
        contents_check(make, mechanism, limits, claim, rng, records=records, rounds=rounds, runs=runs, calls=calls),
        timing_check(
            make,
            mechanism,
            limits,
            rng,
            records=records,
            rounds=rounds,
            calls=calls,
            hears=hears,
            padded=told.privacy.padded,
        ),
        retry_check(make, limits, rng, rounds=rounds, calls=calls, padded=told.privacy.padded),
        restart_check(make, limits, rng, rounds=rounds, calls=calls),
        long_life_check(make, mechanism, limits, claim, rng, records=records, rounds=rounds, calls=calls),
        bounds_check(make, mechanism, limits, claim, rounds=min(rounds, 50), calls=calls),
        ledger_check(make, mechanism, limits, rng, rounds=rounds, calls=calls),
        choices_check(make, mechanism, limits, claim, rng, rounds=rounds, calls=calls),
    ]
    if world.n_clients > 1 and len(by_client) == 1:
        few = min(runs, 20)
        checks.append(independence_check(make, other, mechanism, limits, rng, rounds=rounds, runs=few, calls=calls))
    return [*checks, *_network(system, world, mechanism, limits, claim, rounds)], found


def _spared(trust: str) -> Iterator[Check]:
    """Attacks on a client's own stream of noise, which it has not where a total is noised."""
    names = OF_STREAMS if trust == "sums" else (*OF_STREAMS, "client, copies")
    where = "shares of a sum's noise" if trust == "sums" else "no noise, the coordinator is trusted"
    yield from (skip(name, f"not attacked: clients add {where}") for name in names)


def _secure_sums(system: System, privacy: PrivateStatistics, world: World, limits: RecordLimits) -> Iterator[Check]:
    """A coordinator that does not follow the protocol of secure sums, and a copied client."""
    if privacy.trust != "sums":
        return
    from fedbandit.audit.copy_attack import sum_copies_check
    from fedbandit.audit.mask_attack import mask_checks

    try:
        yield from mask_checks(privacy.sum_terms, world.n_clients)
    except FedbanditError as error:  # without the extra `secure`
        yield skip("sums, masks and keys", str(error))
    yield sum_copies_check(system, world, privacy.sum_terms.mechanism, limits)


def _noised_rewards(
    system: System, told: System, world: World, rounds: int, trials: int, seed: int, makers: Makers,
    rng: np.random.Generator,
) -> tuple[list[Check], Audit | None]:  # fmt: skip
    """Of systems that noise each reward when it is observed."""
    claim, rule = told.guarantee, told.privacy.reward_rule
    limits = RecordLimits.of(world, rule, claim.protects)
    mechanism, sample = reward_noise(rule, claim)
    check, found = likelihood_attack(
        mechanism, neighbouring_increments(mechanism, limits, 1), claim, rng, trials, sample
    )
    make = partial(_make, makers.client, system, world, 0, seed)
    spared = _not_attacked(told, make)
    source = secure_source()
    checks = [
        check,
        exact_check(mechanism, limits._replace(dim=1, bound=1.0), 1, claim.epsilon, claim.delta),
        skip("secure noise", source) if isinstance(source, str) else source_check(mechanism, source, "secure"),
        spared or rewards_check(make, mechanism, limits, claim, rounds=max(rounds, trials // 4)),
    ]
    return checks, found


def _calls(told: System, world: World, rounds: int) -> frozenset[int]:
    """After which rounds a coordinator that knows its members calls them, whatever they have seen."""
    by_member = told.structure.separate and told.knows_members(world)
    coordinator, found = told.coordinator(world) if by_member else None, set[int]()
    done = 0 if coordinator is None else coordinator.next_wake(0)
    while coordinator is not None and done <= rounds:
        found.add(done)
        done = coordinator.next_wake(done)
    return frozenset(found)


def _not_attacked(told: System, make: MakeMachine) -> Check | None:
    """Why there is no client to attack, if there is none."""
    if told.guarantee.true_epsilon == math.inf and not told.structure.separate:
        return Check("client", False, 0.0, f"not attacked: no finite ε holds, {told.guarantee.remark}")
    why = "the coordinator is trusted, clients send it what they have"
    if told.privacy.site != "coordinator":
        try:
            make(0)
        except FedbanditError as error:
            why = str(error)
        else:
            return None
    return skip("client", f"not attacked: {why}")


def private_systems(presets: Mapping[str, Callable[..., System]]) -> Iterator[tuple[str, System]]:
    """Every preset that claims something when it is called without keywords; other names for one are left out."""
    for name, make in presets.items():
        if make.__name__ == name:
            system = make()
            if system.guarantee.basis != "none":
                yield name, system


def _make(
    make_machine: Callable[..., ClientMachine],
    system: System,
    world: World,
    member: int,
    seed: int,
    run: int,
    source: Source | None = None,
) -> ClientMachine:
    return make_machine(member, system, world, seed * 1_000_003 + run, source=source)


def _mechanisms(told: System, n_clients: int) -> dict[int, Mechanism]:
    """Client → the mechanism of its releases; one client for each different mechanism."""
    found: dict[int, Mechanism] = {}
    for member in range(n_clients):
        stream = told.privacy.stream(member, partial(generator, 0, Purpose.NOISE, member))
        if stream is not None and stream.mechanism not in found.values():
            found[member] = stream.mechanism
    return found


def _exact_checks(by_client: dict[int, Mechanism], limits: RecordLimits, records: int, told: System) -> Iterator[Check]:
    """Each mechanism against what is claimed for its client: the system's claim, or that of its own budget."""
    claim = told.guarantee
    if records > 1:  # how they are spread over releases decides: `long_life_check` and `contents_check` see it
        return
    for member, mechanism in by_client.items():
        several = len(by_client) > 1
        name = f"mechanism of client {member}, exact" if several else "mechanism, exact"
        epsilon = min(mechanism.epsilon, claim.epsilon) if several else claim.epsilon
        yield exact_check(mechanism, limits, records, epsilon, claim.delta, name)


def _larger(system: System, world: World, member: int, records: int) -> Iterator[Check]:
    """The mechanism of the same system in a larger world: noise must be enough there, too."""
    dim, rounds = max(LARGER[0], world.dim), max(LARGER[1], world.horizon // world.per_round)
    if records > 1 or not system.structure.separate:
        return
    large = replace(world, dim=dim, horizon=rounds * world.per_round)
    told = system.told(large)
    stream = told.privacy.stream(member, partial(generator, 0, Purpose.NOISE, member))
    if stream is not None:
        claim = told.guarantee
        limits = RecordLimits.of(large, told.privacy.reward_rule, claim.protects)
        epsilon = min(claim.epsilon, stream.mechanism.epsilon)
        yield exact_check(stream.mechanism, limits, 1, epsilon, claim.delta, f"mechanism, d = {dim}")


def _network(
    system: System, world: World, mechanism: Mechanism, limits: RecordLimits, claim: Guarantee, rounds: int
) -> Iterator[Check]:
    """A client as the network makes it, and a copy of its file."""
    from fedbandit.audit.copy_attack import copies_check, stored_check
    from fedbandit.network.client.options import noise_source

    try:
        source = noise_source(system, report=False, lasts=True)
    except FedbanditError as error:
        yield skip("network client, noise", str(error))
        return
    make = partial(ClientMachine, 0, system, world, 0, source=source)
    yield twin_check(make, mechanism, limits, min(rounds, 50))
    yield stored_check(system, world, mechanism, limits)
    yield copies_check(system, world, mechanism, limits, claim)
