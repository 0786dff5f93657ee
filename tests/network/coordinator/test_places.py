"""Places that become free: of clients that were invited and do not come."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import fedbandit as fb
from fedbandit.network.certificates import init_keys
from fedbandit.network.coordinator.config import FederationConfig, ServerConfig
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.host import Host
from fedbandit.network.coordinator.overview import problems
from fedbandit.network.coordinator.service import make_app
from fedbandit.network.credentials import add_credential, add_credentials
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import CAUSES, STATUS, Refusal
from fedbandit.network.stores import MemoryStore
from tests.network.in_process import make_clients, run
from tests.network.servers import make_host, served

TERMS = Agreement("async-linucb", {}, fb.World(n_clients=3, dim=2, horizon=100))


def test_a_client_refused_by_require_gives_its_place_back(tmp_path: Path) -> None:
    """And has written no state, so that it can come back with a weaker demand."""
    host = Host(ServerConfig({"shops": FederationConfig(TERMS)}), MemoryStore())
    state = tmp_path / "a.db"
    with served(host) as url:
        register = host.federations["shops"].federation.register
        with pytest.raises(fb.FedbanditError):
            fb.Client(url, federation="shops", name="a", state=state, require=fb.Require(epsilon=1.0))
        assert register.by_name == {}
        with (
            fb.Client(url, federation="shops", name="b") as b,
            fb.Client(url, federation="shops", name="a", state=state) as a,
        ):
            for client in (a, b):
                client.observe(0.5, client.select([[1.0, 0.0], [0.0, 1.0]]))
                assert client.flush()
                assert client.problem is None
            assert {name: record.member for name, record in register.by_name.items()} == {"b": 0, "a": 1}
        with pytest.raises(fb.FedbanditError):  # whoever has joined before keeps its place
            fb.Client(url, federation="shops", name="a", require=fb.Require(epsilon=1.0))
        assert set(register.by_name) == {"a", "b"}


def test_only_a_client_that_never_joined_declines() -> None:
    store = MemoryStore()
    federation = Federation("f", TERMS, store)
    run(federation, make_clients(federation, 2), 5)
    federation.invite("late", 0.0)
    before = federation.machine.gathered().n
    federation.decline("late", 1.0)
    federation.decline("client-0", 1.0)
    again = Federation("f", TERMS, store)
    for one in (federation, again):
        assert set(one.register.by_name) == {"client-0", "client-1"}
        assert one.machine.gathered().n == before
    with pytest.raises(Refusal, match="is not a member"):
        federation.decline("late", 2.0)
    assert federation.invite("other", 3.0).member == 2, "the place is another's"


def test_the_page_says_why_clients_are_refused() -> None:
    assert CAUSES.keys() == STATUS.keys()
    host = make_host()
    with TestClient(make_app(host), base_url="http://127.0.0.1") as http:
        hosted = host.federations["shops"]
        hosted.federation.note_refusal("a", Refusal("horizon", "The secret of a is 0.25."), 100.0)
        (found,) = (problem for problem in problems(hosted, 101.0) if "Refused" in problem)
        assert found == "Refused lately (horizon): a: the horizon is reached: raise it."
        overview = http.get("/api/overview")
        assert "secret" not in overview.text
        assert '"cause":"the horizon is reached: raise it"' in overview.text


def test_the_end_of_tokens_is_a_metric(tmp_path: Path) -> None:
    init_keys(tmp_path, ["localhost"])
    add_credentials(tmp_path, ["a"], days=10)
    headers = {"authorization": f"Bearer {add_credential(tmp_path, 'watch', 'observer')}"}
    with TestClient(make_app(make_host(keys=tmp_path)), base_url="http://127.0.0.1") as http:
        text = http.get("/metrics", headers=headers).text
    assert 'fedbandit_token_expires{role="client"}' in text
    assert 'fedbandit_token_expires{role="observer"}' not in text
    assert 'fedbandit_expired_tokens{role="client"} 0.0' in text


def test_what_an_operator_did_is_said_once_and_not_at_every_start() -> None:
    store = MemoryStore()
    federation = Federation("f", TERMS, store)
    run(federation, make_clients(federation, 2), 5)
    federation.quarantine("client-0", "it lies", 1.0, "boss")
    federation.quarantine("client-0", "", 2.0, "boss")
    assert [event.what for event in federation.events] == ["quarantine", "end of a quarantine"]
    wider = replace(TERMS, world=replace(TERMS.world, horizon=200))
    for agreement, events in ((TERMS, []), (wider, ["the terms have changed"]), (wider, [])):
        assert [event.what for event in Federation("f", agreement, store).events] == events
    federation = Federation("f", wider, store)
    assert federation.register.by_name["client-0"].trusted
