"""A relay on a socket: what comes down reaches its clients, and what is wrong above is shown."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from starlette.applications import Starlette

import fedbandit as fb
from fedbandit.network.client.address import Address
from fedbandit.network.coordinator.config import FederationConfig, ServerConfig
from fedbandit.network.coordinator.host import Host
from fedbandit.network.coordinator.ledger import privacy_spent
from fedbandit.network.coordinator.rules import Rules
from fedbandit.network.invitation import Agreement
from fedbandit.network.relay.service import RelayConfig, RelayHost, agreed
from fedbandit.network.stores import MemoryStore
from tests.cli.command_line import refusal
from tests.network.servers import WORLD, get_json, make_host, running, served
from tests.waiting import eventually

ALWAYS = Agreement("async-linucb", {"gamma_upload": 1.01, "gamma_download": 1.0}, WORLD)


def root_of(agreement: Agreement, *relays: str) -> Host:
    entry = FederationConfig(agreement, rules=Rules(relays=relays))
    return Host(ServerConfig({"shops": entry}, rate=1e6), MemoryStore())


def relay_of(url: str, *, at_once: bool = True, seconds: float = 0.0) -> RelayHost:
    store, address = MemoryStore(), Address(["http://127.0.0.1:9", url], "shops", None, "north", None)
    agreement, member = agreed(store, "shops", address)
    entry = RelayConfig(agreement, member=member, at_once=at_once, seconds=seconds)
    return RelayHost(ServerConfig({"shops": entry}, rate=1e6), address, store)


def act(client: fb.Client, rng: np.random.Generator, visits: int) -> None:
    for _ in range(visits):
        arm = client.select(rng.uniform(-0.5, 0.5, (4, 3)))
        client.observe(float(rng.uniform(-1, 1)), arm.id)


def test_what_others_have_learnt_comes_down() -> None:
    """Also if the first of the coordinators above is down; and a quarantine above is a problem below."""
    rng, root = np.random.default_rng(0), root_of(ALWAYS)
    with served(root) as above:
        relay = relay_of(above)
        with (
            served(relay) as url,
            fb.Client(url, federation="shops", name="below") as below,
            fb.Client(above, federation="shops", name="outside") as outside,
        ):
            act(below, rng, 10)
            act(outside, rng, 10)
            assert below.flush(60)
            assert outside.flush(60)
            sent = [client.status()["observed"] - client.status()["pending"] for client in (below, outside)]
            eventually(lambda: root.federations["shops"].federation.machine.gathered().n == sum(sent))
            eventually(lambda: below._durable.machine.model.n >= 10 + sent[1])
            shown = get_json(f"{url}/api/overview")["federations"][0]
            assert shown["upstream"]["connected"]
            assert (shown["upstream"]["url"], shown["upstream"]["others"]) == (above, sent[1])
            with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
                text = answer.read().decode()
            assert f'fedbandit_relay_others{{federation="shops"}} {sent[1]:.1f}' in text
            assert 'fedbandit_relay_connected{federation="shops"} 1.0' in text
            assert get_json(f"{url}/healthz")["status"] == "ok"
            root.federations["shops"].federation.quarantine("north", "it lies", 0.0)
            act(below, rng, 10)
            eventually(lambda: "quarantine" in str(get_json(f"{url}/api/overview")["federations"][0]["problems"]))


def test_what_is_pending_goes_up_after_a_while_and_at_the_end() -> None:
    rng = np.random.default_rng(0)
    slow = Agreement("count-linucb", {"factor_upload": 1.1, "factor_download": 1e9}, WORLD)
    for seconds in (0.05, 0.0):
        root = root_of(slow)
        with served(root) as above:
            relay = relay_of(above, at_once=False, seconds=seconds)
            with served(relay) as url, fb.Client(url, federation="shops", name="below") as below:
                act(below, rng, 25)
                assert below.flush(60)
                n = below.status()["observed"] - below.status()["pending"]
                if seconds:
                    eventually(lambda: root.federations["shops"].federation.machine.gathered().n == n)  # noqa: B023
                eventually(lambda: relay.upstream.connected)  # noqa: B023
            assert root.federations["shops"].federation.machine.gathered().n == n


def test_a_ledger_above_does_not_say_that_a_relays_clients_have_spent_less() -> None:
    noised = Agreement("count-linucb", {"privacy": {"noises": "statistics", "epsilon": 3.0}}, WORLD)
    rng, root = np.random.default_rng(0), root_of(noised, "north")
    with served(root) as above:
        relay = relay_of(above, at_once=False)
        with served(relay) as url, fb.Client(url, federation="shops", name="below") as below:
            act(below, rng, 30)
            assert below.flush(60)
            federation = root.federations["shops"].federation
            eventually(lambda: federation.register.record("north").releases > 0)
            top = privacy_spent(federation, federation.register.record("north"))
            exact = privacy_spent(relay.relay, relay.relay.register.record("below"))
            assert 0 < exact["spent"] <= top["spent"] == 3.0


def test_refusals_are_a_sentence_and_leave_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "relay.db"
    words = ["--federation", "shops", "--store", str(store), "--port", "0"]
    root = root_of(Agreement("hetofedbandit", {}, WORLD))
    with served(root) as url:
        said = refusal(capsys, "relay", "--upstream", url, *words)
        assert not root.federations["shops"].federation.register.by_name
    assert "HomogeneityCliques needs each member's statistics, but a relay forwards sums" in said
    with served(make_host()) as url:
        said = refusal(capsys, "relay", "--upstream", url, "--federation", "nowhere", *words[2:])
        assert "There is no federation 'nowhere' here" in said
        said = refusal(capsys, "relay", "--upstream", url, *words, "--seconds", "-1")
        assert "--seconds is -1.0, but must be" in said
        with fb.Client(url, federation="shops", name="a", state=tmp_path / "client.db"):
            pass
        said = refusal(capsys, "relay", "--upstream", url, *words[:3], str(tmp_path / "client.db"))
        assert "has 'client' in it, so it is not that of a relay of 'shops'" in said
        said = refusal(capsys, "relay", "--upstream", url, *words[:3], "postgresql://db/x")
        assert "must be a file: a relay is one process" in said
    assert not store.exists()


def test_a_relay_of_a_root_that_tells_no_terms_gives_its_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older one: the invitation says what is agreed on, and takes a place."""
    monkeypatch.setattr(Address, "terms", lambda *_: None)
    root = root_of(Agreement("hetofedbandit", {}, WORLD))
    with served(root) as url:
        with pytest.raises(fb.FedbanditError, match="needs each member's statistics"):
            relay_of(url)
        assert not root.federations["shops"].federation.register.by_name


