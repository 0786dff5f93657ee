"""Peers and whoever is no peer: pages in a browser, nonsense, floods of connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.network.peer import listener, peering
from fedbandit.network.peer.greeting import LONGEST
from tests.network.peer.peers import free_ports
from tests.network.peer.test_peer import make, visit
from tests.waiting import eventually


def say(port: int, *frames: str | bytes, path: str = peering.PATH, **headers: str) -> list[Any]:
    """What a peer answers, text by text; a status, if it does not let anybody in."""
    from websockets.asyncio.client import connect
    from websockets.exceptions import ConnectionClosed, InvalidStatus
    from websockets.typing import Origin, Subprotocol

    async def talk() -> list[Any]:
        offered, origin = [Subprotocol("fedbandit.v1")], headers.get("origin")
        page = {} if origin is None else {"origin": Origin(origin)}
        answers: list[Any] = []
        try:
            async with connect(f"ws://127.0.0.1:{port}{path}", proxy=None, subprotocols=offered, **page) as ws:  # type: ignore[arg-type]
                with contextlib.suppress(ConnectionClosed):
                    for frame in frames:
                        await ws.send(frame)
                        while not isinstance(data := await ws.recv(), str):
                            pass  # an acknowledgement, which any round may bring
                        answers.append(json.loads(data))
        except InvalidStatus as refused:
            answers.append(refused.response.status_code)
        return answers

    return asyncio.run(talk())


def asked(port: int, host: str) -> bytes:
    """The first line of what a peer answers a request for a name of a host."""
    with socket.create_connection(("127.0.0.1", port)) as one:
        lines = (f"GET {peering.PATH} HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade",
                 "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13",
                 "Sec-WebSocket-Protocol: fedbandit.v1")  # fmt: skip
        one.sendall("".join(f"{line}\r\n" for line in (*lines, "")).encode())
        return one.recv(1000).split(b"\r\n")[0]


def greeting(peer: fb.Peer, **other: Any) -> str:
    agreement = {**peer.rounds.terms.as_json(), **other}
    return json.dumps({"member": 1, "incarnation": "1", "agreement": agreement})


@pytest.fixture
def no_faults(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO):
        yield
    assert not [record for record in caplog.records if record.exc_info]


def test_a_page_in_a_browser_is_no_peer() -> None:
    ports = free_ports(2)
    with make(0, ports) as one:
        for origin in ("https://evil.example", "null", f"http://127.0.0.1:{ports[0]}"):
            assert say(ports[0], greeting(one), origin=origin) == [403]
        for host in ("evil.example", f"evil.example:{ports[0]}", "[", "", "127.0.0.1.evil.example"):
            assert b" 403 " in asked(ports[0], host)
        assert b" 101 " in asked(ports[0], f"localhost:{ports[0]}")
        assert say(ports[0], greeting(one), path="/") == [404]
        assert one.rounds.known == {}, "nobody has taken its neighbour's seat"
        with make(1, ports):
            eventually(lambda: one.status()["connected"] == [1])


def test_the_terms_are_told_to_nobody_who_may_be_anybody(caplog: pytest.LogCaptureFixture) -> None:
    ports, rng = free_ports(2), np.random.default_rng(0)
    with make(0, ports) as one:
        for name in one.rounds.terms.as_json():
            (answer,) = say(ports[0], greeting(one, **{name: "?"}))
            assert answer["error"] == f"Peer 1 has {name} = '?', here it is another."
        with make(1, ports) as other:
            visit(other, rng, 3)
            eventually(lambda: one.rounds.known)
            met = f"{other.rounds.incarnation:x}"
        said = json.loads(greeting(one, observations=7)) | {"incarnation": met}
        assert "observations = 7, here it is 500" in say(ports[0], json.dumps(said))[0]["error"]
    assert "here it is 3" not in caplog.text


@pytest.mark.usefixtures("no_faults")
def test_nonsense_ends_a_connection_and_nothing_else() -> None:
    ports, rng = free_ports(2), np.random.default_rng(0)
    with make(0, ports, patience=0.1) as one:
        said = json.loads(greeting(one))
        wrong: dict[str, list[Any]] = {
            "member": [1e400, True, -1, 10**30, "1", None],
            "incarnation": [1, "-1", " 1", "0x1", "1" * 17, "", None],
            "agreement": [None, 1, []],
        }
        texts: list[str | bytes] = [
            json.dumps({**said, name: value}) for name, values in wrong.items() for value in values
        ]
        texts += ["[" * 10_000, '{"a":' * 3000, "1" * 10_000, "", b"\xff" * 9, '{"member": 1e400}', '{"member": NaN}']
        for text in texts:
            (answer,) = say(ports[0], text)
            assert answer["kind"] == "malformed", text
            assert len(answer["error"]) < 300
        assert say(ports[0], "[" * (LONGEST + 1)) == [], "of a stranger no more is read"
        assert one.rounds.known == {}
        frame = (1).to_bytes(8, "little")
        frames: list[str | bytes] = [
            b"",
            b"\0" * 7,
            "text",
            *(frame + b for b in (b"\xff" * 9, b"\1\0\0\0", b"\0" * 8)),
        ]
        for data in frames:
            first, last = say(ports[0], json.dumps(said), data)
            assert first == {"taken": 0}
            assert last["kind"] == "malformed"
        before = one.status()["rounds"]
        visit(one, rng, 3)
        eventually(lambda: one.status()["rounds"] > before + 2)
        assert one.problem is None


@pytest.mark.usefixtures("no_faults")
def test_a_neighbour_that_answers_nonsense_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One answer that nobody had thought of ended the sender to this neighbour for good."""
    from websockets.asyncio.server import ServerConnection, serve
    from websockets.typing import Subprotocol

    monkeypatch.setattr(peering, "LONGEST_PAUSE", 0.05)
    ports = free_ports(2)
    answers: list[str | bytes] = [
        "[" * 9000,
        '{"taken": 1e400}',
        '{"taken": "x"}',
        "{}",
        "[]",
        "x",
        b"\0",
        '{"error": [1]}',
    ]
    asked: list[int] = []

    async def answer(ws: ServerConnection) -> None:
        await ws.recv()
        asked.append(1)
        await ws.send(answers[len(asked) % len(answers)])
        await ws.send("[" * 9000)
        await ws.send(b"\0" * 100_000)
        await ws.wait_closed()

    async def everything() -> None:
        async with serve(answer, "127.0.0.1", ports[1], subprotocols=[Subprotocol("fedbandit.v1")]):
            while len(asked) < 2 * len(answers):
                await asyncio.sleep(0.02)

    with make(0, ports, patience=0.1) as one:
        asyncio.run(asyncio.wait_for(everything(), 120))
        assert "Peer 1" in str(one.problem)
        with make(1, ports):
            eventually(lambda: one.status()["connected"] == [1] and one.problem is None)


