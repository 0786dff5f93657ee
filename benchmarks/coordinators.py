"""Coordinators on PostgreSQL: front processes, two federations on two processes, ten thousand connected clients.

`python -m benchmarks coordinators`. Everything runs on this machine, loads and database too: of two cores the
coordinator has about one. FEDBANDIT_POSTGRES may hold the URL of a server; without it one is started. FEDBANDIT_SECONDS
is how long each load lasts, FEDBANDIT_CLIENTS how many clients are connected at once.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.network import LOADS, SENDERS, bare_endpoint, coordinator, started, uploads_a_second, uploads_of
from benchmarks.postgres import postgres
from benchmarks.timing import table
from fedbandit.errors import FedbanditError
from fedbandit.messages import Join, encode
from fedbandit.network.client.address import Address
from fedbandit.network.envelope import Envelope, seal
from fedbandit.network.invitation import Agreement

CLIENTS = int(os.environ.get("FEDBANDIT_CLIENTS", "10000"))
DIM = 25


def throughput(database: Callable[[], str]) -> str:
    """Uploads a second with front processes, beside the bare endpoint."""
    with tempfile.TemporaryDirectory() as folder, bare_endpoint(Path(folder)) as url:
        bare = [uploads_a_second(url, DIM, bare=True, downloads=downloads) for downloads in (False, True)]
    lines = [["bare endpoint, SQLite", f"{bare[0]:,.0f}", "1.00", f"{bare[1]:,.0f}", "1.00"]]
    for fronts in (0, 1, 2):
        more = f"fronts = {fronts}"
        with tempfile.TemporaryDirectory() as folder, coordinator(Path(folder), DIM, database(), more=more) as (url, _):
            found = [uploads_a_second(url, DIM), uploads_a_second(url, DIM, downloads=True, first=500)]
        cells = [text for each, of in zip(found, bare, strict=True) for text in (f"{each:,.0f}", f"{each / of:.2f}")]
        lines.append([f"PostgreSQL, {fronts} front processes", *cells])
    return table(["server", "uploads/s", "of bare", "with downloads", "of bare"], lines)


def two_federations(database: Callable[[], str]) -> str:
    """Uploads a second of one federation on one process, and of two on two, in one database."""
    found = []
    for names in (["one"], ["one", "two"]):
        store = database()
        with contextlib.ExitStack() as stack:
            loads = []
            for name in names:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                url, _ = stack.enter_context(coordinator(folder, DIM, store, federation=name))
                loads.append((url, name))
            running = [load for url, name in loads for load in started(url, DIM, federation=name)]
            found.append(uploads_of(running))
    one, two = found
    lines = [["1", f"{one:,.0f}", "1.00"], ["2", f"{two:,.0f}", f"{two / one:.2f}"]]
    return table(["federations, each on a process of its own", "uploads/s", "of one"], lines)


# Many clients that are only connected


class Idle(asyncio.Protocol):
    """A client's connection: it joins, and answers pings. Cheaper than a WebSocket library: there are many."""

    def __init__(self, request: bytes, frame: bytes) -> None:
        self.request, self.frame = request, frame
        self.joined = asyncio.get_running_loop().create_future()
        self._upgraded = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the WebSocket."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        """The handshake, then the answer to the Join, then pings."""
        if not self._upgraded:
            assert data.startswith(b"HTTP/1.1 101"), data
            self._upgraded = True
            self.transport.write(masked(0x82, self.frame))
        elif not self.joined.done():
            self.joined.set_result(None)
        elif data[0] == 0x89:
            self.transport.write(masked(0x8A, data[2 : 2 + data[1]]))

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody may be lost."""
        if not self.joined.done():
            self.joined.set_exception(exc or ConnectionError("closed"))


def masked(op: int, data: bytes) -> bytes:
    """A frame as clients send it, with a mask of zeros."""
    length = bytes([0x80 | len(data)]) if len(data) < 126 else bytes([0xFE]) + len(data).to_bytes(2, "big")
    return bytes([op]) + length + bytes(4) + data


