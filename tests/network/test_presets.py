"""Every preset is served, with clients that exchange messages, or refused with a sentence; noise is allowed for."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.messages import Download, Upload, decode, encode
from fedbandit.network.client.durable import Member
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.limits import Limits, declared_noise
from fedbandit.network.envelope import unseal
from fedbandit.network.invitation import Terms, on_a_network
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import MemoryStore
from fedbandit.presets import PRESETS
from fedbandit.sums import Sums

WORLD = fb.World(n_clients=3, dim=3, horizon=600)
REFUSED = {
    "uniform": "exchange nothing",
    "linucb": "exchange nothing",
    "dp_linucb": "exchange nothing",
    "linucb_central": "models that several users share",
    "fclub": "models that several users share",
    "fclub_dc": "models that several users share",
    "homo": "models that several users share",
    "homo_dc": "models that several users share",
    "club": "models that several users share",
    "sclub": "models that several users share",
    "dyclu": "models that several users share",
}
ON_A_GRAPH = {"colin", "goblin", "dp_colin", "ldp_colin", "dp_goblin", "ldp_goblin"}
FEDERATED = {
    "graph": [[0.75, 0.25, 0.0], [0.25, 0.5, 0.25], [0.0, 0.25, 0.75]],
    "gamma_upload": 1.5,
    "gamma_download": 1.5,
}


def run(federation: Federation, visits: int) -> tuple[list[Member], int]:
    """Three members that act in turn, on a network that does nothing wrong; also how many downloads they got."""
    members = [Member(MemoryStore(), federation.terms, i, iter(range(9 * i + 1, 99)).__next__) for i in range(3)]
    rng, downloads = np.random.default_rng(0), 0

    def deliver(messages: list[Any]) -> None:
        nonlocal downloads
        for message in messages:
            downloads += isinstance(message, Download)
            members[message.member].receive(decode(encode(message)))
            talk(message.member)

    def talk(i: int) -> None:
        while frames := members[i].outgoing():
            (answers,) = federation.receive([(f"client-{i}", frames[0])], 0.0)
            assert not isinstance(answers, Refusal), answers
            deliver(answers)

    for i in range(3):
        federation.invite(f"client-{i}", 0.0)
        (welcome,) = federation.receive([(f"client-{i}", members[i].greeting() or b"")], 0.0)
        assert not isinstance(welcome, Refusal), welcome
        deliver(welcome)
    for _ in range(visits):
        for i, member in enumerate(members):
            X = rng.uniform(-0.5, 0.5, (4, 3))
            choice = member.select(X)
            member.observe(choice.number, float(np.clip(X[choice.arm, 0] + rng.normal(0, 0.1), -1, 1)))
            talk(i)
        deliver(federation.tick(0.0))
    return members, downloads


@pytest.mark.parametrize("preset", list(PRESETS))
def test_every_preset_is_served_or_refused_with_a_sentence(preset: str) -> None:
    keywords: dict[str, Any] = dict(FEDERATED) if preset in ON_A_GRAPH else {}
    terms = Terms(preset.replace("_", "-"), keywords, WORLD)
    if preset in REFUSED:
        with pytest.raises(fb.FedbanditError, match=REFUSED[preset]) as refusal:
            on_a_network(terms)
        assert str(refusal.value).endswith(".")
        return
    federation = Federation("f", on_a_network(terms), MemoryStore())
    members, downloads = run(federation, 60)
    assert federation.machine.gathered().n > 0
    # With little data, noise hides who is alike, and then nobody is sent anything.
    assert (downloads > 0) != (preset == "cdp_fclub_dc")
    assert sum(member.machine.observed for member in members) == 180
    again = Federation("f", federation.terms, federation.store)
    assert again.machine.gathered().n == federation.machine.gathered().n
    assert again.rounds <= federation.rounds


def test_one_model_for_all_users_of_a_graph_is_refused() -> None:
    with pytest.raises(fb.FedbanditError, match="gamma_upload"):
        on_a_network(Terms("goblin", {"graph": FEDERATED["graph"]}, WORLD))


def test_noise_of_a_trusted_coordinator_is_refused() -> None:
    with pytest.raises(fb.FedbanditError, match="draw the noise"):
        on_a_network(Terms("dp-colin", {**FEDERATED, "delta": 1e-5}, WORLD))


def test_peers_have_no_coordinator() -> None:
    world = dataclasses.replace(WORLD, per_round=3)
    with pytest.raises(fb.FedbanditError, match="fedbandit peer"):
        on_a_network(Terms("feducb", {"topology": "ring", "ttl": 1}, world))


@pytest.mark.parametrize(
    ("system", "keywords"),
    [
        ("feducb", {"epsilon": 1.0}),
        ("count-linucb", {"privacy": {"noises": "statistics", "epsilon": 2.0}}),
        ("async-linucb", {"privacy": {"noises": "rewards", "epsilon": 2.0, "low": -1.0}}),
    ],
)
def test_private_uploads_are_accepted_with_their_noise_and_no_more(system: str, keywords: dict[str, Any]) -> None:
    terms = on_a_network(Terms(system, keywords, WORLD))
    federation = Federation("f", terms, MemoryStore())
    members, downloads = run(federation, 150)
    assert federation.machine.gathered().n > 0
    assert downloads > 0
    assert federation.refusals == {}
    noised = keywords.get("privacy", {}).get("noises") != "rewards"
    gram, reward = declared_noise(terms.build(), terms.world)
    assert (gram > 0) == (reward > 0) == noised
    limits = federation.limits
    assert limits == Limits.of(terms.build(), terms.world, terms.reward_bound)
    V, b = np.eye(3), np.zeros(3)
    limits.check(Upload(0, 1, Sums(V - 0.9 * gram * np.eye(3), b, 3), 0.0))
    for wrong in (
        Sums(V - (1.1 * gram + 1.01) * np.diag([1.0, 0, 0]), b, 3),
        Sums(V + (1.1 * gram + 1) * np.eye(3), b, 3),
        Sums(V, np.array([1.1 * (gram + reward) + 30 * limits.reward_bound, 0, 0]), 3),
    ):
        with pytest.raises(Refusal):
            limits.check(Upload(0, 1, wrong, 0.0))
    sent = [unseal(frame)[1] for member in members for frame in member.outgoing()]
    assert not sent, "everything was acknowledged"


def test_without_noise_nothing_is_allowed_for() -> None:
    terms = on_a_network(Terms("feducb", {"epsilon": float("inf")}, WORLD))
    assert declared_noise(terms.build(), terms.world) == (0.0, 0.0)
    assert Terms.of_json(terms.as_json()) == terms, "infinity survives JSON"


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("strong", "must be a table"),
        ({"noises": "everything"}, "noises = 'statistics' or 'rewards'"),
        ({"noises": "statistics", "epsilom": 1.0}, "epsilon"),
        ({"noises": "statistics", "epsilon": -1.0}, "epsilon"),
    ],
)
def test_privacy_that_cannot_be_is_refused(table: object, sentence: str) -> None:
    with pytest.raises(fb.FedbanditError, match=sentence):
        Terms("count-linucb", {"privacy": table}, WORLD).build()