@pytest.mark.usefixtures("no_faults")
def test_strangers_that_hold_connections_keep_no_neighbour_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "STRANGERS", 8)
    monkeypatch.setattr(listener, "MOST", 16)
    ports, rng = free_ports(2), np.random.default_rng(0)
    with contextlib.ExitStack() as stack, make(0, ports) as one:
        guard = one.peering.guard

        def knock(times: int) -> None:
            for _ in range(times):
                with contextlib.suppress(ConnectionError):
                    stack.enter_context(socket.create_connection(("127.0.0.1", ports[0])))

        knock(100)
        eventually(lambda: guard.ended + guard.refused >= 90)
        with make(1, ports) as other:
            knock(100)
            eventually(lambda: one.status()["connected"] == [1] and other.status()["connected"] == [0])
            visit(other, rng, 40)
            eventually(lambda: one.status()["heard"].get(1, 0) > 0)
            knock(100)
            assert guard.n_open <= 17
            eventually(lambda: guard.ended + guard.refused >= 280)
            assert other.status()["connected"] == [0], "whoever has said who it is stays"


def test_descriptors_are_left_for_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource", reason="this system has no limits")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (200, 200))
    guard = listener.PeerGuard(3)
    assert guard.most == 68
    assert guard.strangers == 34
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert listener.PeerGuard(3).most == listener.MOST + 3
