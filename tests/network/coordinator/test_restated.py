"""Restatements that nobody asked for, or that say too much; and how often one may release."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.machines.servers_coordinator import ServersCoordinator
from fedbandit.messages import Collect, Join, Recall, Receipt, Request, Upload
from fedbandit.network.coordinator.config import on_a_network
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.rules import Robust, Rules
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import MemoryStore
from fedbandit.server_messages import FromServer
from fedbandit.sums import Sums
from tests.network.coordinator.hostile import Hostile
from tests.network.in_process import assert_same, make_clients, run, send

WORLD = fb.World(n_clients=4, dim=3, horizon=20_000)
PRIVATE: dict[str, dict[str, Any]] = {
    "count-linucb": {"privacy": {"noises": "statistics", "epsilon": 5.0}},
    "feducb": {"epsilon": 5.0, "delta": 1e-4},
}
OPEN: dict[str, Any] = {"gamma_upload": 1.3, "gamma_download": 1.3}


def made(system: str, keywords: dict[str, Any], rules: Rules | None = None, world: fb.World = WORLD) -> Federation:
    return Federation("f", on_a_network(Agreement(system, keywords, world)), MemoryStore(), rules=rules)


def refused(outcome: object, sentence: str) -> bool:
    assert isinstance(outcome, Refusal), outcome
    assert sentence in str(outcome)
    return True


# Who may restate


def test_nobody_restates_unasked() -> None:
    """Neither before it has joined, nor when the coordinator has all it has, nor twice."""
    federation = made("async-linucb", OPEN)
    liar = Hostile(federation)
    assert refused(liar.restate(1, 1), "has not joined")
    liar.join()
    assert refused(liar.restate(1, 1), "was not asked to")
    assert not isinstance(liar.upload(), Refusal)
    assert refused(liar.restate(2, 1), "was not asked to")
    before = federation.machine.state()
    again = Federation("f", federation.agreement, federation.store)
    liar.federation = again
    assert refused(liar.restate(2, 1), "was not asked to"), "nor after a restart of the coordinator"
    assert_same(again.machine.state(), before)
    asked = liar.join(5)
    assert isinstance(asked, list)
    assert isinstance(asked[0], Recall)
    again = liar.federation = Federation(
        "f", federation.agreement, federation.store
    )  # it is asked, after a restart too
    assert not isinstance(liar.restate(5, 1, liar.some(2)), Refusal)
    assert not isinstance(liar.restate(5, 1, liar.some(9)), Refusal), "a repeated one is acknowledged"
    assert again.machine.gathered().n == 2
    assert refused(liar.restate(6, 1, liar.some(9)), "was not asked to")


def test_whoever_lost_everything_here_is_asked_and_restates() -> None:
    """A coordinator whose backup is older than the client's first upload: nothing was applied, and something made."""
    federation = made("async-linucb", OPEN)
    client = Hostile(federation)
    asked = client.join(3)
    assert isinstance(asked, list)
    assert isinstance(asked[0], Recall)
    assert not isinstance(client.restate(3, 2, client.some(4)), Refusal)
    assert federation.machine.applied == {client.member: 3}


@pytest.mark.parametrize("keeps", [True, False])
def test_without_members_sums_a_restatement_names_what_to_do(keeps: bool) -> None:
    """Where one total is all there is, or none are kept."""
    pooled = {"epsilon": 5.0, "delta": 1e-4, "trust": "coordinator"}
    rules = Rules(retract=False)
    federation = made("feducb", pooled) if keeps else made("async-linucb", OPEN, rules)
    client = Hostile(federation)
    client.join(3)
    assert refused(client.restate(3, 1), "keeps no member's sums apart; restore a newer backup of it")
    client.sequence = 3
    assert refused(client.upload(), "restore a newer backup of it")


# What it may say


@pytest.mark.parametrize("system", PRIVATE)
@pytest.mark.parametrize(
    ("sequence", "releases"),
    [(2**63 - 1, 2**63 - 1), (2**64 - 1, 2**64 - 2), (2**53, 2**53), (2**53 - 1, 2**53 - 1), (2**20, 2**20), (9, 7)],
)
def test_claimed_releases_are_bounded(system: str, sequence: int, releases: int) -> None:
    """By observations, and by what a client can release; and a batch loses nothing by it."""
    federation = made(system, PRIVATE[system])
    (client,) = make_clients(federation, 1)
    send(federation, 0, client.greeting())
    liar = Hostile(federation)
    liar.join(min(sequence, 2**53 - 1))
    choice = client.select(np.eye(3))
    client.observe(choice.number, 0.5)
    slack = federation.machine.share(0).slack
    honest = [("client-0", frame.data) for frame in client.outgoing()] or [("client-0", client.greeting() or b"")]
    outcome = liar.restate(sequence, releases, liar.some(6))
    assert refused(outcome, "" if sequence < 2**53 else "uploads")
    (taken,) = federation.receive(honest, 0.0)
    assert not isinstance(taken, Refusal)
    assert not isinstance(liar.restate(min(sequence, 2**53 - 1), 6, liar.some(6)), Refusal), "six are possible"
    assert federation.machine.share(0).slack.offset <= slack.offset + 6 * 0.5
    assert federation.machine.members.releases.tolist()[liar.member] == 6
    Federation("f", federation.agreement, federation.store)


