"""FCLUB on the wire: local servers and a coordinator do what the simulator's machines do, and survive crashes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.engine.plain import make_machines
from fedbandit.environments.block import world_of
from fedbandit.network.coordinator.config import on_a_network
from fedbandit.network.invitation import Agreement
from tests.network.local_servers import CarriedServers

ENV = fb.environments.fclub(n_clients=10, n_clusters=2, n_servers=5, gap=1.2, dim=4, n_arms=6)
ALPHAS = {"alpha_split": 1.0, "alpha_merge": 1.0}
SYSTEMS: list[tuple[str, dict[str, Any]]] = [
    ("fclub-dc", {"upload": 1.1, "download": 1.1, **ALPHAS}),
    ("fclub", ALPHAS),
    ("homo-dc", {"upload": 1.2, "download": 1.2}),
    ("cdp-fclub-dc", {"epsilon": float("inf"), **ALPHAS}),
    ("cdp-fclub-dc", {"epsilon": 10.0}),
    ("fclub-dc", {"privacy": {"noises": "rewards", "epsilon": 10.0}, **ALPHAS}),
]
ROUNDS = 70


@pytest.mark.parametrize(("system", "keywords"), SYSTEMS)
@pytest.mark.parametrize("crashes", [False, True])
def test_it_is_the_simulator(system: str, keywords: dict[str, Any], crashes: bool) -> None:
    world = world_of(ENV, ROUNDS * ENV.n_clients)
    agreement = on_a_network(Agreement(system, keywords, world, seed=3, reward_bound=3.0))
    simulated = make_machines(agreement.build(), agreement.world, agreement.seed, 100)
    wire = CarriedServers(agreement)
    servers = agreement.servers
    assert servers is not None
    rng, draw = np.random.default_rng(1), np.random.default_rng(2)
    theta = np.where(np.arange(10)[:, None] % 2, np.eye(4)[0], np.eye(4)[1])
    for done in range(1, ROUNDS + 1):
        for user in rng.permutation(ENV.n_clients).tolist():
            k = int(servers[user])
            arms = rng.uniform(-0.5, 0.5, (6, 4))
            theirs, ours = simulated.select(user, arms), wire.nodes[k].select(user, arms)
            assert ours.arm == theirs.arm, f"round {done}, user {user}"
            reward = float(arms[ours.arm] @ theta[user] + 0.1 * rng.standard_normal())
            simulated.observe(user, theirs.number, reward)
            if crashes and draw.random() < 0.02:
                wire.nodes[k].flush()
                wire.crash(k)
            wire.observe(k, ours.number, reward)
            if crashes and draw.random() < 0.01:
                wire.crash_coordinator()
            if crashes and draw.random() < 0.02:
                wire.crash(int(draw.integers(len(wire.nodes))))
        if simulated.next_wake(done - 1) == done:
            simulated.end_round(done)
        wire.tick()
    assert wire.uploads == simulated.uploads
    assert crashes or wire.downloads == simulated.downloads  # what a crash may have lost is sent again
    groups = simulated.groups()
    assert groups == wire.groups()
    assert len(groups or []) > 1 or system == "homo-dc"