async def crowd(url: str, first: int, count: int) -> None:
    """Connect so many clients, say so, and stay until the input ends. They come from several addresses of loopback."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    loop, terms = asyncio.get_running_loop(), b""
    connections = []
    for number in range(first, first + count):
        answer = None
        while answer is None:
            with contextlib.suppress(FedbanditError):  # on a busy machine there may be no answer in time
                answer = Address(url, "load", None, f"idle-{number}", None).ask("GET", "/invitation", 60.0)
        terms = terms or Agreement.of_json(answer["agreement"]).digest
        member = int(answer["member"])
        frame = seal(Envelope(member + 1, 1, 1, 0, 0, terms), encode(Join(member)))
        key = base64.b64encode(number.to_bytes(16, "big")).decode()
        request = (
            f"GET /v1/load/stream HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: fedbandit.v1\r\n"
            f"X-Fedbandit-Name: idle-{number}\r\n\r\n"
        ).encode()
        source = (f"127.0.0.{2 + number % 16}", 0)
        _, idle = await loop.create_connection(
            lambda request=request, frame=frame: Idle(request, frame),  # type: ignore[misc]
            parts.hostname,
            parts.port,
            local_addr=source,
        )
        await idle.joined
        connections.append(idle)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)


@contextlib.contextmanager
def connected(url: str, count: int) -> Iterator[list[int]]:
    """So many clients that are only connected, in processes of these numbers."""
    words, each = [sys.executable, "-m", "benchmarks.coordinators", "crowd", url], count // LOADS
    crowds = [
        subprocess.Popen([*words, str(k * each), str(each)], stdin=-1, stdout=-1, text=True) for k in range(LOADS)
    ]
    for one in crowds:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    yield [one.pid for one in crowds]
    for one in crowds:
        one.communicate()


def memory_of(process: int) -> list[int]:
    """Resident bytes of a process, and of its children."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    texts = [Path(f"/proc/{pid}/status").read_text() for pid in (process, *children)]
    return [1024 * int(text.partition("VmRSS:")[2].split()[0]) for text in texts]


def many_connections(database: Callable[[], str], count: int) -> str:
    """Memory of a coordinator with two front processes for each of many connections, and uploads meanwhile."""
    settings: dict[str, Any] = {"more": "fronts = 2", "clients": count + 1000, "gamma": 1e300}  # no downloads to all
    with (
        tempfile.TemporaryDirectory() as folder,
        coordinator(Path(folder), DIM, database(), **settings) as (url, process),
    ):
        alone, before = uploads_a_second(url, DIM), memory_of(process)
        with connected(url, count):
            after = memory_of(process)
            with urllib.request.urlopen(f"{url}/metrics") as answer:
                lines = [text for text in answer.read().decode().splitlines() if text.startswith("fedbandit_connected")]
            meanwhile = uploads_a_second(url, DIM, first=SENDERS * LOADS)
    writer = (after[0] - before[0]) / count
    fronts = (sum(after[1:]) - sum(before[1:])) / count
    return (
        f"{int(float(lines[0].split()[-1])):,} connected clients take {writer / 1000:,.1f} kB each of the writer and "
        f"{fronts / 1000:,.1f} kB of a front. Meanwhile {SENDERS} others upload {meanwhile:,.0f} times a second, "
        f"{meanwhile / alone:.2f} of what they do alone."
    )


def main() -> None:
    """Print the tables."""
    with postgres() as database:
        if database is None:
            print("PostgreSQL is not installed: there is no initdb, and FEDBANDIT_POSTGRES is not set.")
            return
        print(throughput(database), flush=True)
        print(f"\n{two_federations(database)}\n", flush=True)
        print(many_connections(database, CLIENTS), flush=True)


if __name__ == "__main__" and sys.argv[1:2] == ["crowd"]:
    asyncio.run(crowd(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
