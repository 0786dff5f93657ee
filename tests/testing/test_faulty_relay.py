"""A relay between clients and coordinators that take over from one another, on a network that fails: nothing is lost,
nothing counts twice, no noise is drawn twice, and everybody knows how much noise there is.
"""

from __future__ import annotations

from typing import Any

import pytest

import fedbandit as fb
from fedbandit.machines.relay import Relaying
from fedbandit.network.coordinator.config import on_a_network
from fedbandit.network.invitation import Agreement
from fedbandit.sums import Sums
from fedbandit.testing.faulty import Faults
from fedbandit.testing.faulty_relay import RelayedNetwork
from tests.testing.test_faulty import RUN, STEPS

WORLD = fb.World(n_clients=4, dim=2, horizon=10_000)
SYSTEMS: list[tuple[str, dict[str, Any], bool]] = [
    ("async-linucb", {"gamma_upload": 1.2, "gamma_download": 1.3}, False),
    ("async-linucb", {"gamma_upload": 1.1, "gamma_download": 1.1, "warm_join": True}, True),
    ("count-linucb", {"factor_upload": 1.2, "factor_download": 1.1}, False),
    ("sync-linucb", {"threshold": 0.5}, False),
    ("count-linucb", {"privacy": {"noises": "statistics", "epsilon": 3.0}}, True),
    ("feducb", {"epsilon": 3.0}, False),
]


def make(
    system: str, keywords: dict[str, Any], at_once: bool, seed: int, faults: Faults | None = None
) -> RelayedNetwork:
    return RelayedNetwork(on_a_network(Agreement(system, keywords, WORLD)), seed, faults, at_once=at_once)


@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize(("system", "keywords", "at_once"), SYSTEMS)
def test_invariants_hold_with_a_relay(system: str, keywords: dict[str, Any], at_once: bool, part: int) -> None:
    runs, called = max(1, round(STEPS / (len(SYSTEMS) * 2 * RUN))), system in ("sync-linucb", "feducb")
    for seed in range(part * runs, (part + 1) * runs):
        # An answer to a call that the backup does not know waits for the next call, which `drain` does not bring.
        faults = Faults(backup=0.02, restore=0.005) if part == 1 and not called else None
        network = make(system, keywords, at_once, seed, faults)
        for step in range(-(-STEPS // (len(SYSTEMS) * 2 * runs))):
            network.step()
            if step % 100 == 0:
                network.check()
        network.overtaken = None
        network.drain()
        network.check()
        network.check_all()
        assert network.below is not None
        assert network.below.crashes > 0 < network.take_overs
        assert network.relay.sequence > 0
        below = network.below.coordinator
        assert below is not None
        pending = below.relaying.pending.n  # of who answered a call too late: it goes up with the next call
        assert pending == 0 or called
        assert below.relaying.others.n > 0
        root = network.coordinator
        assert root is not None
        everybody = [*network.nodes.values(), *network.below.nodes.values()]
        clients = [node for node in everybody if node is not network.relay]
        assert root.machine.gathered().n + pending == sum(node.observed - len(node.pending) for node in clients)
        for node in everybody:
            assert node.live is not None
            assert not node.live.machine.outbox, f"seed {seed}: {node.name} still has uploads that nobody acknowledges"


def test_checks_that_cannot_fail_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever forwards something twice, or takes its own for others', is found."""
    network = make(*SYSTEMS[0], 0)
    for _ in range(800):
        network.step()
    network.overtaken = None
    network.drain()
    network.check()
    assert network.below is not None
    assert network.below.coordinator is not None
    below = network.below.coordinator.relaying
    twice = Sums(below.below.V, below.below.b, below.below.n)
    for name in ("pending", "others"):
        kept = getattr(below, name)
        setattr(below, name, twice)
        with pytest.raises(AssertionError):
            network.check()
        setattr(below, name, kept)
    monkeypatch.setattr(Relaying, "forward", lambda self, sequence: setattr(self, "forwarded", sequence))
    with pytest.raises(AssertionError):
        _run(make(*SYSTEMS[0], 1))


def _run(network: RelayedNetwork) -> None:
    for _ in range(800):
        network.step()
        network.check()