@pytest.mark.parametrize("system", PRIVATE)
def test_a_state_releases_as_often_as_its_mechanism_is_made_for(system: str) -> None:
    """1,500 uploads of one observation: refused beyond the budget of a life; one that lost its state goes on."""
    federation = made(system, PRIVATE[system])
    budget = federation.system.protocol.releases(WORLD)
    liar, taken = Hostile(federation), 0
    liar.join()
    while not isinstance(outcome := liar.upload(), Refusal):
        taken += 1
    assert taken == budget
    assert refused(outcome, f"has released {budget} times")
    again = liar.federation = Federation("f", federation.agreement, federation.store)
    assert refused(liar.upload(), f"has released {budget} times"), "after a restart of the coordinator, too"
    liar.incarnation, liar.opening, liar.sequence, liar.chain = 99, 0, 0, 0
    liar.join()
    assert not isinstance(liar.upload(), Refusal)
    record = again.register.record("evil")
    assert (record.releases, record.released_before) == (budget + 1, budget)


def test_clients_release_as_often_as_they_are_called() -> None:
    """By one who asks for a synchronisation again and again: more often than their own triggers would."""
    federation = made("feducb", PRIVATE["feducb"])
    budget = federation.system.protocol.releases(WORLD)
    clients, asker = make_clients(federation, 2), Hostile(federation)
    for i, client in enumerate(clients):
        send(federation, i, client.greeting())
    asker.join()
    nothing = Sums(np.zeros((3, 3)), np.zeros(3), 0)
    for k in range(budget + 20):
        for client in clients:
            client.observe(client.select(np.eye(3)).number, 0.5)
        answers = asker.send(Request(asker.member), at=2.0 ** (k + 10))  # so seldom that it is heard
        assert isinstance(answers, list)
        for call in answers:
            if isinstance(call, Collect) and call.member < 2:
                clients[call.member].receive(call)
        for i, client in enumerate(clients):
            while frames := client.outgoing():
                for message in send(federation, i, frames[0].data):
                    if message.member < 2:
                        clients[message.member].receive(message)
        asker.upload(sums=nothing)
    assert federation.register.record("client-1").releases > budget
    assert not federation.refusals


@pytest.mark.parametrize("system", PRIVATE)
def test_honest_clients_are_never_refused(system: str) -> None:
    """Through restarts of the coordinator, backups, and lost states."""
    federation = made(system, PRIVATE[system])
    clients = make_clients(federation, 4)
    run(federation, clients, 30)
    backup = federation.store.copy()  # type: ignore[attr-defined]
    run(federation, clients, 200)
    old = Federation("f", federation.agreement, backup)
    run(old, clients, 200)
    assert not old.refusals
    for i, client in enumerate(clients):
        assert old.machine.contributions is not None
        assert old.machine.contributions.own.n[i] == client.machine.observed - client.machine.pending


# Liars


@pytest.mark.parametrize("asked", [True, False])
def test_lies_in_restatements_are_compared_as_those_in_uploads(asked: bool) -> None:
    """Three of ten send flipped rewards in Restates alone, asked for because they say that they have made more."""
    world = fb.World(n_clients=10, dim=5, horizon=100_000, noise=0.1)
    rules = Rules(robust=Robust(liars=0.3, false_alarm=1e-3))
    federation = made("async-linucb", OPEN, rules, world)
    rng, theta = np.random.default_rng(0), np.array([0.6, -0.4, 0.3, 0.2, -0.3])
    honest, liars = ([Hostile(federation, f"{kind}-{k}") for k in range(m)] for kind, m in (("good", 7), ("evil", 3)))

    def observed(n: int, theta: Any) -> Sums:
        X = rng.standard_normal((n, 5))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        return Sums(X.T @ X, X.T @ np.clip(X @ theta + 0.1 * rng.standard_normal(n), -1, 1), n)

    for client in (*honest, *liars):
        client.join()
    n = 0
    for more in (5, 40, 100, 200):
        for client in honest:
            assert not isinstance(client.upload(sums=observed(more, theta)), Refusal)
        n += more
        for liar in liars:
            if asked:
                liar.join(liar.sequence + 1)
            liar.restate(liar.sequence + 1, 1, observed(5 * n, -theta))
    records = [federation.register.record(liar.name) for liar in liars]
    assert all(record.quarantined for record in records) == asked
    share = federation.machine.share(0).sums
    assert np.linalg.norm(np.linalg.solve(share.V + np.eye(5), share.b) - theta) < 0.2
    assert not any(federation.register.record(client.name).quarantined for client in honest)


