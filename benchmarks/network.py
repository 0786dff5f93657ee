"""A coordinator under load: uploads a second, latency of `select` and `observe`, memory of a connected client.

Everything runs on this machine: the coordinator in a process of its own, the clients in this one. `python -m benchmarks
network` measures SQLite, and PostgreSQL too if FEDBANDIT_POSTGRES holds a URL.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import fedbandit as fb
from benchmarks.timing import table
from fedbandit.messages import Upload, encode
from fedbandit.network.envelope import Envelope, extend, seal
from fedbandit.sums import Sums

DIM, SECONDS = 25, 8.0
CONFIG = """
[server]
port = 0
store = "{store}"
rate = 1000000

[federations.load]
system = "async-linucb"
clients = 2000
dim = 25
horizon = 1000000
"""


class Coordinator:
    """A coordinator in a process of its own."""

    def __init__(self, folder: Path, store: str) -> None:
        config = folder / "load.toml"
        config.write_text(CONFIG.format(store=store))
        words = [sys.executable, "-m", "fedbandit", "serve", "--config", str(config), "--json"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.url = str(json.loads(self.process.stdout.readline())["address"])

    def memory(self) -> int:
        """Resident bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(status.partition("VmRSS:")[2].split()[0])

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait()


class Sender:
    """A client that only sends: statistics of a few observations, one upload after the other."""

    def __init__(self, url: str, number: int) -> None:
        from fedbandit.network.client.connection import Address

        self.address = Address(url, "load", None, f"sender-{number}", None)
        _, self.member = self.address.invitation(60.0)
        self.chain = self.sequence = 0
        rng = np.random.default_rng(number)
        X = rng.standard_normal((5, DIM)) / DIM
        self.sums = Sums(X.T @ X, X.T @ rng.uniform(-1, 1, 5), 5)

    def frame(self, message: bytes, chain: int) -> bytes:
        """A message in this sender's envelope."""
        return seal(Envelope(self.member + 1, 1, 1, self.sequence, chain), message)

    async def connect(self) -> Any:
        """A connection that has joined."""
        from websockets.asyncio.client import connect

        from fedbandit.messages import Join

        ws = await connect(self.address.stream, additional_headers=self.address.headers, compression=None, proxy=None)
        await ws.send(self.frame(encode(Join(self.member)), 0))
        await ws.recv()
        return ws

    async def send(self, ws: Any, until: float) -> int:
        """Upload until a time; how many were acknowledged."""
        while time.monotonic() < until:
            self.sequence += 1
            data = encode(Upload(self.member, self.sequence, self.sums, 1e6))  # knows all: is sent no downloads
            await ws.send(self.frame(data, self.chain))
            self.chain = extend(self.chain, data)
            while (await ws.recv())[3] != 3:  # until the Receipt
                pass
        return self.sequence


async def uploads_a_second(url: str, senders: int) -> float:
    """How many uploads are applied, written and acknowledged in a second."""
    people = [Sender(url, number) for number in range(senders)]
    sockets = [await person.connect() for person in people]
    begin = time.monotonic()
    counts = await asyncio.gather(
        *(person.send(ws, begin + SECONDS) for person, ws in zip(people, sockets, strict=True))
    )
    elapsed = time.monotonic() - begin
    for ws in sockets:
        await ws.close()
    return sum(counts) / elapsed


async def connected(url: str, coordinator: Coordinator, count: int) -> tuple[float, int]:
    """Bytes of the coordinator for each of many clients connected at once, and how many it says are."""
    before = coordinator.memory()
    people = [Sender(url, 100 + number) for number in range(count)]
    sockets = [await person.connect() for person in people]
    import urllib.request

    with urllib.request.urlopen(f"{url}/metrics") as answer:
        (line,) = (text for text in answer.read().decode().splitlines() if text.startswith("fedbandit_connected"))
    grown = (coordinator.memory() - before) / count
    for ws in sockets:
        await ws.close()
    return grown, int(line.split()[-1])


def latencies(url: str, folder: Path) -> dict[str, tuple[float, float]]:
    """The median and the 99th percentile of select and observe, in µs, of a client with a file, under load."""
    rng = np.random.default_rng(0)
    times: dict[str, list[float]] = {"select": [], "observe": []}
    load = subprocess.Popen([sys.executable, "-m", "benchmarks.network", "load", url])
    try:
        time.sleep(6.0)  # until it has started
        with fb.Client(url, federation="load", name="measured", state=folder / "client.db") as client:
            for _ in range(3000):
                X = rng.standard_normal((25, DIM))
                X /= np.linalg.norm(X, axis=1, keepdims=True)
                begin = time.perf_counter()
                arm = client.select(X)
                middle = time.perf_counter()
                client.observe(float(rng.uniform(-1, 1)), arm.id)
                end = time.perf_counter()
                times["select"].append(middle - begin)
                times["observe"].append(end - middle)
    finally:
        load.terminate()
        load.wait()
    return {name: tuple(1e6 * np.percentile(taken, [50, 99])) for name, taken in times.items()}


def main() -> None:
    """Print the table."""
    stores = {"SQLite": "load.db"}
    if "FEDBANDIT_POSTGRES" in os.environ:
        stores["PostgreSQL"] = os.environ["FEDBANDIT_POSTGRES"]
    lines = []
    for kind, store in stores.items():
        with tempfile.TemporaryDirectory() as folder:
            coordinator = Coordinator(Path(folder), store)
            try:
                rate = asyncio.run(uploads_a_second(coordinator.url, 32))
                measured = latencies(coordinator.url, Path(folder))
                memory, count = asyncio.run(connected(coordinator.url, coordinator, 1000))
            finally:
                coordinator.stop()
        cells = [f"{p50:,.0f} / {p99:,.0f}" for p50, p99 in measured.values()]
        lines.append([kind, f"{rate:,.0f}", *cells, f"{count:,}", f"{memory / 1000:,.0f} kB"])
    header = [
        "store",
        "uploads/s (d = 25)",
        "select p50 / p99, µs",
        "observe p50 / p99, µs",
        "connected",
        "memory each",
    ]
    print(table(header, lines))


if __name__ == "__main__" and sys.argv[1:2] == ["load"]:

    async def load(url: str) -> None:
        """Keep the coordinator busy until ended."""
        people = [Sender(url, 50 + number) for number in range(16)]
        sockets = [await person.connect() for person in people]
        end = time.monotonic() + 600
        await asyncio.gather(*(person.send(ws, end) for person, ws in zip(people, sockets, strict=True)))

    asyncio.run(load(sys.argv[2]))
