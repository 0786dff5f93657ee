"""Only members that the operator names say how much noise there is in what they forward, and never more than can be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.messages import encode
from fedbandit.network.coordinator.config import load_config, on_a_network
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.rules import Rules
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.network.relay.federation import RULES
from fedbandit.network.relay.service import RelayConfig
from fedbandit.network.stores import MemoryStore
from fedbandit.sums import Relayed, Sums
from tests.network.coordinator.hostile import Hostile

WORLD = fb.World(n_clients=5, dim=3, horizon=20_000)
PRIVATE: dict[str, dict[str, Any]] = {
    "count-linucb": {"privacy": {"noises": "statistics", "epsilon": 5.0}},
    "feducb": {"epsilon": 5.0, "delta": 1e-4},
}
TABLE = """
[federations.shops]
system = "count-linucb"
clients = 5
dim = 3
horizon = 20_000
keywords = {{privacy = {{noises = "statistics", epsilon = {epsilon}}}}}
{more}
"""


def made(system: str, keywords: dict[str, Any], *relays: str) -> Federation:
    agreement = on_a_network(Agreement(system, keywords, WORLD))
    return Federation("f", agreement, MemoryStore(), rules=Rules(relays=relays))


@pytest.mark.parametrize("variance", [0.0, 1.0, 1e20, 1.7e308])
@pytest.mark.parametrize("system", ["count-linucb", "feducb", "async-linucb"])
def test_no_client_passes_for_a_relay(system: str, variance: float) -> None:
    """Neither by an upload nor by a Restate, and not where nothing is noised."""
    federation = made(system, PRIVATE.get(system, {}))
    for name in ("one", "two"):
        liar = Hostile(federation, name)
        liar.join()
        refusal = liar.upload(relayed=Relayed(variance, 1))
        assert isinstance(refusal, Refusal)
        assert refusal.kind == "role"
        assert f'relays = ["{name}"]' in str(refusal)
        liar.join(7)
        again = liar.restate(7, 1, relayed=Relayed(variance, 1))
        assert isinstance(again, Refusal)
        assert again.kind == "role"
    assert federation.machine.members.told == {}
    assert np.isfinite(federation.machine.share(0).slack).all()


@pytest.mark.parametrize("system", PRIVATE)
def test_a_relay_says_no_more_noise_than_its_clients_releases_can_have(system: str) -> None:
    federation = made(system, PRIVATE[system], "north")
    most, relay = federation.releases.variance, Hostile(federation, "north")
    relay.join()
    for wrong in (Relayed(1.7e308, 1), Relayed(2.1 * most, 2), Relayed(0.1 * most, 0)):
        refusal = relay.upload(4, relayed=wrong)
        assert isinstance(refusal, Refusal)
        assert "is all that there can be" in str(refusal)
    assert not isinstance(relay.upload(4, relayed=Relayed(2 * most, 2)), Refusal)
    assert not isinstance(relay.upload(4, relayed=Relayed(5 * most, 3)), Refusal), "the variance is of all so far"
    assert isinstance(relay.upload(4, relayed=Relayed(7 * most, 1)), Refusal)
    relay.join(9)
    assert isinstance(relay.restate(9, 2, relay.some(8), relayed=Relayed(9 * most, 2)), Refusal)
    assert not isinstance(relay.restate(9, 2, relay.some(8), relayed=Relayed(6 * most, 2)), Refusal)
    for _ in range(40):  # its own uploads are nobody's releases
        assert not isinstance(
            relay.upload(0, Sums(np.zeros((3, 3)), np.zeros(3), 0), relayed=Relayed(most, 0)), Refusal
        )
    for download in federation.machine.send_shares(range(5)):
        encode(download)


def test_a_relay_restates_the_noise_of_all_its_clients() -> None:
    """It says how many uploads it sums up, and not how many releases were in them."""
    federation = made("count-linucb", PRIVATE["count-linucb"], "north")
    relay, limits = Hostile(federation, "north"), federation.limits
    relay.join(3)
    V = np.eye(3) * (3.0 - 2.0 * limits.gram)  # of nine observations, with the noise of as many releases
    assert not isinstance(relay.restate(3, 1, Sums(V, np.zeros(3), 9), relayed=Relayed(1.0, 1)), Refusal)


def test_whoever_was_taken_for_a_relay_before_there_was_a_list_still_is() -> None:
    """An upgrade stops no relay; one whose place is freed and taken by another is none."""
    store, agreement = MemoryStore(), on_a_network(Agreement("count-linucb", PRIVATE["count-linucb"], WORLD))
    relay = Hostile(Federation("f", agreement, store, rules=Rules(relays=("north",))), "north")
    relay.join()
    relay.upload(relayed=Relayed(1.0, 1))
    federation = relay.federation = Federation("f", agreement, store)
    assert not isinstance(relay.upload(relayed=Relayed(1.0, 1)), Refusal)
    federation.free("north", 1.0)
    liar = Hostile(federation, "south")
    assert liar.member == relay.member
    liar.incarnation = 5
    liar.join()
    assert isinstance(liar.upload(relayed=Relayed(1.0, 1)), Refusal)


def test_a_relay_names_those_below_it() -> None:
    agreement = on_a_network(Agreement("count-linucb", PRIVATE["count-linucb"], WORLD))
    entry = RelayConfig(agreement, rules=replace(RULES, relays=("beyond",)), member=0)
    federation = entry.open("f", MemoryStore())
    for name, taken in (("beyond", True), ("client", False)):
        below = Hostile(federation, name)
        below.join()
        assert isinstance(below.upload(relayed=Relayed(1.0, 1)), Refusal) != taken


def test_relays_are_named_in_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "federation.toml"
    path.write_text(TABLE.format(epsilon=1.0, more='relays = ["north", "south"]'))
    assert load_config(path).federations["shops"].rules.relays == ("north", "south")
    path.write_text(TABLE.format(epsilon=1.0, more='relays = "north"'))
    with pytest.raises(fb.FedbanditError, match="relays is 'north', but must be a list of names"):
        load_config(path)
    path.write_text(TABLE.replace("keywords", "# keywords").format(epsilon=1.0, more='relays = ["north"]'))
    with pytest.raises(fb.FedbanditError, match="here no relay says how much noise there is"):
        load_config(path)
