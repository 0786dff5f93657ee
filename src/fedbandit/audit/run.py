"""The audit of one system."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from fedbandit.audit.client_attack import cap_check, contents_check, retry_check, rewards_check, timing_check
from fedbandit.audit.mechanism_attack import exact_check, likelihood_attack, neighbouring_increments, reward_noise
from fedbandit.audit.neighbours import Limits
from fedbandit.audit.observer import MakeMachine
from fedbandit.audit.report import AuditReport, Check
from fedbandit.errors import FedbanditError, whole_number
from fedbandit.machines.client import ClientMachine
from fedbandit.privacy.mechanism import Mechanism
from fedbandit.streams import Purpose, generator
from fedbandit.system import System
from fedbandit.world import World

TRIALS = 20_000
LEAST_TRIALS = 1_000
_STREAMS_A_RUN = 200
"""Streams of a mechanism for each run of a client, which takes about as long."""


def audit_system(
    system: System,
    *,
    n_clients: int = 3,
    dim: int = 2,
    rounds: int = 200,
    trials: int = TRIALS,
    seed: int = 0,
    make_machine: Callable[..., ClientMachine] = ClientMachine,
) -> AuditReport:
    """Attack what a system claims, in a world of `n_clients` that act in each of so many rounds.

    `trials` is the number of streams in each world of the likelihood-ratio attack; there are a two-hundredth as many
    runs of a client. The smaller the world, the more is seen: scales do not depend on its dimension.

    >>> import fedbandit as fb
    >>> report = audit_system(fb.dp_linucb(epsilon=2.0), trials=1000, rounds=50)
    >>> report.passed, report.lower_bound <= 2.0
    (True, True)
    """
    whole_number("trials", trials, LEAST_TRIALS)
    whole_number("rounds", rounds, 1)
    if system.guarantee.basis == "none":
        raise FedbanditError(f"{system.name} claims no privacy, so there is nothing to audit.")
    graph = np.full((n_clients, n_clients), 1 / n_clients)
    world = World(n_clients, dim, rounds * n_clients, per_round=n_clients, graph=graph)
    told = system.told(world)
    claim = told.guarantee
    rng = generator(seed, Purpose.NOISE)
    limits = Limits.of(world, told.privacy.reward_rule, claim.protects)
    records = told.privacy.contribution or 1
    by_client = _mechanisms(told, n_clients)
    if not by_client:
        mechanism, sample = reward_noise(told.privacy.reward_rule, claim)
        check, found = likelihood_attack(
            mechanism, neighbouring_increments(mechanism, limits, 1), claim, rng, trials, sample
        )
        make = partial(_make, make_machine, system, world, 0, seed)
        attacked = _not_attacked(told, make) or rewards_check(
            make, mechanism, limits, claim, rounds=max(rounds, trials // 4)
        )
        return AuditReport(system.name, claim, world, (check, attacked), found)
    weakest = max(by_client, key=lambda member: by_client[member].epsilon)
    mechanism = by_client[weakest]
    pair = neighbouring_increments(mechanism, limits, records)
    check, found = likelihood_attack(mechanism, pair, claim, rng, trials)
    checks = [check, *_exact_checks(by_client, limits, records)]
    make = partial(_make, make_machine, system, world, weakest, seed)
    spared = _not_attacked(told, make)
    if spared:
        return AuditReport(system.name, claim, world, (*checks, spared), found)
    runs = max(trials // _STREAMS_A_RUN, 5)
    calls = _calls(told, world, rounds)
    checks += [
        contents_check(make, mechanism, limits, claim, rng, records=records, rounds=rounds, runs=runs, calls=calls),
        timing_check(make, mechanism, limits, rng, records=records, rounds=rounds, calls=calls),
        retry_check(make, limits, rng, rounds=rounds, calls=calls),
        cap_check(make, mechanism, limits, rng, rounds=rounds, calls=calls),
    ]
    return AuditReport(system.name, claim, world, tuple(checks), found)


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
    return Check("client", True, 0.0, f"not attacked: {why}")


def private_systems(presets: Mapping[str, Callable[..., System]]) -> Iterator[tuple[str, System]]:
    """Every preset that claims something when it is called without keywords; other names for one are left out."""
    for name, make in presets.items():
        if make.__name__ == name:
            system = make()
            if system.guarantee.basis != "none":
                yield name, system


def _make(
    make_machine: Callable[..., ClientMachine], system: System, world: World, member: int, seed: int, run: int
) -> ClientMachine:
    return make_machine(member, system, world, seed * 1_000_003 + run)


def _mechanisms(told: System, n_clients: int) -> dict[int, Mechanism]:
    """Client → the mechanism of its releases; one client for each different mechanism."""
    found: dict[int, Mechanism] = {}
    for member in range(n_clients):
        stream = told.privacy.stream(member, partial(generator, 0, Purpose.NOISE, member))
        if stream is not None and stream.mechanism not in found.values():
            found[member] = stream.mechanism
    return found


def _exact_checks(by_client: dict[int, Mechanism], limits: Limits, records: int) -> Iterator[Check]:
    for member, mechanism in by_client.items():
        who = f"client {member}, ε = {mechanism.epsilon:g}: " if len(by_client) > 1 else ""
        check = exact_check(mechanism, neighbouring_increments(mechanism, limits, records), mechanism.epsilon, who)
        if check is not None:
            yield check
