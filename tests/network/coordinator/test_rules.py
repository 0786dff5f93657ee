"""What one member may contribute, and how it is taken out again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.messages import Download, Upload, decode, encode
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.coordinator.config import on_a_network
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.rules import Rules
from fedbandit.network.envelope import Envelope, seal
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import MemoryStore
from fedbandit.sums import Sums
from tests.network.in_process import make_clients, run, send

WORLD = fb.World(n_clients=3, dim=3, horizon=600)
AGREEMENT = Agreement("async-linucb", {"gamma_upload": 1.3, "gamma_download": 1.3}, WORLD)


def upload(client: DurableClient, sums: Sums, federation: Federation) -> bytes:
    """A frame of an attacker with the client's session."""
    envelope = Envelope(client.incarnation, client.epoch, client.nonce, 1, 0, federation.digest)
    return seal(envelope, encode(Upload(client.machine.member, 1, sums, 0.0)))


def outcome(federation: Federation, i: int, frame: bytes, at: float = 0.0) -> object:
    (found,) = federation.receive([(f"client-{i}", frame)], at)
    return found


@pytest.mark.parametrize("system", ["async-linucb", "hetofedbandit-e", "async-linucb-am"])
def test_one_client_cannot_end_a_federation(system: str) -> None:
    """2,048 uploads with n = 2⁵³ − 1 passed every check once, and no download could be encoded any more."""
    keywords = {"d_global": 1} if system.endswith("am") else {}
    federation = Federation("f", on_a_network(Agreement(system, keywords, WORLD)), MemoryStore())
    clients = make_clients(federation)
    run(federation, clients, 5)
    d = federation.dim
    x = np.eye(d)[0]
    for sums in (
        Sums(np.zeros((d, d)), np.zeros(d), 2**53 - 1),
        Sums(np.zeros((d, d)), np.zeros(d), 601),
        Sums(np.outer(x, x), 1e300 * x, 1),
    ):
        attacker = Envelope(99, 1, 1, 0, 0, federation.digest)
        outcome(federation, 0, seal(attacker, encode(clients[0].machine.join()[0])))
        frame = seal(attacker._replace(sequence=1), encode(Upload(0, 1, sums, 0.0)))
        assert isinstance(outcome(federation, 0, frame), Refusal)
    for share in federation.machine.send_shares(range(3)):
        decode(encode(share))


def test_all_observations_together_are_bounded_by_the_horizon_which_can_be_raised() -> None:
    store = MemoryStore()
    federation = Federation("f", replace(AGREEMENT, world=replace(WORLD, horizon=50)), store)
    (client,) = make_clients(federation, 1)
    send(federation, 0, client.greeting())
    refused = outcome(federation, 0, upload(client, Sums(np.eye(3), np.zeros(3), 40), federation))
    assert not isinstance(refused, Refusal)
    other = DurableClient(MemoryStore(), federation.agreement, 1, iter(range(5, 99)).__next__)
    federation.invite("client-1", 0.0)
    send(federation, 1, other.greeting())
    frame = upload(other, Sums(np.eye(3), np.zeros(3), 20), federation)
    refused = outcome(federation, 1, frame)
    assert isinstance(refused, Refusal)
    assert refused.kind == "horizon"
    assert "horizon = 50; its operator can raise that" in str(refused)
    raised = Federation("f", replace(AGREEMENT, world=replace(WORLD, horizon=80)), store)
    assert not isinstance(outcome(raised, 1, frame), Refusal)


