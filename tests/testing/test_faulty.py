"""Nothing is lost and nothing counts twice, whatever the network does and whoever crashes.

`FEDBANDIT_STEPS` is how many steps are injected, 100,000 if it is not set; `make soak` does a million.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.engine.learner import draw_reward
from fedbandit.environments.block import world_of
from fedbandit.messages import FACTORED, Upload
from fedbandit.network.coordinator.config import on_a_network
from fedbandit.network.invitation import Agreement
from fedbandit.state import pack
from fedbandit.testing.crashing import Crash
from fedbandit.testing.faulty import NONE, Faults, FaultyNetwork, copied

STEPS = int(os.environ.get("FEDBANDIT_STEPS", "100000"))
WORLD = fb.World(n_clients=4, dim=2, horizon=10_000)
SYSTEMS: list[tuple[str, dict[str, Any]]] = [
    ("async-linucb", {"gamma_upload": 1.2, "gamma_download": 1.3}),
    ("async-linucb", {"gamma_upload": 1.1, "gamma_download": 1.1, "warm_join": True}),
    ("count-linucb", {"factor_upload": 1.2, "factor_download": 1.1}),
    ("sync-linucb", {"threshold": 0.5}),
    ("hetofedbandit", {"exploration": 5, "threshold": 1.0}),
    ("hetofedbandit-e", {"threshold": 2.0}),
    ("hetofedbandit-async", {"gamma_upload": 1.5, "gamma_download": 1.5}),
    ("clustered-linucb", {}),
    ("count-linucb", {"privacy": {"noises": "statistics", "epsilon": 3.0}}),
    ("feducb", {"epsilon": 3.0}),
    ("async-linucb-am", {"d_global": 1, "gamma_upload": 1.2, "gamma_download": 1.2}),
]
RUN = 2500
"""Steps with one seed."""


@pytest.mark.parametrize(("system", "keywords"), SYSTEMS)
@pytest.mark.parametrize("part", range(4))
def test_invariants_hold_under_faults(system: str, keywords: dict[str, Any], part: int) -> None:
    runs = max(1, round(STEPS / (len(SYSTEMS) * 4 * RUN)))
    for seed in range(part * runs, (part + 1) * runs):
        faults = Faults(backup=0.02, restore=0.01) if part == 3 else None
        network = FaultyNetwork(on_a_network(Agreement(system, keywords, WORLD)), seed, faults)
        for step in range(-(-STEPS // (len(SYSTEMS) * 4 * runs))):
            network.step()
            if step % 100 == 0:
                network.check()
        network.check()
        assert network.crashes > 0
        assert (network.restored > 0) == (part == 3)
        network.drain()
        network.check()
        network.check_all()
        for node in network.nodes.values():
            assert node.live is not None
            assert not node.live.machine.outbox, f"seed {seed}: {node.name} still has uploads that nobody acknowledges"


@pytest.mark.parametrize(("system", "keywords"), [SYSTEMS[1], SYSTEMS[5], SYSTEMS[8]])
def test_uploads_of_few_observations_are_factors(system: str, keywords: dict[str, Any]) -> None:
    """With the same faults as matrices; where releases are noised there are none."""
    world = fb.World(n_clients=4, dim=9, horizon=10_000)
    faults = Faults(backup=0.02, restore=0.005)
    network = FaultyNetwork(on_a_network(Agreement(system, keywords, world)), 5, faults, factors=True)
    kinds = set()
    for _ in range(600):
        network.step()
        kinds |= {data[64 + 3] for _, source, _, data in network.flying if source}
    network.drain()
    network.check_all()
    assert (Upload.kind + FACTORED in kinds) == ("privacy" not in keywords)


def test_a_run_is_repeated_by_its_seed() -> None:
    def run(seed: int) -> tuple[int, int, list[bytes]]:
        network = FaultyNetwork(Agreement(*SYSTEMS[0], WORLD), seed)
        for _ in range(600):
            network.step()
        states = [pack("client", node.live.state()) for node in network.nodes.values() if node.live is not None]
        return network.crashes, network.refusals, states

    assert run(3) == run(3)
    assert run(3) != run(4)


@pytest.mark.parametrize(("system", "keywords"), SYSTEMS[:3])
def test_copied_clients_cannot_count_twice(system: str, keywords: dict[str, Any]) -> None:
    heard = 0
    for seed in range(6):
        network = FaultyNetwork(on_a_network(Agreement(system, keywords, WORLD)), seed)
        originals = list(network.nodes.values())
        for step in range(1500):
            network.step()
            if step % 300 == 150:
                copied(network, network.random.choice(originals))
        if network.coordinator is None:
            network.restart_coordinator()
        assert network.coordinator is not None
        V, _, n = network.coordinator.machine.gathered()
        assert n == len(network.oracle.applied), "an observation counts twice, or not at all"
        np.testing.assert_allclose(V, network.oracle.total.sums.V, atol=1e-7)
        heard += network.refusals
    assert heard > 0, "no copy was ever refused"


@pytest.mark.parametrize(("system", "keywords"), SYSTEMS)
def test_without_faults_it_is_the_simulation(system: str, keywords: dict[str, Any]) -> None:
    clustered = system in ("hetofedbandit", "hetofedbandit-e", "hetofedbandit-async", "clustered-linucb")
    env = fb.environments.clustered(
        n_clients=4, n_clusters=2, gap=1.0, dim=3, n_arms=5, rewards="gaussian", rounds="all" if clustered else "one"
    )
    horizon = 50 if clustered else 200
    world = world_of(env, horizon)
    agreement = Agreement(system, keywords, world, seed=3, reward_bound=3.0)
    result = fb.simulate(agreement.build(), env, horizon, seed=3, engine="plain")
    network = FaultyNetwork(agreement, 0, NONE)
    block = env.open(3).block(0, 200)
    chosen = np.zeros(200, dtype=np.int64)
    names, joined = list(network.nodes), set()

    def settle() -> None:
        network.time += 1
        while network.deliver():
            pass

    protocol = agreement.build().protocol
    if protocol.join == "member":
        for node in network.nodes.values():
            network.say(node)
            settle()
    for s, i in enumerate(block.clients):
        node = network.nodes[names[i]]
        if i not in joined:
            joined.add(i)
            network.say(node)
            settle()
        assert node.live is not None
        choice = node.live.select(block.X[block.arms[s, : block.counts[s]]])
        network.oracle.note_observation(node)
        node.live.observe(choice.number, draw_reward(block, s, choice.arm))
        network.oracle.note_uploads(node)
        chosen[s] = choice.arm
        network.speak(node)
        settle()
        if clustered and s % 4 == 3:
            network.tick()
            settle()
    assert np.array_equal(chosen, result.arms.ravel())
    assert network.coordinator is not None
    records = network.coordinator.register.by_number
    found = sum(record.uploads for record in records), sum(record.downloads for record in records)
    counted = result.communication.uploads, result.communication.downloads
    if protocol.says == "request" and protocol.join == "cold":  # whoever has not joined is not called on a network
        assert 0 < found[0] <= counted[0]
        assert 0 < found[1] <= counted[1]
    else:
        assert found == counted


def test_a_check_that_cannot_fail_is_none() -> None:
    network = FaultyNetwork(Agreement(*SYSTEMS[0], WORLD), 0)
    for _ in range(400):
        network.step()
    if network.coordinator is None:
        network.restart_coordinator()
    assert network.coordinator is not None
    network.check()
    network.coordinator.machine.members.n[0] += 1
    with pytest.raises(AssertionError, match="observations applied"):
        network.check()
    network.coordinator_store.crash = "before"
    with pytest.raises(Crash):
        network.coordinator_store.append("x", [b""])


def test_rounds_pass_and_survive_crashes() -> None:
    network = FaultyNetwork(on_a_network(Agreement("hetofedbandit", {"exploration": 3}, WORLD)), 0, NONE)
    assert network.coordinator is not None
    network.tick()
    assert network.coordinator.rounds == 0, "no round passes before anybody is here"
    for node in network.nodes.values():
        network.say(node)
    while network.deliver():
        pass
    for _ in range(2):
        network.tick()
    network.restart_coordinator()
    assert network.coordinator.rounds == 0, "nothing happened since, so nothing was written"
    for _ in range(3):
        network.tick()
    assert network.coordinator.rounds == 3
    assert network.coordinator.machine.awaits() == [0, 1, 2, 3], "the exploration is over: everybody is called"
    network.restart_coordinator()
    assert network.coordinator.rounds == 3
    assert network.coordinator.machine.awaits() == [0, 1, 2, 3]
