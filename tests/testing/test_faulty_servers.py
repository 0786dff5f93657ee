"""Local servers, and coordinators that take over from one another, on a network that fails: nothing is lost, nothing
counts twice, no noise is drawn twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.machines.servers_coordinator import ServersCoordinator
from fedbandit.network.coordinator.config import on_a_network
from fedbandit.network.invitation import Agreement
from fedbandit.testing.faulty import Faults
from fedbandit.testing.faulty_servers import FaultyServers
from fedbandit.testing.take_overs import SharedStore
from tests.testing.test_faulty import RUN, STEPS

WORLD = fb.World(n_clients=6, dim=2, horizon=6000, server_of=(0, 0, 0, 1, 1, 1))
ALPHAS = {"alpha_split": 0.1, "alpha_merge": 0.1}
FAULTS = Faults(acts=0.15, ticks=0.03)
SYSTEMS: list[tuple[str, dict[str, Any]]] = [
    ("fclub-dc", {"upload": 1.1, "download": 1.1, **ALPHAS}),
    ("fclub", ALPHAS),
    ("homo-dc", {"upload": 1.1, "download": 1.1}),
    ("cdp-fclub-dc", {"epsilon": float("inf"), **ALPHAS}),
    ("cdp-fclub-dc", {"epsilon": 10.0}),
    ("fclub-dc", {"privacy": {"noises": "rewards", "epsilon": 10.0}, **ALPHAS}),
]


def make(system: str, keywords: dict[str, Any], seed: int) -> FaultyServers:
    return FaultyServers(on_a_network(Agreement(system, keywords, WORLD, reward_bound=1.0)), seed, FAULTS)


@pytest.mark.parametrize(("system", "keywords"), SYSTEMS)
def test_invariants_hold_with_local_servers(system: str, keywords: dict[str, Any]) -> None:
    runs = max(1, round(STEPS / (len(SYSTEMS) * RUN)))
    refused = phases = crashes = 0
    for seed in range(runs):
        network = make(system, keywords, seed)
        for step in range(-(-STEPS // (len(SYSTEMS) * runs))):
            network.step()
            if step % 100 == 0:
                network.check()
        network.overtaken = None
        network.drain()
        network.check()
        machine = network.coordinator.machine  # type: ignore[union-attr]
        assert isinstance(machine, ServersCoordinator)
        assert network.take_overs > 0
        refused, crashes = refused + network.refused_when_overtaken, crashes + network.crashes
        phases += int(machine.begun.max())
        for node in network.nodes.values():
            assert node.live is not None
            assert not node.live.machine.outbox, f"seed {seed}: {node.name} has messages that nobody acknowledges"
    assert refused > 0
    assert crashes > 0
    assert (phases > 0) == system.startswith("fclub")


def test_checks_that_cannot_fail_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    network = make(*SYSTEMS[0], 0)
    for _ in range(600):
        network.step()
    network.overtaken = None
    network.drain()
    network.check()
    machine = network.coordinator.machine  # type: ignore[union-attr]
    assert isinstance(machine, ServersCoordinator)
    kept = machine.inner.contributions
    assert kept is not None
    r = int(np.argmax(kept.own.n))
    kept.own.n[r] -= 1
    with pytest.raises(AssertionError, match=f"model {r} of"):
        network.check()
    monkeypatch.setattr(SharedStore, "_check", lambda _, __: None)  # terms that nobody looks at
    network = make(*SYSTEMS[0], 0)
    with pytest.raises(AssertionError):
        all(step_and_check(network) for _ in range(2000))


def step_and_check(network: FaultyServers) -> bool:
    network.step()
    network.check()
    return True