def test_terms_are_told_without_a_place() -> None:
    root = root_of(ALWAYS)
    with served(root) as url:
        address = Address(url, "shops", None, "north", None)
        assert address.terms(10.0) == ALWAYS
        with pytest.raises(fb.FedbanditError, match="There is no federation 'nowhere' here"):
            Address(url, "nowhere", None, "north", None).terms(10.0)
        assert not root.federations["shops"].federation.register.by_name
    with running(Starlette()) as url:
        assert Address(url, "shops", None, "north", None).terms(10.0) is None, "an older coordinator"


def erasing(agreement: Agreement, *relays: str) -> Host:
    entry = FederationConfig(agreement, rules=Rules(erasure=True, relays=relays))
    return Host(ServerConfig({"shops": entry}, rate=1e6), MemoryStore())


def test_a_relay_that_was_erased_above_accepts_nothing() -> None:
    """What it has cannot go up any more: clients keep theirs, and its health says so."""
    rng, root = np.random.default_rng(0), erasing(ALWAYS)
    with served(root) as above:
        relay = relay_of(above)
        with served(relay) as url, fb.Client(url, federation="shops", name="below") as below:
            act(below, rng, 10)
            assert below.flush(60)
            eventually(lambda: root.federations["shops"].federation.machine.gathered().n > 0)
            Address(above, "shops", None, "north", None).erase(10)
            eventually(lambda: relay.upstream.given_up())
            had = relay.relay.relaying.below.n
            act(below, rng, 10)
            assert not below.flush(1.0)
            assert relay.relay.relaying.below.n == had
            with pytest.raises(urllib.error.HTTPError) as ill:
                urllib.request.urlopen(f"{url}/healthz", timeout=10)
            with ill.value as answer:
                assert answer.code == 503


def test_a_relay_of_noised_sums_is_not_erased() -> None:
    """By its uploads the root knows it for one."""
    noised = Agreement("count-linucb", {"privacy": {"noises": "statistics", "epsilon": 3.0}}, WORLD)
    rng, root = np.random.default_rng(0), erasing(noised, "north")
    with served(root) as above:
        relay = relay_of(above)
        with served(relay) as url, fb.Client(url, federation="shops", name="below") as below:
            act(below, rng, 30)
            assert below.flush(60)
            eventually(lambda: root.federations["shops"].federation.register.record("north").releases > 0)
            with pytest.raises(fb.FedbanditError, match="'north' is a relay"):
                Address(above, "shops", None, "north", None).erase(10)
            assert not relay.upstream.given_up()
