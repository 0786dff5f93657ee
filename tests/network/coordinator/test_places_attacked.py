"""Whoever misuses places: to begin again without its history, to go on hearing, to fill a log, or only by accident."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

import fedbandit as fb
from fedbandit.messages import Join, Message, Upload, encode
from fedbandit.network.client.connection import Connection
from fedbandit.network.coordinator import journal as kinds
from fedbandit.network.coordinator.config import FederationConfig, ServerConfig
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.host import Host
from fedbandit.network.coordinator.journal import Entry
from fedbandit.network.coordinator.register import Register
from fedbandit.network.coordinator.rules import Rules
from fedbandit.network.coordinator.service import make_app
from fedbandit.network.envelope import Envelope, seal
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import MemoryStore
from fedbandit.state import READERS, State
from fedbandit.sums import Sums
from tests.network.in_process import make_clients, run
from tests.network.servers import served
from tests.waiting import eventually

TERMS = Agreement("async-linucb", {}, fb.World(n_clients=2, dim=2, horizon=1000))
ARMS = [[1.0, 0.0], [0.0, 1.0]]


def frame(message: Message, incarnation: int, sequence: int = 0, opened: int = 1) -> bytes:
    return seal(Envelope(incarnation, opened, opened, sequence, 0, TERMS.digest), encode(message))


def upload(member: int, n: int = 9) -> Upload:
    return Upload(member, 1, Sums(np.eye(2), -np.ones(2), n), 0.0)


@pytest.fixture
def host() -> Host:
    return Host(ServerConfig({"shops": FederationConfig(TERMS)}, origins=("https://shop.example",)), MemoryStore())


@pytest.fixture
def http(host: Host) -> Iterator[TestClient]:
    with TestClient(make_app(host), base_url="http://127.0.0.1") as client:
        yield client


def ask(http: TestClient, method: str, name: str) -> Any:
    return http.request(method, "/v1/shops/invitation", headers={"x-fedbandit-name": name})


# A history is not left behind


@pytest.mark.parametrize("opened", [0, 1])
def test_no_state_has_incarnation_0(opened: int) -> None:
    """With it a client had joined and uploaded, and was taken for one that never came: it declined and began again."""
    federation = Federation("f", TERMS, MemoryStore(), rules=Rules(weight=0.4))
    member = federation.invite("evil", 0.0).member
    joining, uploading = frame(Join(member), 0, 0, opened), frame(upload(member), 0, 1, opened)
    for outcome in federation.receive([("evil", joining), ("evil", uploading), ("stranger", uploading)], 1.0):
        assert isinstance(outcome, Refusal)
        assert outcome.kind == "malformed"
    assert federation.machine.gathered().n == 0
    assert set(federation.register.by_name) == {"evil"}


def test_whoever_has_uploaded_keeps_its_place_also_if_an_earlier_version_did_not_see_it_join() -> None:
    store = MemoryStore()
    member = Federation("f", TERMS, store).invite("evil", 0.0).member
    taken = [frame(Join(member), 0), frame(upload(member), 0, 1)]
    store.append("f", [Entry(kinds.FRAME, 1.0, "evil", data).encode() for data in taken])
    federation = Federation("f", TERMS, store)
    assert federation.machine.gathered().n == 9, "what was accepted is replayed"
    assert not federation.register.by_name["evil"].joined
    assert federation.decline("evil", 2.0) == (False, [])
    federation.quarantine("evil", "it lies", 3.0)
    assert federation.machine.gathered().n == 0, "all of it can be taken out"


def test_whoever_has_joined_keeps_its_place() -> None:
    federation = Federation("f", TERMS, MemoryStore())
    member = federation.invite("a", 0.0).member
    federation.receive([("a", frame(Join(member), 5))], 1.0)
    assert federation.decline("a", 2.0) == (False, [])


# Numbers that were others'


def test_a_newcomer_on_a_number_that_another_had_may_decline(http: TestClient, host: Host) -> None:
    federation = host.federations["shops"].federation
    run(federation, make_clients(federation, 2), 5)
    assert ask(http, "DELETE", "client-1").json() == {"name": "client-1", "freed": False}
    federation.free("client-0", 1.0)
    record = federation.invite("new", 2.0)
    assert (record.member, record.past, len(record.predecessors)) == (0, [], 1)
    assert ask(http, "DELETE", "new").json() == {"name": "new", "freed": True}
    third = Federation("shops", TERMS, host.store).invite("third", 4.0)
    assert len(third.predecessors) == 1, "whose state stays refused"
    gone = third.predecessors[0][0]
    with pytest.raises(Refusal, match="given up"):
        third.check_join(Envelope(gone, 1, 1, 0, 0), 0, 5.0)


def test_stores_of_the_format_before_are_read() -> None:
    federation = Federation("f", TERMS, MemoryStore())
    run(federation, make_clients(federation, 2), 5)
    federation.free("client-0", 1.0)
    header = federation.state().header
    old = [{k: v for k, v in m.items() if k != "predecessors"} for m in header["members"]]
    old[0]["past"] = [[7, 1.0]]
    register = Register(2)
    converted = READERS["coordinator", 2].snapshot(State({**header, "members": old}, {}))
    register.restore(converted.header["members"])
    record = register.enrol("new", 2.0)
    assert (record.member, record.past, record.predecessors) == (0, [], [(7, 1.0)])


# Nobody hears what is not for it


def test_a_client_whose_place_was_freed_hears_no_more(http: TestClient, host: Host) -> None:
    hosted, who = host.federations["shops"], {"x-fedbandit-name": "a"}
    member = ask(http, "GET", "a").json()["member"]
    with http.websocket_connect("ws://127.0.0.1/v1/shops/stream", headers=dict(who)) as ws:
        ws.send_bytes(frame(Join(member), 5))
        ws.receive_bytes()
        assert member in hosted.connections
        assert http.post("/v1/shops/free", json={"client": "a"}).json()["free"] == 2
        assert member not in hosted.connections
        assert ask(http, "GET", "b").json()["member"] == member
        with pytest.raises(WebSocketDisconnect):
            ws.receive_bytes()
    assert hosted.streams["a"] == 0


def test_its_connection_ends_also_if_whoever_freed_it_has_gone(host: Host) -> None:
    """The request was cancelled while the store was written."""

    async def scenario() -> None:
        await host.open()
        hosted, entered, go_on = host.federations["shops"], threading.Event(), threading.Event()
        sending = Sending()
        hosted.federation.invite("a", 0.0)
        hosted.connections[0] = sending  # type: ignore[assignment]

        def free() -> None:
            entered.set()
            go_on.wait()
            hosted.federation.free("a", 1.0)

        task = asyncio.create_task(hosted.do(free))
        await asyncio.to_thread(entered.wait)
        task.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert hosted.connections == {}
        assert sending.closed
        await host.close()

    class Sending:
        member: int | None = 0
        closed = False

        def close(self, reason: str) -> None:
            self.closed = bool(reason)

    asyncio.run(scenario())


# Nobody fills a disk, or is kept from declining


def test_declining_again_and_again_is_refused_and_not_logged(
    http: TestClient, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fedbandit")
    answers = []
    for _ in range(8):
        assert ask(http, "GET", "a").status_code == 200
        answers.append(ask(http, "DELETE", "a").status_code)
    assert answers[:4] == [200] * 4
    assert answers[-1] == 429
    assert [record.message for record in caplog.records].count("an invitation was declined") == 1
    assert set(host.federations["shops"].federation.register.by_name) == {"a"}
    assert ask(http, "GET", "b").status_code == ask(http, "DELETE", "b").status_code == 200, "others may"


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_page_of_an_allowed_origin_may_decline(http: TestClient, method: str) -> None:
    asked = {"access-control-request-method": method, "access-control-request-headers": "authorization"}
    answer = http.options("/v1/shops/invitation", headers={"origin": "https://shop.example", **asked})
    assert answer.status_code == 200
    assert method in answer.headers["access-control-allow-methods"]


# A client's file and its place belong together


@pytest.mark.parametrize("wrong", ["certificate", "decisions"])
def test_a_client_that_is_refused_is_not_bound_to_the_place_it_gives_back(
    host: Host, tmp_path: Path, wrong: str
) -> None:
    (tmp_path / "file").write_text("x")
    given: dict[str, Any] = {wrong: tmp_path / "file"}
    with served(host) as url:
        register = host.federations["shops"].federation.register
        with pytest.raises((fb.FedbanditError, OSError)):
            fb.Client(url, federation="shops", name="a", state=tmp_path / "a.db", **given)
        assert register.by_name == {}
        with (
            fb.Client(url, federation="shops", name="b") as b,
            fb.Client(url, federation="shops", name="a", state=tmp_path / "a.db") as a,
        ):
            for client in (b, a):
                client.observe(0.5, client.select(ARMS))
                assert client.flush(60.0)
                assert client.problem is None
            assert {name: record.member for name, record in register.by_name.items()} == {"b": 0, "a": 1}


def test_a_client_whose_file_is_written_keeps_its_place(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with served(host) as url:
        register = host.federations["shops"].federation.register
        with monkeypatch.context() as patch:
            patch.setattr(fb.Client, "start", fail)
            with pytest.raises(RuntimeError):
                fb.Client(url, federation="shops", name="a", state=tmp_path / "a.db", decisions=tmp_path / "log")
        assert set(register.by_name) == {"a"}
        with (
            fb.Client(url, federation="shops", name="b"),
            fb.Client(url, federation="shops", name="a", state=tmp_path / "a.db") as a,
        ):
            a.observe(0.5, a.select(ARMS))
            assert a.flush(60.0)
            assert a.status()["member"] == 0


def test_a_client_whose_place_a_second_one_of_its_name_gave_back_asks_again(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_now, go_on = Connection.run, threading.Event()

    async def run_late(self: Connection) -> None:
        await asyncio.to_thread(go_on.wait)
        await run_now(self)

    monkeypatch.setattr(Connection, "run", run_late)
    with served(host) as url:
        register = host.federations["shops"].federation.register
        with fb.Client(url, federation="shops", name="a", state=tmp_path / "a.db") as first:
            with pytest.raises(fb.FedbanditError):
                fb.Client(url, federation="shops", name="a", require=fb.Require(epsilon=1.0))
            assert register.by_name == {}
            go_on.set()
            eventually(lambda: "a" in register.by_name and register.by_name["a"].joined)
            assert first.flush(60.0), "while it is idle"
            eventually(lambda: first.problem is None)


def test_a_client_whose_place_an_operator_freed_does_not_take_it_again(host: Host, tmp_path: Path) -> None:
    """Its state was given up: the place that it asks for again is of no use to it, and is another's."""
    with served(host) as url:
        federation = host.federations["shops"].federation
        with fb.Client(url, federation="shops", name="a", state=tmp_path / "a.db") as client:
            assert client.flush(60.0)
        federation.free("a", 1.0)
        with fb.Client(url, federation="shops", name="a", state=tmp_path / "a.db") as client:
            eventually(lambda: "given up" in (client.problem or "") and not federation.register.by_name)


def test_erasing_ends_the_connection() -> None:
    config = ServerConfig({"shops": FederationConfig(TERMS, rules=Rules(erasure=True))})
    host = Host(config, MemoryStore())
    with TestClient(make_app(host), base_url="http://127.0.0.1") as http:
        hosted = host.federations["shops"]
        member = ask(http, "GET", "a").json()["member"]
        with http.websocket_connect("ws://127.0.0.1/v1/shops/stream", headers={"x-fedbandit-name": "a"}) as ws:
            ws.send_bytes(frame(Join(member), 5))
            ws.receive_bytes()
            answer = http.delete("/v1/shops/clients/a", headers={"x-fedbandit-name": "a"})
            assert answer.status_code == 200, json.dumps(answer.json())
            assert hosted.connections == {}
            with pytest.raises(WebSocketDisconnect):
                ws.receive_bytes()
