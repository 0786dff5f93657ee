"""Impossible statistics are refused; declared noise is allowed for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.messages import Upload
from fedbandit.network.coordinator.config import on_a_network
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.limits import Limits, declared_noise
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import MemoryStore
from fedbandit.sums import FactoredSums, Relayed, Sums, factored
from tests.network.in_process import make_clients, run

WORLD = fb.World(n_clients=3, dim=3, horizon=600)


@pytest.mark.parametrize(
    ("system", "keywords"),
    [
        ("feducb", {"epsilon": 1.0}),
        ("count-linucb", {"privacy": {"noises": "statistics", "epsilon": 2.0}}),
        ("async-linucb", {"privacy": {"noises": "rewards", "epsilon": 2.0, "low": -1.0}}),
    ],
)
def test_private_uploads_are_accepted_with_their_noise_and_no_more(system: str, keywords: dict[str, Any]) -> None:
    agreement = on_a_network(Agreement(system, keywords, WORLD))
    federation = Federation("f", agreement, MemoryStore())
    clients = make_clients(federation)
    downloads = run(federation, clients, 150)
    assert federation.machine.gathered().n > 0
    assert downloads > 0
    assert federation.refusals == {}
    noised = keywords.get("privacy", {}).get("noises") != "rewards"
    gram, reward = declared_noise(agreement.build(), agreement.world)
    assert (gram > 0) == (reward > 0) == noised
    limits = federation.limits
    assert limits == Limits.of(agreement.build(), agreement.world, agreement.reward_bound)
    V, b = np.eye(3), np.zeros(3)
    limits.check(Upload(0, 1, Sums(V - 0.9 * gram * np.eye(3), b, 3), 0.0))
    for wrong in (
        Sums(V - (1.1 * gram + 1.01) * np.diag([1.0, 0, 0]), b, 3),
        Sums(V + (1.1 * gram + 1) * np.eye(3), b, 3),
        Sums(V, np.array([1.1 * (gram + reward) + 30 * limits.reward_bound, 0, 0]), 3),
    ):
        with pytest.raises(Refusal):
            limits.check(Upload(0, 1, wrong, 0.0))
    assert not [frame for client in clients for frame in client.outgoing()], "everything was acknowledged"


def test_declared_noise_gives_slack() -> None:
    noisy = Upload(0, 1, Sums(np.diag([1.5, -0.5, 0.2]), np.array([0.1, 0.4, 0.0]), 1), 0.0)
    with pytest.raises(Refusal):
        Limits(3, 1.0, 1.0).check(noisy)
    Limits(3, 1.0, 1.0, gram=1.0, reward=1.0).check(noisy)


@pytest.mark.parametrize("reward_bound", [1.0, np.inf])
def test_each_of_many_uploads_is_judged_as_if_it_were_alone(
    reward_bound: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = Limits(3, 1.0, reward_bound, horizon=100)
    good = Sums(np.diag([1.0, 0.5, 0.2]), np.array([0.5, 0.2, 0.1]), 3)
    bad = (
        Sums(-good.V, good.b, 3),
        Sums(10 * good.V, good.b, 3),
        Sums(good.V, 1e8 * good.b, 3),
        Sums(good.V, good.b, 0),
        Sums(good.V, good.b, 101),
        Sums(np.eye(2), np.ones(2), 3),
        Sums(np.full((3, 3), np.inf), good.b, 3),
        Sums(good.V, np.array([np.nan, 0.0, 0.0]), 3),
    )
    nothing = Sums(np.zeros((3, 3)), np.zeros(3), 0)
    uploads = [Upload(k, 1, sums, 0.0) for k, sums in enumerate([good, *bad, nothing, good, good])]
    together = list(map(str, limits.faults(uploads)))
    assert [k for k, fault in enumerate(together) if fault != "None"] == list(range(1, 1 + len(bad)))
    assert len(set(together)) >= 7
    monkeypatch.setattr("fedbandit.network.coordinator.limits.AT_ONCE", 1)
    assert together == list(map(str, limits.faults(uploads)))


def test_a_factor_is_judged_as_its_matrix_is() -> None:
    limits, rng = Limits(7, 1.0, 1.0, horizon=100), np.random.default_rng(0)
    X = rng.standard_normal((3, 7))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    good = factored(Sums(X.T @ X, X.T @ np.array([1.0, -0.5, 0.9]), 3))
    assert isinstance(good, FactoredSums)
    for one, wrong in (
        (good, ""),
        (FactoredSums(2 * good.L, good.c, 3), "trace"),
        (FactoredSums(good.L, 9 * good.c, 3), "rewards"),
    ):
        for sums in (one, Sums(*one)):
            (fault,) = limits.faults([Upload(0, 1, sums, 0.0)])
            assert (fault is None) == (not wrong)
            assert wrong in str(fault)


@pytest.mark.parametrize(
    ("horizon", "reward_bound", "ridge"), [(2 * 10**9, 1.0, 1.0), (100_000, 100.0, 1.0), (10**7, 1.0, 0.01)]
)
def test_what_is_allowed_for_rounding_never_adds_up_to_the_ridge(
    horizon: int, reward_bound: float, ridge: float
) -> None:
    """One upload of all observations there can be, with the most negative eigenvalue that is accepted."""
    world = fb.World(n_clients=2, dim=3, horizon=horizon)
    limits = Limits.of(fb.async_linucb(ridge=ridge).told(world), world, reward_bound)
    for n in (1, 7, horizon // 3, horizon):
        for size in 10.0 ** np.arange(-16, 2):
            upload = Upload(0, 1, Sums(np.diag([-size, 1.0, 0.0]), np.zeros(3), n), 0.0)
            assert limits.faults([upload])[0] is not None or size <= ridge * max(n / horizon, 1e-9) / 2
    X = np.random.default_rng(0).uniform(-0.5, 0.5, (4000, 3))
    honest = Upload(0, 1, Sums(X.T @ X, X.T @ np.full(4000, reward_bound), 4000), 0.0)
    assert limits.faults([honest]) == [None]
    one = Upload(0, 1, Sums(np.outer(X[0], X[0]), reward_bound * X[0], 1), 0.0)
    assert limits.faults([one]) == [None]


def test_a_relay_may_send_the_noise_of_all_its_clients() -> None:
    """√k times as much in k releases; as much of one client, or more than it says, is refused."""
    world = fb.World(n_clients=20, dim=3, horizon=1000)
    system = Agreement("count-linucb", {"privacy": {"noises": "statistics", "epsilon": 1.0}}, world).build()
    limits = Limits.of(system, world, 1.0)
    V = np.eye(3) * (3.0 - 2.0 * limits.gram)  # of nine observations, and noise of twice what one client's may be
    upload = Upload(0, 1, Sums(V, np.zeros(3), 9), 0.0)
    for releases, sound in ((None, False), (1, False), (3, False), (9, True)):
        relayed = None if releases is None else Relayed(1.0, releases)
        (fault,) = limits.faults([replace(upload, relayed=relayed)])
        assert (fault is None) == sound, releases
