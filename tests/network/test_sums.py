"""Secure sums and a trusted coordinator on loopback: real clients, real HTTP."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.messages import Collect, Contribution, Message, encode
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.coordinator.config import FederationConfig, ServerConfig
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.host import Host
from fedbandit.network.envelope import Envelope, seal
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import MemoryStore
from fedbandit.privacy.published_total import PublishedTotal
from fedbandit.testing.crashing import CrashingStore
from tests.network.servers import served

N, D = 3, 2
WORLD = fb.World(n_clients=N, dim=D, horizon=3000)


def agreement(trust: str, **keywords: object) -> Agreement:
    return Agreement("feducb", {"trust": trust, "epsilon": 1.0, "own": "exact", **keywords}, WORLD)


def host_of(terms: Agreement) -> Host:
    return Host(ServerConfig({"shops": FederationConfig(terms)}, rate=1e6), MemoryStore())


def wait_for(what: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until something is so; only ever too long if it never is."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def serve_users(clients: list[fb.Client], visits: int, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(visits):
        for client in clients:
            arm = client.select(rng.uniform(-0.5, 0.5, (3, D)))
            client.observe(float(rng.uniform(-1, 1)), arm)


@pytest.mark.parametrize("trust", ["sums", "coordinator"])
def test_totals_reach_everybody(trust: str, tmp_path: Path) -> None:
    host = host_of(agreement(trust))
    federation = host.federations["shops"].federation
    with served(host) as url, ExitStack() as stack:
        clients = [
            stack.enter_context(fb.Client(url, federation="shops", name=f"c{i}", state=tmp_path / f"c{i}.db"))
            for i in range(N)
        ]
        wait_for(lambda: all(client.connected for client in clients))
        serve_users(clients, 4)
        wait_for(lambda: all(client._durable.machine.version >= 1 for client in clients))
        assert all(client.guarantee.noise == "secure" for client in clients)
        assert all(client.guarantee.trust == trust for client in clients)
        pool = federation.machine.pool
        assert pool is not None
        assert pool.total.epoch >= 1
        assert all(client.problem is None for client in clients)
        if trust == "sums":
            assert all(len(client.acquaintances) == N for client in clients)
            assert len({tuple(client.acquaintances.values()) for client in clients}) == 1
            assert (tmp_path / "c0.db.sums").stat().st_mode & 0o077 == 0
        assert int(federation.machine.gathered().n) >= N * 3
    again = Federation("shops", federation.agreement, host.store)
    assert again.machine.pool is not None
    assert again.machine.pool.total.epoch == pool.total.epoch
    assert (again.machine.gathered().V == federation.machine.gathered().V).all()


def test_one_that_is_gone_does_not_hold_up_a_trusted_coordinator_and_noise_is_drawn_once() -> None:
    """What was published is in the store with its noise: a restart publishes the same numbers, and nothing anew."""
    store = MemoryStore()
    federation = Federation("f", agreement("coordinator"), store, patience=1)
    clients = []
    for i in range(N):
        record = federation.invite(f"c{i}", 0.0)
        clients.append(DurableClient(MemoryStore(), federation.agreement, record.member, lambda: 7))
        federation.receive([(f"c{i}", clients[-1].greeting() or b"")], 0.0)
    rng = np.random.default_rng(0)
    for _ in range(5):
        for i, client in enumerate(clients):
            choice = client.select(rng.uniform(-0.5, 0.5, (3, D)))
            client.observe(choice.number, 0.5)
            queue = [(f"c{i}", frame.data) for frame in client.outgoing()]
            while queue:
                name, data = queue.pop()
                (answers,) = federation.receive([(name, data)], 0.0)
                assert not isinstance(answers, Refusal), answers
                for message in answers:
                    clients[message.member].receive(message)
                    queue += [(f"c{message.member}", f.data) for f in clients[message.member].outgoing()]
    pool = federation.machine.pool
    assert pool is not None
    assert isinstance(pool.total, PublishedTotal)
    assert pool.total.epoch >= 1
    again = Federation("f", federation.agreement, store)
    assert (again.machine.gathered().V == federation.machine.gathered().V).all()
    assert again.machine.pool is not None
    assert again.machine.pool.total.epoch == pool.total.epoch, "the ledger is in the store"


def test_what_is_not_masked_is_refused() -> None:
    federation = Federation("f", agreement("sums"), MemoryStore())
    record = federation.invite("c0", 0.0)
    client = DurableClient(MemoryStore(), federation.agreement, record.member, lambda: 7)
    federation.receive([("c0", client.greeting() or b"")], 0.0)
    bare = encode(Contribution(record.member, 1, 1, np.zeros(5, dtype=np.uint64), np.zeros((0, 5), dtype=np.uint64)))
    envelope = Envelope(client.incarnation, client.epoch, client.nonce, 0, client.chain, client.terms)
    (outcome,) = federation.receive([("c0", seal(envelope, bare))], 0.0)
    assert isinstance(outcome, Refusal)
    assert "does not take a Contribution" in str(outcome)


def test_steps_of_no_sum_are_refused_with_a_sentence() -> None:
    with served(host_of(agreement("sums"))) as url:
        for body, sentence in ((b"nonsense", "has not joined"), (b"", "has not joined")):
            headers = {"X-Fedbandit-Name": "c0", "Content-Type": "application/octet-stream"}
            urllib.request.urlopen(
                urllib.request.Request(f"{url}/v1/shops/invitation", headers=headers), timeout=10
            ).close()
            request = urllib.request.Request(f"{url}/v1/shops/sums", data=body, headers=headers, method="POST")
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=10)
            with refused.value as answer:
                assert sentence in answer.read().decode()


def contributes_twice(kind: type[DurableClient]) -> bool:
    """The attack: have a client contribute, crash before anything leaves it, and call it to the same epoch again."""
    terms, store = agreement("sums"), CrashingStore()
    client = kind(store, terms, 0, lambda: 7)
    for _ in range(3):
        client.observe(client.select([[0.5, 0.0]]).number, 0.5)
    client.contribute(1, 0)
    return kind(store, terms, 0, lambda: 8).contribute(1, 0) is not None


class SendsFirst(DurableClient):
    """Planted: what goes into a sum may leave before it is stored."""

    def contribute(self, epoch: int, included: int) -> Message | None:
        made = self.machine.receive(Collect(self.machine.member, epoch, included))
        return made[0] if made else None


def test_a_crash_has_nobody_contribute_twice_to_an_epoch() -> None:
    assert not contributes_twice(DurableClient)
    assert contributes_twice(SendsFirst), "planted: the same data would leave with other noise"
