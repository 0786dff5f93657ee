"""The audit of one system."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fedbandit.audit.client_attack import contents_check, long_life_check, retry_check, rewards_check, timing_check
from fedbandit.audit.life_attack import (
    bounds_check,
    choices_check,
    downloads_of,
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
from fedbandit.audit.pooled import Pooled, attack_total
from fedbandit.audit.report import AuditReport, Check, skip
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
SPREAD = "not attacked: how a client's interactions are spread over releases decides; see client, long life"


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
    whole_number("n_clients", n_clients)
    whole_number("dim", dim)
    whole_number("seed", seed, 0)
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
        pooled = Pooled(
            system, told, world, _large_world(world), limits, partial(_make, makers.client, system, world, 0, seed),
            partial(_make, makers.client, system, world, 1 % world.n_clients, seed), rounds,
            max(trials // _STREAMS_A_RUN, 5), trials, _calls(told, world, rounds),
        )  # fmt: skip
        return list(attack_total(pooled, rng)), None
    by_client = _mechanisms(told, world.n_clients)
    if not by_client:
        return _noised_rewards(system, told, world, rounds, trials, seed, makers, rng)
    weakest = max(by_client, key=lambda member: told.guarantee_of(member).epsilon)
    mechanism = by_client[weakest]
    records = told.privacy.contribution or 1
    check, found = likelihood_attack(mechanism, neighbouring_increments(mechanism, limits, 1), claim, rng, trials)
    checks = [check] if records == 1 else []
    checks += _exact_checks(by_client, limits, records, told)
    checks += _larger(system, world, by_client, records)
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
        choices_check(
            make, mechanism, limits, claim, rng, rounds=rounds, calls=calls, downloads=downloads_of(told, world)
        ),
        _independent(makers, system, told, world, weakest, limits, rng, rounds, min(runs, 20), seed),
    ]
    return [*checks, *_network(system, world, mechanism, limits, claim, rounds)], found


def _independent(
    makers: Makers, system: System, told: System, world: World, member: int, limits: RecordLimits,
    rng: np.random.Generator, rounds: int, runs: int, seed: int,
) -> Check:  # fmt: skip
    """Whether the noise of this member is its own: compared with that of the next one that has any."""
    noised = _streams(told, world.n_clients)
    others = [i for i in (*range(member + 1, world.n_clients), *range(member)) if i in noised]
    if not others:
        return skip("members, independent noise", "not attacked: nobody else draws noise")
    both = [(partial(_make, makers.client, system, world, i, seed), noised[i]) for i in (member, others[0])]
    calls = _calls(told, world, rounds)
    return independence_check(both, limits, rng, rounds=rounds, runs=runs, calls=calls)


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
    """After which rounds a coordinator that knows its members, or has a total of them, calls them, come what may."""
    calls = told.structure.separate and (told.knows_members(world) or told.privacy.pooled)
    coordinator, found = told.coordinator(world) if calls else None, set[int]()
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


def _streams(told: System, n_clients: int) -> dict[int, Mechanism]:
    """Client → the mechanism of its releases, of those that have any noise."""
    streams = ((i, told.privacy.stream(i, partial(generator, 0, Purpose.NOISE, i))) for i in range(n_clients))
    return {i: stream.mechanism for i, stream in streams if stream is not None and stream.mechanism.scale > 0}


def _mechanisms(told: System, n_clients: int) -> dict[int, Mechanism]:
    """Client → the mechanism of its releases; one client for each pair of a mechanism and what is claimed for it."""
    found: dict[int, Mechanism] = {}
    known: list[tuple[Mechanism, float]] = []
    for member, mechanism in _streams(told, n_clients).items():
        pair = mechanism, told.guarantee_of(member).epsilon
        if pair not in known:
            known.append(pair)
            found[member] = mechanism
    return found


def _exact_checks(by_client: dict[int, Mechanism], limits: RecordLimits, records: int, told: System) -> Iterator[Check]:
    """Each mechanism against what is claimed for its client."""
    if records > 1:
        yield skip("mechanism, exact", SPREAD)
        return
    for member, mechanism in by_client.items():
        name = f"mechanism of client {member}, exact" if len(by_client) > 1 else "mechanism, exact"
        claim = told.guarantee_of(member)
        yield exact_check(mechanism, limits, records, claim.epsilon, claim.delta, name)


def _large_world(world: World) -> World:
    """One in which formulas are looked at, too."""
    dim, rounds = max(LARGER[0], world.dim), max(LARGER[1], world.horizon // world.per_round)
    return replace(world, dim=dim, horizon=rounds * world.per_round)


def _larger(system: System, world: World, members: Collection[int], records: int) -> Iterator[Check]:
    """The mechanisms of the same system in a larger world: noise must be enough there, too."""
    large = _large_world(world)
    name = f"mechanism, d = {large.dim}"
    if records > 1 or not system.structure.separate:
        yield skip(
            name, SPREAD if records > 1 else "not attacked: clients share models, whose noise is that of a graph"
        )
        return
    told = system.told(large)
    limits = RecordLimits.of(large, told.privacy.reward_rule, told.guarantee.protects)
    checks = []
    for member in members:
        stream, claim = (
            told.privacy.stream(member, partial(generator, 0, Purpose.NOISE, member)),
            told.guarantee_of(member),
        )
        assert stream is not None
        checks.append(exact_check(stream.mechanism, limits, 1, claim.epsilon, claim.delta, name))
    yield min(checks, key=lambda check: (check.passed, -(check.computed or 0.0)))


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
