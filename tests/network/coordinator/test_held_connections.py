"""Nobody holds connections that others need: not who never reads, who asks for ever, or who has most of them."""

from __future__ import annotations

import base64
import contextlib
import gc
import os
import socket
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection

import numpy as np
import pytest

from fedbandit.network.client.client import Client
from fedbandit.network.coordinator import listener
from fedbandit.network.coordinator.listener import Guard, GuardedSocket, source_of
from fedbandit.network.coordinator.serving import MOST_FRAGMENTS, Stream
from tests.network.servers import guarded, make_host

PAGE = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
PAGE_AND_BODY = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\n\r\nx"
POST = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\n\r\nx"
PATIENCE = 60.0


@pytest.fixture
def guard(monkeypatch: pytest.MonkeyPatch) -> Guard:
    """One that waits for nobody."""
    monkeypatch.setattr(listener, "QUIET_SECONDS", 0.5)
    monkeypatch.setattr(listener, "STRANGERS_SECONDS", 1.0)
    return Guard(most=40)


def connected(port: int, source: str) -> socket.socket:
    """A connection that takes little."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    one.settimeout(PATIENCE)
    one.bind((source, 0))
    one.connect(("127.0.0.1", port))
    return one


def say(one: socket.socket, data: bytes) -> None:
    """Send what the other end takes."""
    one.setblocking(False)
    with contextlib.suppress(OSError):
        while data:
            data = data[one.send(data) :]
    one.settimeout(PATIENCE)


def websocket(port: int, name: str, more: bytes = b"") -> socket.socket:
    """A stream of a client, whose bytes are ours."""
    one = connected(port, "127.0.0.1")
    one.sendall(
        b"GET /v1/shops/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + base64.b64encode(os.urandom(16)) + b"\r\n"
        b"X-Fedbandit-Name: " + name.encode() + b"\r\n" + more + b"\r\n"
    )
    assert one.recv(12) == b"HTTP/1.1 101"
    return one


def frame(op: int, data: bytes, *, last: bool = True) -> bytes:
    """Of a WebSocket, masked with nothing."""
    return bytes([(128 if last else 0) | op, 128 | len(data)]) + bytes(4) + data


def until(condition: Callable[[], bool]) -> bool:
    """Wait for it."""
    deadline = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def learns(port: int, name: str) -> bool:
    """Whether a client that comes now gets through."""
    with Client(f"http://127.0.0.1:{port}", federation="shops", name=name) as client:
        client.observe(0.5, client.select(np.eye(3)))
        return client.flush(PATIENCE)


@pytest.mark.parametrize("asked", [PAGE * 200, PAGE_AND_BODY * 200], ids=["pages", "bodies"])
def test_strangers_who_never_read_hold_nothing(guard: Guard, asked: bytes) -> None:
    """From two addresses, which could have all connections when one could have half of them."""
    with guarded(make_host(), guard) as port, contextlib.ExitStack() as stack:
        for k in range(40):
            one = stack.enter_context(connected(port, f"127.0.0.{2 + k % 2}"))
            say(one, asked)
        assert learns(port, "a")
        assert until(lambda: not (guard.per_address["127.0.0.2"] or guard.per_address["127.0.0.3"]))


def test_strangers_who_ask_for_ever_are_ended(guard: Guard) -> None:
    with guarded(make_host(), guard) as port, connected(port, "127.0.0.2") as one:

        def ask() -> bool:
            try:
                one.sendall(POST * 20)
                return one.recv(2**16) == b""
            except OSError:
                return True

        assert until(ask)


def test_strangers_have_one_request_a_connection_and_clients_many(guard: Guard) -> None:
    with guarded(make_host(), guard) as port:
        http = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        for path in ("/", "/healthz", "/nothing"):
            http.request("GET", path)
            answer = http.getresponse()
            answer.read()
            assert answer.getheader("connection") == "close"
        for _ in range(3):
            http.request("GET", "/v1/shops/terms", headers={"x-fedbandit-name": "a"})
            answer = http.getresponse()
            answer.read()
            assert answer.status == 200
            assert answer.getheader("connection") is None
        http.close()


def test_the_address_that_has_most_gives_way(guard: Guard) -> None:
    """Four addresses can have all connections, and others get in."""
    over = threading.Event()
    with guarded(make_host(), guard) as port, contextlib.ExitStack() as stack:
        before = stack.enter_context(Client(f"http://127.0.0.1:{port}", federation="shops", name="a"))

        def hold(source: str) -> None:
            held: list[socket.socket] = []
            while not over.is_set():
                with contextlib.suppress(OSError):
                    held.append(connected(port, source))
                if len(held) > 50:
                    held.pop(0).close()
            for one in held:
                one.close()

        holding = [threading.Thread(target=hold, args=(f"127.0.0.{k}",)) for k in (2, 3, 4, 5)]
        for thread in holding:
            thread.start()
        try:
            assert until(lambda: len(guard.open) >= guard.most)
            for name in ("b", "c"):
                assert learns(port, name)
            before.observe(0.5, before.select(np.eye(3)))
            assert before.flush(PATIENCE)
        finally:
            over.set()
            for thread in holding:
                thread.join()
        assert len(guard.open) <= guard.most + 64
    assert not guard.open
    assert not guard.strange
    assert not guard.unread
    assert not guard.per_address


def test_whose_turn_it_is_to_go() -> None:
    guard = Guard(most=4, most_per_address=3)
    assert Guard(most=1000).most_per_address == 100

    def come(source: str, port: int) -> GuardedSocket | None:
        if not guard.admits(source):
            return None
        one = stack.enter_context(GuardedSocket())
        one.guard, one.peer, one.source = guard, (source, port), source
        guard.enter(one)
        return one

    with contextlib.ExitStack() as stack:
        held = [come(source, k) for k, source in enumerate(["b", "a", "a", "a"])]
        assert come("a", 9) is None, "as many as one address may have"
        assert held[1] is not None
        guard.somebody_asks(held[1])
        assert come("b", 10), "the oldest of those on which nobody is known goes for it"
        assert held[2] not in guard.strange["a"]
        assert come("b", 11) is None, "which has most of them by now"
        assert come("c", 12)


def test_a_connection_is_ended_once() -> None:
    guard = Guard(most=4)
    with GuardedSocket() as one:
        one.guard, one.peer, one.source = guard, ("a", 1), "a"
        guard.enter(one)
        guard.wrote(one, 0, everything=False)
        guard.end(one)
        guard.nobody_asks(one)  # the answer that was under way
        guard.wrote(one, 0, everything=False)
        assert guard.n_open == guard.per_address["a"] == guard.ended == 1
        assert not guard.strange
        assert not guard.unread
    assert not guard.open
    assert guard.ended == 1


def test_an_address_of_ipv6_is_a_network() -> None:
    assert source_of("2001:db8::1") == source_of("2001:db8::ffff:2") != source_of("2001:db8:0:1::1")
    assert source_of("fe80::1%eth0") == "fe80::/64"


def test_a_client_that_never_reads_is_not_read_from_and_ended(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many pings as it can send would be as many pongs in memory."""
    monkeypatch.setattr(listener, "QUIET_SECONDS", 1e9)
    with guarded(make_host(), guard) as port, websocket(port, "a") as one:
        pings, sent = frame(9, bytes(125)) * 500, 0
        one.settimeout(3.0)
        with contextlib.suppress(TimeoutError):
            while sent < 2**24:
                sent += one.send(pings)
        assert sent < 2**24, "nothing more is read of it than the kernel takes"
        monkeypatch.setattr(listener, "QUIET_SECONDS", 0.5)
        assert until(lambda: not guard.open)


