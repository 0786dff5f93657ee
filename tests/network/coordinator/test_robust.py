"""Members that lie within all bounds: what they cost the others, and who is put in quarantine."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from benchmarks.liars import LIES, Lying, Outcome

import fedbandit as fb
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.robust import Comparison
from fedbandit.network.coordinator.rules import Robust, Rules
from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import MemoryStore
from fedbandit.sums import Sums
from fedbandit.types import Array
from tests.network.in_process import assert_same

ROBUST = Rules(robust=Robust(liars=0.3, false_alarm=1e-3))
WORLD = fb.World(n_clients=4, dim=3, horizon=600)


@lru_cache
def honest(clients: int) -> Outcome:
    return Lying(clients, 0, "none", 0, rules=ROBUST).run(60)


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("liars", [2, 6])
def test_honest_clients_lose_little_by_liars(lie: str, liars: int) -> None:
    outcome = Lying(20, liars, lie, 0, rules=ROBUST).run(60)
    assert not [i for i in outcome.accused if i < outcome.honest]
    assert outcome.regret <= 2 * honest(20 - liars).regret
    if lie in ("flipped", "colluding"):
        assert len(outcome.accused) == liars


def test_without_robust_mode_the_same_liars_cost_much() -> None:
    assert Lying(20, 6, "flipped", 0).run(60).regret > 3 * honest(14).regret


def test_a_restart_knows_whom_it_has_accused_and_suspected() -> None:
    world = Lying(10, 3, "flipped", 1, rules=ROBUST)
    world.run(12)
    federation = world.federation
    assert any(record.quarantined or record.suspected for record in federation.register.by_number)
    again = Federation("f", federation.agreement, federation.store, rules=ROBUST)
    for record, other in zip(again.register.by_number, federation.register.by_number, strict=True):
        assert (record.quarantined, record.suspected) == (other.quarantined, other.suspected)
    assert_same(again.machine.state(), federation.machine.state())


def sums_of(theta: Array, n: int, rng: np.random.Generator, sigma: float = 0.1) -> Sums:
    X = rng.standard_normal((n, theta.size))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return Sums(X.T @ X, X.T @ (X @ theta + sigma * rng.standard_normal(n)), n)


@pytest.mark.parametrize(("sigma", "accused"), [(0.1, False), (0.5, True)])
def test_noise_as_declared_accuses_nobody_and_more_noise_does(sigma: float, accused: bool) -> None:
    """400 honest members, compared at five sizes each: at 1 in 1,000 fewer than one is expected to be accused."""
    found = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        theta = rng.standard_normal(4) / 2
        comparison = Comparison(Robust(), np.zeros(20, dtype=np.int64), 4, 1.0, 0.1)
        for n in (2, 5, 20, 80, 300):
            for i in range(20):
                found += len(comparison.compare(i, sums_of(theta, n, rng, sigma)))
    assert (found > 0) == accused


@pytest.mark.parametrize("lies", ["exactly", "with noise", "not"])
def test_liars_who_agree_are_suspects_before_any_of_them_contradicts_somebody(lies: str) -> None:
    """42 honest members and 18 with another parameter, 30 observations each: σ = 0.5 hides every one by itself."""
    suspected = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        theta, other = (x / np.linalg.norm(x) for x in rng.standard_normal((2, 10)))
        comparison = Comparison(Robust(), np.zeros(60, dtype=np.int64), 10, 1.0, 0.5)
        for i in range(60):
            lie = i >= 42 and lies != "not"
            sigma = 0.0 if lie and lies == "exactly" else 0.5
            assert not comparison.compare(i, sums_of(other if lie else theta, 30, rng, sigma))
        suspected.append(comparison.suspects())
    liars = set() if lies == "not" else set(range(42, 60))
    assert sum(len(found & liars) for found in suspected) >= 0.95 * 5 * len(liars)
    assert sum(len(found - liars) for found in suspected) <= 0.02 * 5 * 60


def test_whoever_a_person_has_trusted_is_not_accused_again() -> None:
    world = Lying(10, 3, "flipped", 1, rules=ROBUST)
    world.run(20)
    federation = world.federation
    (liar, *_) = [record for record in federation.register.by_number if record.quarantined]
    before = federation.machine.gathered().n
    federation.quarantine(liar.name, "", 0.0, "boss")
    assert liar.trusted
    assert federation.machine.gathered().n == before + liar.observations
    world.run(5)
    assert not liar.quarantined
    assert not liar.suspected


@pytest.mark.parametrize(
    ("system", "keywords", "sentence"),
    [
        ("hetofedbandit-e", {}, "members may differ"),
        ("count-linucb", {"privacy": {"noises": "statistics", "epsilon": 1.0}}, "hidden by noise"),
    ],
)
def test_refused_where_lies_cannot_be_seen(system: str, keywords: dict[str, object], sentence: str) -> None:
    with pytest.raises(fb.FedbanditError, match=sentence):
        Federation("f", Agreement(system, keywords, WORLD), MemoryStore(), rules=ROBUST)
    with pytest.raises(fb.FedbanditError, match="clients is 2, but must be from 3"):
        Federation("f", Agreement("async-linucb", {}, replace(WORLD, n_clients=2)), MemoryStore(), rules=ROBUST)
    with pytest.raises(fb.FedbanditError, match=r"liars is 0\.6"):
        Robust(liars=0.6)
    with pytest.raises(fb.FedbanditError, match="robust needs retract"):
        Rules(retract=False, robust=Robust())
