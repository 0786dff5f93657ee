"""Strangers get nothing: neither descriptors, nor log lines, nor anything through somebody else's browser."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient, WebSocketDenialResponse
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

import fedbandit as fb
from fedbandit.network.certificates import init_keys, renew_certificate
from fedbandit.network.client.client import Client
from fedbandit.network.coordinator import listener
from fedbandit.network.coordinator.listener import Guard
from fedbandit.network.coordinator.pacing import QuietLog
from fedbandit.network.coordinator.service import make_app
from fedbandit.network.coordinator.streams import SendQueue
from fedbandit.network.credentials import add_credential
from fedbandit.network.logs import OnceInAWhile
from tests.cli.command_line import refusal
from tests.network.servers import get_json, guarded, make_host


def test_connections_that_say_nothing_take_nothing_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "QUIET_SECONDS", 0.5)
    guard = Guard(most=30, most_per_address=30)
    with guarded(make_host(), guard) as port, contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(100)]
        for one in silent[::2]:
            with contextlib.suppress(OSError):
                one.send(b"GET /healthz HTTP/1.1\r\nHost: ")
        deadline = time.monotonic() + 30
        answered = False
        while not answered and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                answered = get_json(f"http://127.0.0.1:{port}/healthz")["status"] == "ok"
            time.sleep(0.1)
        assert answered
        assert guard.refused >= 70
        assert guard.ended >= 30
        with Client(f"http://127.0.0.1:{port}", federation="shops", name="a") as client:
            client.observe(0.5, client.select(np.eye(3)))
            assert client.flush(60.0)
            time.sleep(1.5)  # a stream that is quiet is not ended
            assert client.connected
    assert not guard.open


def test_six_hundred_idle_sockets_and_slow_headers_from_elsewhere_are_nothing_to_honest_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One client is connected before, another comes in the middle; by hand: 5,000 sockets (docs/network.md)."""
    monkeypatch.setattr(listener, "QUIET_SECONDS", 0.5)
    guard, over = Guard(most=200, most_per_address=100), threading.Event()
    beginnings = (
        b"",
        b"G",
        b"GET /healthz HTTP/1.1\r\nX-Slow: ",
        b"POST /v1/shops/messages HTTP/1.1\r\nContent-Length: 9\r\n",
    )
    with guarded(make_host(), guard) as port, contextlib.ExitStack() as stack:
        before = stack.enter_context(Client(f"http://127.0.0.1:{port}", federation="shops", name="a"))
        before.observe(0.5, before.select(np.eye(3)))
        assert before.flush(60.0)
        slow = []
        for k in range(600):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0)))
            with contextlib.suppress(OSError):
                one.send(beginnings[k % 4])
            slow += [one] if k % 4 == 2 else []

        def drip() -> None:
            while not over.wait(0.05):
                for one in slow:
                    with contextlib.suppress(OSError):
                        one.send(b"x")

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            during = stack.enter_context(Client(f"http://127.0.0.1:{port}", federation="shops", name="b"))
            for client in (before, during):
                for _ in range(5):
                    client.observe(0.5, client.select(np.eye(3)))
                assert client.flush(60.0)
                assert client.problem is None
            while guard.per_address["127.0.0.2"]:
                time.sleep(0.05)
        finally:
            over.set()
            dripping.join()
        assert before.connected
        assert guard.refused >= 400


def test_tls_handshakes_that_stall_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "QUIET_SECONDS", 0.5)
    keys, guard = tmp_path / "keys", Guard(most=30, most_per_address=30)
    init_keys(keys, ["127.0.0.1"])
    token = add_credential(keys, "shop-1")
    tls = {"ssl_certfile": str(keys / "server.pem"), "ssl_keyfile": str(keys / "server-key.pem")}
    with guarded(make_host(keys), guard, **tls) as port, contextlib.ExitStack() as stack:
        for _ in range(100):  # the beginning of a ClientHello
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            with contextlib.suppress(OSError):
                one.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        while guard.ended < 30:
            time.sleep(0.05)
        with Client(f"https://127.0.0.1:{port}", federation="shops", token=token, ca=str(keys / "ca.pem")) as client:
            client.observe(0.5, client.select(np.eye(3)))
            assert client.flush(60.0)
    assert guard.refused >= 70


def test_descriptors_are_looked_at() -> None:
    with pytest.raises(fb.FedbanditError, match="limit of open files allows"):
        Guard(most=10**7)
    guard = Guard(most=4, most_per_address=1)
    assert guard.admits("10.0.0.1")