def test_a_stream_through_a_proxy_on_this_machine_goes_on(guard: Guard) -> None:
    """The guard knows it by the address that it comes from, not by one that a header says."""
    forwarded = b"X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\n"
    with guarded(make_host(), guard) as port, websocket(port, "a", forwarded) as one:
        time.sleep(5 * listener.QUIET_SECONDS)
        one.sendall(frame(9, b"heard"))
        answer = one.recv(4096)
        while not answer.endswith(b"heard"):
            more = one.recv(4096)
            assert more, "it was ended"
            answer += more
        assert not guard.ended


def test_of_messages_too_many_one_is_read_at_a_time(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends more than it may, without end, while another one comes."""
    monkeypatch.setattr("fedbandit.network.coordinator.streams.PAUSE", 1e9)
    host = make_host(rate=10.0)
    with guarded(host, guard) as port, websocket(port, "a") as one:
        say(one, frame(1, b'{"report":{"reward":1}}') * 5000)
        assert learns(port, "b")
        assert host.federations["shops"].reports["a"] == {"reward": 1.0}
        told = one.recv(4096)
        one.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            while more := one.recv(4096):
                told += more
        assert told.count(b'"rate"') == 1


def test_fragments_of_nothing_take_nothing(guard: Guard) -> None:
    host = make_host()
    with guarded(host, guard) as port, websocket(port, "a") as one:
        text = b'{"report":{"reward":2}}'
        one.sendall(frame(1, text[:5], last=False) + frame(0, b"", last=False) * 20_000 + frame(9, b"heard"))
        answer = one.recv(4096)
        while not answer.endswith(b"heard"):
            answer += one.recv(4096)
        (stream,) = [found for found in gc.get_objects() if type(found) is Stream and found.frames]
        assert len(stream.frames) <= MOST_FRAGMENTS
        one.sendall(frame(0, text[5:]))
        assert until(lambda: host.federations["shops"].reports == {"a": {"reward": 2.0}})


def test_a_request_with_two_lengths_is_refused_and_nothing_after_it_is_read(guard: Guard) -> None:
    head = b"POST /v1/shops/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Fedbandit-Name: a\r\n"
    both = (
        head
        + b"Content-Type: application/octet-stream\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    )
    with guarded(make_host(), guard) as port, connected(port, "127.0.0.1") as one:
        one.sendall(both + b"GET /v1/shops/terms HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Fedbandit-Name: a\r\n\r\n")
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while part := one.recv(4096):
                answer += part
        assert answer.startswith(b"HTTP/1.1 400")
        assert answer.count(b"HTTP/1.1") == 1
