"""A relay is a coordinator below and one member above: nobody's data are lost, and nobody's are in a share twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benchmarks.relay import count_messages

import fedbandit as fb
from fedbandit.model import RidgeModel
from fedbandit.network.coordinator.config import on_a_network
from fedbandit.network.invitation import Agreement
from fedbandit.sums import EXACT
from tests.network.relay.star import Tree, play

WORLD = fb.World(n_clients=6, dim=3, horizon=10_000)
SYSTEMS: list[tuple[str, dict[str, Any]]] = [
    ("async-linucb", {"gamma_upload": 1.3, "gamma_download": 1.5}),
    ("async-linucb", {"gamma_upload": 1.1, "gamma_download": 1.1, "warm_join": True}),
    ("count-linucb", {"factor_upload": 1.2, "factor_download": 1.1}),
    ("sync-linucb", {"threshold": 0.5}),
    ("async-linucb-am", {"d_global": 2, "gamma_upload": 1.2, "gamma_download": 1.2}),
]


def agreed(system: str, keywords: dict[str, Any], world: fb.World = WORLD) -> Agreement:
    return on_a_network(Agreement(system, keywords, world, seed=3))


@pytest.mark.parametrize(("system", "keywords"), SYSTEMS)
def test_clients_of_one_relay_pull_the_arms_that_they_would_pull_without(system: str, keywords: dict[str, Any]) -> None:
    agreement = agreed(system, keywords)
    plain, relayed = Tree(agreement), Tree(agreement)
    relay = relayed.relay()
    alone = [plain.client(f"c{i}", plain.root) for i in range(6)]
    below = [relayed.client(f"c{i}", relay) for i in range(6)]
    expected = play(plain, alone, [plain.root] * 6, 300)
    assert play(relayed, below, [relay] * 6, 300) == expected
    one, other = plain.root.federation.machine.gathered(), relayed.root.federation.machine.gathered()
    assert one.n == other.n > 50
    np.testing.assert_allclose(one.V, other.V, atol=1e-9)
    np.testing.assert_allclose(one.b, other.b, atol=1e-9)


@pytest.mark.parametrize(
    ("system", "keywords"),
    [
        ("async-linucb", {"gamma_upload": 1.3, "gamma_download": 1.0}),
        ("count-linucb", {"factor_upload": 1.2, "factor_download": 1.0}),
        ("sync-linucb", {"threshold": 0.5}),
    ],
)
def test_so_do_clients_of_two_relays_a_relay_below_and_the_root(system: str, keywords: dict[str, Any]) -> None:
    """Where downloads come whenever there is something new: otherwise a relay waits for its own (docs/relays.md)."""
    agreement = agreed(system, keywords)
    plain, relayed = Tree(agreement), Tree(agreement)
    north, south = relayed.relay("north"), relayed.relay("south")
    beyond = relayed.relay("beyond", above=south)
    places = [relayed.root, north, north, south, beyond, beyond]
    alone = [plain.client(f"c{i}", plain.root) for i in range(6)]
    below = [relayed.client(f"c{i}", place) for i, place in enumerate(places)]
    expected = play(plain, alone, [plain.root] * 6, 240)
    assert play(relayed, below, places, 240) == expected
    one, other = plain.root.federation.machine.gathered(), relayed.root.federation.machine.gathered()
    assert one.n == other.n > 50
    np.testing.assert_allclose(one.V, other.V, atol=1e-9)
    for client, same in zip(alone, below, strict=True):
        np.testing.assert_allclose(client.machine.model.theta, same.machine.model.theta, atol=1e-9)


PRIVATE: list[tuple[str, dict[str, Any]]] = [
    ("count-linucb", {"factor_download": 1.0, "privacy": {"noises": "statistics", "epsilon": 3.0}}),
    ("count-linucb", {"factor_download": 1.0, "privacy": {"noises": "statistics", "epsilon": 3.0, "own": "released"}}),
    ("count-linucb", {"factor_download": 1.0, "privacy": {"noises": "statistics", "epsilon": [1.0, 2, 3, 4, 5, 6]}}),
    ("feducb", {"epsilon": 3.0, "calibration": "proven"}),
    ("count-linucb", {"factor_download": 1.0, "privacy": {"noises": "rewards", "epsilon": 3.0}}),
]


@pytest.mark.parametrize(("system", "keywords"), PRIVATE)
def test_clients_that_noise_what_leaves_them_know_how_much_noise_there_is(
    system: str, keywords: dict[str, Any]
) -> None:
    """The same noise, the same sums, the same bounds and so the same arms as without relays."""
    agreement = agreed(system, keywords, fb.World(n_clients=6, dim=3, horizon=600))
    plain, relayed = Tree(agreement), Tree(agreement)
    one_budget = not isinstance(keywords.get("privacy", {}).get("epsilon"), list)
    north = relayed.relay("north")
    places = [north] * 6  # where budgets differ, a client's number says which is its own
    if one_budget:
        south = relayed.relay("south")
        beyond = relayed.relay("beyond", above=south)
        places = [relayed.root, north, north, south, beyond, beyond]
    sources = [[np.random.default_rng(i) for i in range(6)] for _ in range(2)]
    alone = [plain.client(f"c{i}", plain.root, sources[0][i]) for i in range(6)]
    below = [relayed.client(f"c{i}", place, sources[1][i]) for i, place in enumerate(places)]
    expected = play(plain, alone, [plain.root] * 6, 240)
    assert play(relayed, below, places, 240) == expected
    one, other = plain.root.federation.machine.gathered(), relayed.root.federation.machine.gathered()
    assert one.n == other.n > 50
    np.testing.assert_allclose(one.V, other.V, atol=1e-9)
    for client, same in zip(alone, below, strict=True):
        np.testing.assert_allclose(same.machine.model.theta, client.machine.model.theta, atol=1e-9)
        model, its = client.machine.model, same.machine.model
        assert isinstance(model, RidgeModel)
        assert isinstance(its, RidgeModel)
        np.testing.assert_allclose(its.slack, model.slack, rtol=1e-9, atol=1e-12)
        if client.machine.stream is not None:
            assert same.machine.stream is not None
            assert same.machine.stream.spent == client.machine.stream.spent > 0
            assert model.slack != EXACT


def test_the_root_sees_a_small_part_of_the_messages() -> None:
    """Of 60 clients here; benchmarks/relay.py counts those of 1,000."""
    world = fb.World(n_clients=60, dim=3, horizon=10_000)
    agreement = agreed("count-linucb", {"factor_upload": 1.3, "factor_download": 1.3}, world)
    counts = [count_messages(agreement, 60, 12, relayed=relayed) for relayed in (True, False)]
    assert counts[0]["messages"] < 0.05 * counts[1]["messages"]
    assert counts[0]["uploads"] < 0.1 * counts[1]["uploads"]