def test_a_restatement_that_is_no_larger_is_compared_too() -> None:
    """Who was honest until then, and takes it back under the same number of observations."""
    world = fb.World(n_clients=6, dim=3, horizon=100_000, noise=0.1)
    federation = made("async-linucb", OPEN, Rules(robust=Robust(liars=0.3)), world)
    clients = [Hostile(federation, f"c{k}") for k in range(6)]
    V, theta = np.eye(3) / 3, np.array([0.6, -0.4, 0.3])
    for n in (3, 17, 130, 250):
        for client in clients:
            if n == 3:
                client.join()
            assert not isinstance(client.upload(sums=Sums(n * V, n * V @ theta, n)), Refusal)
    liar = clients[-1]
    liar.join(5)
    outcome = liar.restate(5, 1, Sums(400 * V, -400 * V @ theta, 400))
    assert refused(outcome, "is in quarantine")
    kept = federation.machine.contributions
    assert kept is not None
    assert kept.aside[liar.member]


# What is known


@pytest.mark.parametrize("known", [1e308, -1e308, 1e6])
def test_what_nobody_can_know_is_refused(known: float) -> None:
    """With it a queue would serve a liar's cluster for ever, or overflow."""
    federation = made("hetofedbandit-pq", {"exploration": 2})
    liar = Hostile(federation)
    liar.join()
    assert refused(liar.upload(known=known), "What is known is")
    assert refused(liar.send(Request(liar.member, known * 1e9 if abs(known) < 1e300 else known)), "The growth is")
    assert not isinstance(liar.send(Request(liar.member, 100.0)), Refusal)
    assert not isinstance(liar.send(Upload(liar.member, 1, liar.some(2), 3.0)), Refusal)
    assert np.isfinite(federation.machine.growth).all()  # type: ignore[attr-defined]


@pytest.mark.parametrize("system", ["fclub", "fclub-dc"])
def test_what_local_servers_say_is_held_to_the_same_bounds(system: str) -> None:
    """What travels inside a server's message, too: otherwise one Join would take versions to their end for all."""
    world = fb.World(n_clients=6, dim=3, horizon=20_000)
    federation = made(system, {"n_servers": 3}, world=world)
    liar, machine = Hostile(federation), federation.machine
    liar.join()
    assert isinstance(machine, ServersCoordinator)
    (user, *_) = machine.models_of(liar.member)
    sums, version = liar.some(1), machine.inner.version
    for inner, sequence, sentence in (
        (Join(user, 2**63 - 3), 0, "says that it has version"),
        (Join(user, 0, 2**62), 0, "says that it has version"),
        (Request(user, 1e308), 0, "The growth is"),
        (Upload(user, 2**60, sums, 1.0), 1, "says that it has made"),
        (Upload(user, 1, sums, 1e308), 1, "What is known is"),
    ):
        assert refused(liar.send(FromServer(liar.member, sequence, 0, (inner,), False)), sentence)
    assert machine.inner.version == version
    assert not isinstance(liar.send(FromServer(liar.member, 0, 0, (Join(user),), False)), Refusal)


def test_whether_a_history_is_known_is_the_same_after_a_restart() -> None:
    """A repeated upload shows it, and a Join of the same opening takes it back; neither is answered with anything."""
    federation = made("async-linucb", OPEN)
    liar = Hostile(federation)
    liar.join()
    first = Upload(liar.member, 1, liar.some(1), 0.0)
    before = liar.chain

    def verified() -> bool:
        again = Federation("f", federation.agreement, federation.store)
        assert again.register.state()[liar.member]["verified"] == federation.register.record(liar.name).verified
        return federation.register.record(liar.name).verified

    liar.send(first)
    assert verified()
    liar.send(Join(liar.member), sequence=2)
    assert not verified()
    liar.chain = before
    assert liar.send(first) == [Receipt(liar.member, 1)]
    assert verified()
    assert federation.register.record(liar.name).uploads == 1
    liar.send(Join(liar.member), sequence=1)
    liar.send(Join(liar.member), sequence=3)
    assert not verified()
