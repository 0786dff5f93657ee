"""Front processes: the same service; one that dies loses nothing, and they end with the writer."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import ssl
import struct
import tempfile
import urllib.error
import urllib.request
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import h11
import numpy as np
import pytest
from starlette.requests import ClientDisconnect

import fedbandit as fb
from fedbandit.network.certificates import AUTHORITY, init_keys
from fedbandit.network.coordinator.forwarding import exchange
from fedbandit.network.coordinator.link import FRAME, SEND, FrontLink
from fedbandit.network.credentials import add_credential
from tests.network.servers import Coordinator
from tests.waiting import eventually


def children(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def replace_fronts(writer: int, count: int) -> None:
    victims = children(writer)
    for pid in victims[:count]:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: set(children(writer)) - set(victims))


def is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_federation_behind_fronts_with_tls_loses_nothing_when_they_die(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    init_keys(keys, ["127.0.0.1"])
    token, admin = add_credential(keys, "shop-1"), add_credential(keys, "boss", "admin")
    coordinator = Coordinator(tmp_path, "store.db", 'keys = "keys"\nfronts = 2')
    url = coordinator.start()
    assert coordinator.process is not None
    writer = coordinator.process.pid
    ca = str(keys / AUTHORITY)
    context = ssl.create_default_context(cafile=ca)

    def ask(path: str, body: bytes | None = None, bearer: str = admin) -> bytes:
        headers = {"authorization": f"Bearer {bearer}", "content-type": "application/json"}
        request = urllib.request.Request(url + path, body, headers)
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            return bytes(answer.read())

    def applied() -> int:
        return int(json.loads(ask("/v1/shops/clients"))["clients"][0]["observations"])

    try:
        assert json.loads(ask("/healthz"))["status"] == "ok"
        with pytest.raises(urllib.error.HTTPError) as stranger:
            ask("/api/overview", bearer="fb-stranger")
        assert stranger.value.code == 401
        stranger.value.close()
        rng = np.random.default_rng(0)
        with fb.Client(url, federation="shops", token=token, ca=ca, state=tmp_path / "client.db") as client:
            for rounds in range(3):
                for _ in range(40):
                    client.observe(float(rng.uniform(-1, 1)), client.select(rng.uniform(-0.5, 0.5, (4, 3))))
                if rounds < 2:
                    replace_fronts(writer, rounds + 1)  # one of them, then all
            assert client.flush(120.0)
            uploads = client.status()["uploads"]
        listed = json.loads(ask("/v1/shops/clients"))["clients"][0]
        assert (listed["name"], listed["uploads"]) == ("shop-1", uploads)
        assert applied() <= 120
        assert b'fedbandit_connected_clients{federation="shops"}' in ask("/metrics")
        answer = json.loads(ask("/v1/shops/quarantine", json.dumps({"client": "shop-1", "reason": "test"}).encode()))
        assert answer == {"client": "shop-1", "quarantined": True}
        fronts = children(writer)
    finally:
        coordinator.kill()
    eventually(lambda: not any(map(is_running, fronts)))
    assert "fb-" not in coordinator.log.read_text()


def test_records_arrive_whole_however_they_are_cut() -> None:
    async def cut(sizes: list[int]) -> list[tuple[int, int, bytes]]:
        found: list[tuple[int, int, bytes]] = []
        link = FrontLink(lambda *record: found.append(record), lambda: None)
        records = [(FRAME, 7, b"x" * 300), (SEND, 2**32 - 1, b""), (FRAME, 8, b"abc")]
        data = b"".join(struct.pack("<BII", op, stream, len(body)) + body for op, stream, body in records)
        for size in sizes:
            link.data_received(data[:size])
            data = data[size:]
        link.data_received(data)
        assert found == records
        return found

    for sizes in ([], [1] * 320, [8, 2, 299, 3], [327]):
        asyncio.run(cut(sizes))


# Requests that a front passes on


def passed_on(
    parts: AsyncIterable[bytes], answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
) -> tuple[int, bytes]:
    """The status and body of what a server answers to a request whose body has these parts."""

    async def scenario() -> tuple[int, bytes]:
        with tempfile.TemporaryDirectory() as folder:
            server = await asyncio.start_unix_server(answer, f"{folder}/socket")
            async with server:
                connection = await asyncio.open_unix_connection(f"{folder}/socket")
                length = [("host", "x"), ("content-length", "10")]
                asked = h11.Request(method="POST", target="/", headers=length)
                async with asyncio.timeout(60.0):
                    head, body = await exchange(*connection, asked, parts)
                    return head.status_code, b"".join([part async for part in body])

    return asyncio.run(scenario())


async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer to the header, and read nothing of the body."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\n\r\nno")
    await writer.drain()
    writer.close()


async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


def test_an_answer_before_the_body_is_passed_on() -> None:
    """A body that never comes was waited for, by a front for ever."""

    async def never() -> AsyncIterator[bytes]:
        yield b"abc"
        await asyncio.Event().wait()

    assert passed_on(never(), refuse) == (401, b"no")


def test_whoever_ends_its_request_ends_what_was_passed_on() -> None:
    heard = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read())
        writer.close()

    async def gone() -> AsyncIterator[bytes]:
        yield b"abc"
        raise ClientDisconnect

    with pytest.raises(ClientDisconnect):
        passed_on(gone(), hear)
    assert b"".join(heard).endswith(b"\r\n\r\nabc")


def test_no_answer_is_an_error() -> None:
    async def all_of_it() -> AsyncIterator[bytes]:
        yield b"0123456789"

    with pytest.raises((OSError, h11.ProtocolError)):
        passed_on(all_of_it(), say_nothing)


def test_strangers_hold_no_connections_of_fronts_and_fill_no_log(tmp_path: Path) -> None:
    """With bodies that never come, or are not wanted, without a Host, and with connections that end in the middle."""
    keys = tmp_path / "keys"
    init_keys(keys, ["127.0.0.1"])
    coordinator = Coordinator(tmp_path, "store.db", 'keys = "keys"\nfronts = 1')
    url = urlsplit(coordinator.start())
    context = ssl.create_default_context(cafile=keys / AUTHORITY)
    posted = "POST /v1/shops/messages HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/octet-stream\r\n"

    def connect() -> socket.socket:
        assert url.hostname is not None
        assert url.port is not None
        return context.wrap_socket(socket.create_connection((url.hostname, url.port)), server_hostname=url.hostname)

    def answer(asked: str) -> bytes:
        with connect() as one:
            one.settimeout(60.0)
            one.sendall(asked.encode())
            return one.recv(4096)

    try:
        assert answer(f"{posted}content-length: 1000\r\n\r\nabc").startswith(b"HTTP/1.1 401 ")
        for body in ("", "abcde"):
            told = answer(f"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n\r\n{body}")
            assert told.startswith(b"HTTP/1.1 200 ")
            assert told.count(b"date: ") == 1
        assert answer("GET / HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        for _ in range(10):
            with connect() as one:
                one.sendall(f"{posted}content-length: 1000\r\n\r\nabc".encode())
        assert answer("GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    finally:
        coordinator.stop()
    assert "Traceback" not in coordinator.log.read_text()
