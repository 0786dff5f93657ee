"""A relay is a coordinator below and one member above: nobody's data are lost, and nobody's are in a share twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.relay import count_messages

import fedbandit as fb
from fedbandit.errors import FedbanditError
from fedbandit.machines.relay import require_relayable
from fedbandit.model import RidgeModel
from fedbandit.network.client.address import Address
from fedbandit.network.coordinator.config import on_a_network
from fedbandit.network.invitation import Agreement
from fedbandit.network.relay.federation import RelayFederation
from fedbandit.network.relay.service import agreed as stored
from fedbandit.network.stores import MemoryStore, open_store
from fedbandit.protocols import EventTriggered
from fedbandit.structures import FixedGroups
from fedbandit.sums import EXACT, add
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


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(("system", "keywords"), SYSTEMS)
def test_clients_of_one_relay_pull_the_arms_that_they_would_pull_without(
    system: str, keywords: dict[str, Any], at_once: bool
) -> None:
    agreement = agreed(system, keywords)
    plain, relayed = Tree(agreement), Tree(agreement)
    place = relayed.relay(at_once=at_once)
    alone = [plain.client(f"c{i}", plain.root) for i in range(6)]
    below = [relayed.client(f"c{i}", place) for i in range(6)]
    expected = play(plain, alone, [plain.root] * 6, 300)
    assert play(relayed, below, [place] * 6, 300) == expected
    relay = place.federation
    assert isinstance(relay, RelayFederation)
    one = plain.root.federation.machine.gathered()
    other = add(relayed.root.federation.machine.gathered(), relay.relaying.pending)
    assert one.n == other.n > 50
    assert relay.relaying.pending.n == 0 or not at_once
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


def test_other_terms_above_are_those_below() -> None:
    """A relay goes on under them, and so do its clients; what is not sound changes nothing."""
    agreement = agreed("async-linucb", {"gamma_upload": 1.2, "gamma_download": 1.2})
    tree = Tree(agreement)
    place = tree.relay()
    clients = [tree.client(f"c{i}", place) for i in range(2)]
    play(tree, clients, [place] * 2, 40)
    relay = place.federation
    assert isinstance(relay, RelayFederation)
    before, total = relay.relaying.state(), relay.relaying.below.n
    for wrong in (replace(agreement, seed=9), replace(agreement, world=replace(WORLD, n_clients=1))):
        with pytest.raises(FedbanditError, match=r"seed|clients"):
            relay.node.renew(wrong, 0)
    assert relay.relaying.state().header == before.header
    more = replace(agreement, world=replace(WORLD, n_clients=50, horizon=20_000))
    relay.node.renew(more, 0)
    assert (relay.agreement, relay.node.agreement) == (more, more)
    assert relay.register.n_members == relay.relaying.places == 50
    assert relay.relaying.below.n == total > 0
    np.testing.assert_allclose(relay.relaying.members.V[0], relay.relaying.below.V, atol=1e-12)
    again = RelayFederation("f", more, tree.stores[0], 0, lambda: 7)
    assert again.relaying.below.n == total
    assert again.node.machine.sent.n == relay.node.machine.sent.n


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("hetofedbandit", {}, "HomogeneityCliques"),
    ("clustered-linucb", {}, "EvidenceClusters"),
    ("feducb", {"trust": "sums"}, "trust='sums'"),
    ("feducb", {"trust": "coordinator"}, "trust='coordinator'"),
    ("feducb", {"calibration": "published"}, "calibration='published'"),
    ("composed", {"protocol": "scheduled", "structure": "everyone"}, "Scheduled"),
]


@pytest.mark.parametrize(("system", "keywords", "named"), REFUSED)
def test_what_needs_more_than_sums_is_refused_with_a_sentence(
    system: str, keywords: dict[str, Any], named: str
) -> None:
    store = MemoryStore()
    with pytest.raises(FedbanditError, match=named):
        RelayFederation("f", agreed(system, keywords), store, 0, lambda: 7)
    assert not store.journals, "nothing was written"


def test_several_groups_are_refused() -> None:
    system = fb.System(protocol=EventTriggered(), structure=FixedGroups([0, 0, 0, 1, 1, 1]))
    with pytest.raises(FedbanditError, match="FixedGroups makes several groups"):
        require_relayable(system.told(WORLD))


def test_a_store_of_another_is_refused(tmp_path: Path) -> None:
    agreement, address = agreed(*SYSTEMS[0]), Address("http://127.0.0.1:9", "f", None, "relay", None)
    tree = Tree(agreement)
    tree.relay()
    store = tree.stores[0]
    assert stored(store, "f", address) == (agreement, 0)
    kept = store.copy().journals
    with pytest.raises(FedbanditError, match="not that of a relay of 'g'"):
        stored(store, "g", address)
    with pytest.raises(FedbanditError, match="seed is 4"):
        RelayFederation("f", replace(agreement, seed=4), store, 0, lambda: 7)
    assert store.journals == kept
    client = MemoryStore()
    client.replace("client", b"")
    with pytest.raises(FedbanditError, match="has 'client' in it"):
        stored(client, "f", address)
    with pytest.raises(FedbanditError, match="no state to go on from"):
        stored(open_store(tmp_path / "new.db"), "f", address)