def test_one_client_has_so_many_streams() -> None:
    with TestClient(make_app(make_host()), base_url="http://127.0.0.1") as http, contextlib.ExitStack() as stack:
        url, headers = "ws://127.0.0.1/v1/shops/stream", {"x-fedbandit-name": "a"}
        for _ in range(4):
            stack.enter_context(http.websocket_connect(url, headers=headers))
        with pytest.raises(WebSocketDenialResponse) as denied:
            http.websocket_connect(url, headers=dict(headers)).__enter__()
        assert denied.value.status_code == 429


def test_bodies_that_come_slowly_take_four_connections_of_one_client_and_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With a token, and from as many addresses as there are."""
    head = b"POST /v1/shops/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Fedbandit-Name: a\r\nContent-Length: 99\r\n"
    guard = Guard(most=100, most_per_address=100)
    with guarded(make_host(), guard) as port, contextlib.ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)) for _ in range(20)]
        for one in slow:
            one.sendall(head + b"Content-Type: application/octet-stream\r\n\r\nx")
        while len(slow) > 4:
            slow = [one for one in slow if not _answer(one)]
            time.sleep(0.02)
        with Client(f"http://127.0.0.1:{port}", federation="shops", name="b") as client:
            client.observe(0.5, client.select(np.eye(3)))
            assert client.flush(60.0)
        assert [_answer(one) for one in slow] == [b""] * 4, "these are still awaited"
    assert "Traceback" not in caplog.text, "whoever leaves in the middle of a body is no fault of the coordinator"


def _answer(one: socket.socket) -> bytes:
    one.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        answer = one.recv(4096)
        assert answer.startswith(b"HTTP/1.1 429")
        return answer
    return b""


FOREIGN = {"origin": "https://evil.test"}


def test_a_page_of_another_origin_can_do_nothing() -> None:
    host = make_host()
    with TestClient(make_app(host), base_url="http://127.0.0.1") as http:
        name = {"x-fedbandit-name": "shop-1"}
        assert http.get("/v1/shops/invitation", headers=name).status_code == 200
        wish = json.dumps({"client": "shop-1", "reason": "mischief"})
        for headers in ({**FOREIGN, "content-type": "application/json"}, {"content-type": "text/plain"}, {}):
            assert http.post("/v1/shops/quarantine", content=wish, headers=headers).status_code in (400, 403)
        assert http.get("/v1/shops/invitation?name=shop-2").status_code == 401, "no identity in a query"
        assert http.get("/v1/shops/invitation", headers=name | FOREIGN).status_code == 403
        assert http.get("/v1/shops/invitation", headers=name | {"host": "evil.test"}).status_code == 403
        with pytest.raises(WebSocketDenialResponse):
            http.websocket_connect("ws://127.0.0.1/v1/shops/stream", headers=name | FOREIGN).__enter__()
        register = host.federations["shops"].federation.register
        assert list(register.by_name) == ["shop-1"]
        assert not register.record("shop-1").quarantined
        own = {"origin": "http://127.0.0.1"}
        done = http.post("/v1/shops/quarantine", json={"client": "shop-1", "reason": "so"}, headers=own)
        assert done.status_code == 200


def test_browsers_say_who_they_are_in_subprotocols(tmp_path: Path) -> None:
    init_keys(tmp_path, ["localhost"])
    token = add_credential(tmp_path, "page", "client", "shops")
    host = make_host(keys=tmp_path, origins=("https://shop.example",))
    origin = {"origin": "https://shop.example"}
    with TestClient(make_app(host), base_url="http://127.0.0.1") as http:
        url = "ws://127.0.0.1/v1/shops/stream"
        with http.websocket_connect(url, ["fedbandit.v1", f"fedbandit.token.{token}"], headers=dict(origin)) as ws:
            assert str(ws.accepted_subprotocol) == "fedbandit.v1"
        with pytest.raises(WebSocketDenialResponse) as denied:
            http.websocket_connect(url, ["fedbandit.v9", f"fedbandit.token.{token}"], headers=dict(origin)).__enter__()
        assert denied.value.status_code == 426
        preflight = {
            **origin,
            "access-control-request-method": "GET",
            "access-control-request-headers": "authorization",
        }
        assert http.options("/v1/shops/invitation", headers=preflight).status_code == 200
        answer = http.get("/v1/shops/invitation", headers={**origin, "authorization": f"Bearer {token}"})
        assert answer.headers["access-control-allow-origin"] == "https://shop.example"


def test_a_browser_without_keys_says_its_name() -> None:
    name = base64.urlsafe_b64encode("Zoë".encode()).decode().rstrip("=")
    host = make_host()
    offered = ["fedbandit.v1", f"fedbandit.name.{name}"]
    with (
        TestClient(make_app(host), base_url="http://127.0.0.1") as http,
        http.websocket_connect("ws://127.0.0.1/v1/shops/stream", offered),
    ):
        assert host.federations["shops"].streams["Zoë"] == 1


def test_the_same_thing_is_logged_once_in_a_while() -> None:
    quiet = QuietLog(every=1000.0)
    assert [quiet.says("a"), quiet.says("a"), quiet.says("b")] == [True, False, True]


def test_a_message_that_cannot_be_built_ends_its_own_connection_only() -> None:
    async def put() -> tuple[SendQueue, SendQueue]:
        from fedbandit.messages import Receipt
        from fedbandit.network.coordinator.host import HostedFederation

        hosted = HostedFederation(make_host().federations["shops"].federation, 1.0, 1.0)
        hosted.connections = {0: SendQueue(), 1: SendQueue()}
        hosted.push([Receipt(0, -1), Receipt(1, 1)])
        return hosted.connections[0], hosted.connections[1]

    broken, other = asyncio.run(put())
    assert broken.closing
    assert len(other.waiting) == 1
    assert not other.closing


def test_a_renewed_certificate_is_taken_while_running_and_a_wrong_one_is_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = tmp_path / "keys"
    init_keys(keys, ["127.0.0.1"])
    token = add_credential(keys, "a", "client")
    host = make_host(keys=keys)
    tls = {"ssl_certfile": str(keys / "server.pem"), "ssl_keyfile": str(keys / "server-key.pem")}
    init_keys(tmp_path / "other", ["127.0.0.1"])
    with guarded(host, Guard(most=30), **tls) as port:
        url = f"https://127.0.0.1:{port}"
        first = host.expiry()
        with Client(url, federation="shops", token=token, ca=str(keys / "ca.pem")) as client:
            client.observe(0.5, client.select(np.eye(3)))
            assert client.flush(60.0)
            time.sleep(1.1)
            renew_certificate(keys)
            deadline = time.monotonic() + 30
            while host.expiry() == first and time.monotonic() < deadline:
                time.sleep(0.1)
            assert host.expiry() != first
        with Client(url, federation="shops", token=token, ca=str(keys / "ca.pem"), state=tmp_path / "c.db") as client:
            assert client.problem is None
        wrong = Client(
            url, federation="shops", token=token, ca=str(tmp_path / "other" / "ca.pem"), state=tmp_path / "c.db"
        )
        with wrong:
            deadline = time.monotonic() + 30
            while wrong.problem is None and time.monotonic() < deadline:
                time.sleep(0.05)
            assert "cannot be trusted" in (wrong.problem or "")
            assert "ca.pem' has not signed its certificate" in (wrong.problem or "")
        with pytest.raises(
            fb.FedbanditError, match=r"cannot be trusted: .*; pass ca= or --ca, the coordinator's keys/ca.pem"
        ):
            Client(url, federation="shops", token=token)
        with pytest.raises(fb.FedbanditError, match="no token: pass token= or --token-file"):
            Client(url, federation="shops", ca=str(keys / "ca.pem"))
        said = refusal(capsys, "backup", str(tmp_path / "b.db"), "--url", url)
        assert "cannot be trusted" in said
        assert "pass --ca, the coordinator's keys/ca.pem" in said


def test_a_wrong_token_is_answered_with_401_and_is_no_error_of_the_coordinator(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    init_keys(tmp_path / "keys", ["127.0.0.1"])
    library, quiet = logging.getLogger("uvicorn.error"), OnceInAWhile()
    library.addFilter(quiet)
    try:
        with guarded(make_host(keys=tmp_path / "keys"), Guard(most=30)) as port:
            with pytest.raises(InvalidStatus) as refused:
                connect(f"ws://127.0.0.1:{port}/v1/shops/stream", additional_headers={"Authorization": "Bearer fb-x"})
            assert refused.value.response.status_code == 401
    finally:
        library.removeFilter(quiet)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert "not let in" in caplog.text