def test_whoever_claims_the_whole_horizon_does_not_end_the_federation() -> None:
    """Statistics of nothing but a count pass every check; a quarantine gives back what they used up."""
    federation = Federation("f", replace(AGREEMENT, world=replace(WORLD, horizon=50)), MemoryStore())
    liar, honest = make_clients(federation, 2)
    for i, client in enumerate((liar, honest)):
        greeting = client.greeting()
        assert greeting is not None
        federation.receive([(f"client-{i}", greeting)], 0.0)
    lie = Upload(0, 1, Sums(np.zeros((3, 3)), np.zeros(3), 50), 0.0)
    envelope = Envelope(liar.incarnation, liar.epoch, liar.nonce, 1, 0, federation.digest)
    (taken,) = federation.receive([("client-0", seal(envelope, encode(lie)))], 0.0)
    assert not isinstance(taken, Refusal)
    while not honest.machine.outbox:
        honest.observe(honest.select(np.eye(3)).number, 0.5)
    frame = honest.outgoing()[0].data
    (refused,) = federation.receive([("client-1", frame)], 0.0)
    assert isinstance(refused, Refusal)
    assert refused.kind == "horizon"
    federation.quarantine("client-0", "claims everything", 0.0, "boss")
    (taken,) = federation.receive([("client-1", frame)], 0.0)
    assert not isinstance(taken, Refusal)
    with pytest.raises(Refusal, match="cannot take 50 more"):
        federation.quarantine("client-0", "", 0.0, "boss")
    assert federation.register.record("client-0").quarantined
    again = Federation("f", federation.agreement, federation.store)
    assert again.machine.gathered().n == honest.machine.observed


def test_time_since_joining_and_weight_bound_what_is_taken() -> None:
    rules = Rules(client_rate=0.5, weight=0.6)
    federation = Federation("f", AGREEMENT, MemoryStore(), rules=rules)
    clients = make_clients(federation)
    for i, client in enumerate(clients):
        send(federation, i, client.greeting())
    fast = outcome(federation, 0, upload(clients[0], Sums(np.eye(3), np.zeros(3), 31), federation))
    assert isinstance(fast, Refusal)
    assert (fast.kind, "client_rate = 0.5" in str(fast)) == ("rate", True)
    heavy = upload(clients[0], Sums(np.eye(3), np.zeros(3), 31), federation)
    refused = outcome(federation, 0, heavy, at=60.0)
    assert isinstance(refused, Refusal)
    assert (refused.kind, "31 of 31" in str(refused)) == ("weight", True)
    send(federation, 1, upload(clients[1], Sums(np.eye(3), np.zeros(3), 30), federation))
    assert not isinstance(outcome(federation, 0, heavy, at=60.0), Refusal)


SYSTEMS: dict[str, dict[str, Any]] = {
    "async-linucb": {"gamma_upload": 1.3, "gamma_download": 1.3},
    "count-linucb": {"privacy": {"noises": "statistics", "epsilon": 3.0}},
    "sync-linucb": {"threshold": 0.5},
    "clustered-linucb": {},
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_quarantine_takes_out_what_was_uploaded_and_its_end_brings_it_back(system: str) -> None:
    agreement = on_a_network(Agreement(system, SYSTEMS[system], WORLD))
    federation = Federation("f", agreement, MemoryStore())
    clients = make_clients(federation)
    run(federation, clients, 30)
    machine = federation.machine
    assert machine.contributions is not None
    before, own = machine.gathered(), machine.contributions.sums_of(2)
    assert own.n > 0
    sent = federation.quarantine("client-2", "it lies", 1.0, "boss")
    assert {message.member for message in sent} <= {0, 1}, "nobody but members who had been sent something"
    others = machine.gathered()
    np.testing.assert_allclose(others.V, before.V - own.V, atol=1e-9)
    np.testing.assert_allclose(others.b, before.b - own.b, atol=1e-9)
    assert others.n == before.n - own.n
    for message in sent:
        if isinstance(message, Download) and message.own and system == "async-linucb":
            assert message.sums.n == others.n
    again = Federation("f", agreement, federation.store)
    assert again.machine.gathered().n == others.n
    assert again.register.record("client-2").quarantined_by == "boss"
    again.quarantine("client-2", "", 2.0, "boss")
    np.testing.assert_allclose(again.machine.gathered().V, before.V, atol=1e-9)


def test_without_sums_of_members_what_was_uploaded_stays() -> None:
    federation = Federation("f", AGREEMENT, MemoryStore(), rules=Rules(retract=False))
    run(federation, make_clients(federation), 30)
    before = federation.machine.gathered()
    assert federation.quarantine("client-2", "it lies", 1.0) == []
    assert federation.machine.gathered().n == before.n
    kept = Federation("f", AGREEMENT, federation.store)  # and from now on they are kept
    assert kept.machine.contributions is not None
    assert kept.machine.gathered().n == before.n
    kept.quarantine("client-2", "", 1.0)
    np.testing.assert_array_equal(kept.machine.gathered().V, before.V)
