"""An attack with a copied state file: two clients release the same records, each with noise of its own.

The original is shut out when its copy joins, but what it has already made is sent, and seen. Such records have been
released twice, so either the copy never gets as far as that, or the coordinator's ledger counts one life more.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from fedbandit.audit.neighbours import Record, RecordLimits, pairs_of
from fedbandit.audit.report import Check, skip
from fedbandit.errors import FedbanditError
from fedbandit.machines.sums.server import OpenedSum
from fedbandit.messages import Collect, Contribution, Upload
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.ledger import privacy_spent
from fedbandit.network.envelope import unseal
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import MemoryStore
from fedbandit.privacy.calibration import gaussian_epsilon
from fedbandit.privacy.guarantee import Guarantee
from fedbandit.privacy.mechanism import Mechanism, distance
from fedbandit.privacy.published_total import PublishedTotal
from fedbandit.sums import Sums
from fedbandit.system import System
from fedbandit.world import World

NAME, STORED, MEMBER = "client, copies", "network client, stored first", 0
MakeFederation = Callable[[str, Agreement, MemoryStore], Federation]
"""A coordinator; tests plant faults here."""


def agreement_of(system: System, world: World) -> Agreement:
    """Terms of a federation with this very system."""

    class Given(Agreement):
        def build(self) -> System:
            return system.told(world)

    return Given(system.name, {}, world)


class Copied:
    """A client, and a copy of its file that is opened later, in one federation."""

    def __init__(self, system: System, world: World, make: MakeFederation, record: Record) -> None:
        terms, numbers, store = agreement_of(system, world), itertools.count(11), MemoryStore()
        self.federation = make("audit", terms, MemoryStore())
        for i in range(world.n_clients):
            self.federation.invite(str(i), 0.0)
        self.record = record
        self.original = DurableClient(store, terms, MEMBER, lambda: next(numbers), np.random.default_rng(1))
        self.say(self.original.greeting())
        self.observe(self.original)
        copy = store.copy()
        DurableClient(copy, terms, MEMBER, lambda: next(numbers))  # opened once before: its epoch is a later one
        self.copy = DurableClient(copy, terms, MEMBER, lambda: next(numbers), np.random.default_rng(2))

    def observe(self, client: DurableClient) -> None:
        """Let a client have the record."""
        client.observe(client.select(self.record.x[None]).number, self.record.y)

    def say(self, frame: bytes | None) -> str:
        """Send a frame; why it was refused, if it was."""
        assert frame is not None
        (outcome,) = self.federation.receive([(str(MEMBER), frame)], 1.0)
        return str(outcome) if isinstance(outcome, Refusal) else ""

    def taken(self, client: DurableClient) -> int:
        """Have a client tell what it has observed; how many of its uploads are taken."""
        client.receive(Collect(MEMBER, 1))
        frames = client.outgoing(len(client.machine.outbox))
        return sum(not self.say(frame.data) for frame in frames)

    def release(self, client: DurableClient, rounds: int) -> list[Upload]:
        """Have a client release what it has observed, and send it."""
        for _ in range(rounds):
            if not client.machine.outbox:
                self.observe(client)
        if not client.machine.outbox:
            client.receive(Collect(MEMBER, 1))
        made = [upload for upload in client.machine.outbox.values() if upload.sums.n > 0]
        for frame in client.outgoing(len(client.machine.outbox)):
            self.say(frame.data)
        return made


def stored_check(
    system: System,
    world: World,
    mechanism: Mechanism,
    limits: RecordLimits,
    rounds: int = 50,
    make: Callable[..., DurableClient] = DurableClient,
) -> Check:
    """Whether an upload that can be sent is in the store: after a power cut the very same bytes must be sent again."""
    record = next(iter(pairs_of(limits, mechanism).values()))[0]
    store, terms = MemoryStore(), agreement_of(system, world)
    client = make(store, terms, MEMBER, lambda: 11, np.random.default_rng(1))
    for _ in range(rounds):
        if not client.machine.outbox:
            client.observe(client.select(record.x[None]).number, record.y)
    if not client.machine.outbox:
        client.receive(Collect(MEMBER, 1))
    sent = [payloads(client)]
    if not sent[0]:
        return skip(STORED, f"nothing was uploaded in {rounds} rounds")
    sent.append(payloads(make(store.copy(), terms, MEMBER, lambda: 12, np.random.default_rng(2))))
    if sent[0] != sent[1]:
        return Check(STORED, False, math.inf, "what was sent is not stored: after a crash it has other noise")
    return Check(STORED, True, 0.0, f"{len(sent[0])} upload is in the store, to the bit, before it is sent")


def payloads(client: DurableClient) -> list[bytes]:
    """All uploads that a client would send now."""
    return [unseal(frame.data)[1] for frame in client.outgoing(len(client.machine.outbox))]


def copies_check(
    system: System,
    world: World,
    mechanism: Mechanism,
    limits: RecordLimits,
    claim: Guarantee,
    rounds: int = 50,
    make: MakeFederation = Federation,
) -> Check:
    """Whether the ledger knows of records that an original and its copy released."""
    record = next(iter(pairs_of(limits, mechanism).values()))[0]
    try:
        both = Copied(system, world, make, record)
    except FedbanditError as error:
        return skip(NAME, str(error))
    refused = both.say(both.copy.greeting())
    if refused:
        return Check(NAME, True, 0.0, f"the copy is refused before it says anything: {refused}")
    seen = [*both.release(both.original, rounds)[:1], *both.release(both.copy, rounds)[:1]]
    if len(seen) < 2 or (seen[0].sums.b == seen[1].sums.b).all():
        return Check(NAME, True, 0.0, "an original and its copy do not release the same records with different noise")
    lives = int(privacy_spent(both.federation, both.federation.register.record(str(MEMBER)))["lives"])
    true = gaussian_epsilon(math.sqrt(2) * distance(mechanism), claim.delta)
    if lives < 2:
        return Check(NAME, False, true, f"two releases of the same records were seen, ε = {true:.2f}; one is counted")
    return Check(NAME, True, 0.0, f"a copy released records again, which the ledger counts: ε = {true:.2f} for both")


def sum_copies_check(
    system: System, world: World, mechanism: Mechanism, limits: RecordLimits, make: MakeFederation = Federation
) -> Check:
    """Whether a copy can put records into secure sums that its original has put in before."""
    record = next(iter(pairs_of(limits, mechanism).values()))[0]
    both = Copied(system, world, make, record)
    made = both.original.contribute(1, 0)
    if not isinstance(made, Contribution):
        return skip(NAME, "nothing was contributed to a sum")
    both.federation.machine.collect(range(world.n_clients))
    both.federation.open_sum(OpenedSum(1, made.words, dict.fromkeys(range(world.n_clients), 1)), 1.0)
    if both.say(both.copy.greeting()):
        return Check(NAME, True, 0.0, "a copy that lacks a sum in which its original was is refused when it joins")
    twice = isinstance(both.copy.contribute(2, 1), Contribution)
    detail = "a copy contributes records that are in a sum already, with other noise" if twice else "it has none left"
    return Check(NAME, not twice, math.inf if twice else 0.0, detail)


def sum_stored_check(
    system: System,
    world: World,
    mechanism: Mechanism,
    limits: RecordLimits,
    make: Callable[..., DurableClient] = DurableClient,
) -> Check:
    """Whether a contribution that can be sent is in the store as spent: after a power cut there is no other one."""
    record = next(iter(pairs_of(limits, mechanism).values()))[0]
    store, terms = MemoryStore(), agreement_of(system, world)
    client = make(store, terms, MEMBER, lambda: 11, np.random.default_rng(1))
    client.observe(client.select(record.x[None]).number, record.y)
    if not isinstance(client.contribute(1, 0), Contribution):
        return skip(STORED, "nothing was contributed to a sum")
    again = make(store.copy(), terms, MEMBER, lambda: 12, np.random.default_rng(2)).contribute(1, 0)
    if isinstance(again, Contribution):
        return Check(STORED, False, math.inf, "after a crash a client contributes to an epoch again, with other noise")
    return Check(STORED, True, 0.0, "a contribution is in the store, as spent, before it is sent")


def coordinators_check(system: System, world: World, make: MakeFederation = Federation) -> Check:
    """Whether two trusted coordinators on a network with the same terms and the same data draw different noise."""
    name, terms, published = "network coordinator, noise", agreement_of(system, world), list[Sums]()
    for _ in range(2):
        pool = make("audit", terms, MemoryStore()).machine.pool
        total = None if pool is None else pool.total
        assert isinstance(total, PublishedTotal)
        total.add(Sums(np.zeros((world.dim, world.dim)), np.zeros(world.dim), 1))
        noisy = total.publish()
        assert noisy is not None
        published.append(Sums(noisy.V, noisy.b, 1))
    if (published[0].b == published[1].b).any():
        return Check(name, False, math.inf, "the noise follows from the terms: whoever knows them knows it")
    return Check(name, True, 0.0, "two coordinators with the same terms and data publish different totals")


def told_copies_check(
    system: System, world: World, mechanism: Mechanism, limits: RecordLimits, make: MakeFederation = Federation
) -> Check:
    """Whether a trusted coordinator takes records from an original and from its copy, and so publishes them twice."""
    record = next(iter(pairs_of(limits, mechanism).values()))[0]
    for first in (True, False):  # the original is told of before its copy joins, or after that
        both = Copied(system, world, make, record)
        taken = both.taken(both.original) if first else 0
        refused = both.say(both.copy.greeting())
        taken += 0 if refused else both.taken(both.copy)
        taken += 0 if first else both.taken(both.original)
        if taken > 1:
            return Check(NAME, False, math.inf, "records of an original are taken from its copy, too, and count twice")
    return Check(NAME, True, 0.0, "of an original and its copy one is taken at its word, the other is refused")
