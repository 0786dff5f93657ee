"""A coordinator under load beside a bare endpoint, and what a client costs its device.

Everything runs on this machine: the coordinator in a process of its own, 32 senders in two others. `python -m
benchmarks network` measures SQLite; PostgreSQL and front processes are in `coordinators`. Trust ratios within a run.
FEDBANDIT_SECONDS is how long each load lasts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fedbandit as fb
from benchmarks.timing import table
from fedbandit.encoded_messages import is_a
from fedbandit.messages import Download, Join, Receipt, Upload, encode, encoded_size
from fedbandit.network.envelope import Envelope, extend, seal
from fedbandit.sums import Sums

SECONDS, SENDERS, LOADS = float(os.environ.get("FEDBANDIT_SECONDS", "6")), 32, 2
CONFIG = """
[server]
port = 0
store = "{store}"
rate = 1000000
connections_per_address = 10000
{more}

[federations.{federation}]
system = "async-linucb"
clients = {clients}
dim = {dim}
horizon = 1000000000
keywords = {{gamma_upload = {gamma}, gamma_download = {gamma}}}
"""


# Servers


@contextlib.contextmanager
def coordinator(
    folder: Path,
    dim: int,
    store: str,
    gamma: float = 2.0,
    *,
    federation: str = "load",
    clients: int = 2000,
    more: str = "",
) -> Iterator[tuple[str, int]]:
    """A coordinator in a process of its own: its address, and its process number."""
    config = folder / "load.toml"
    told = {"federation": federation, "clients": clients, "more": more}
    config.write_text(CONFIG.format(store=store, dim=dim, gamma=gamma, **told))
    words = [sys.executable, "-m", "fedbandit", "serve", "--config", str(config), "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            yield str(json.loads(process.stdout.readline())["address"]), process.pid
        finally:
            process.terminate()


@contextlib.contextmanager
def bare_endpoint(folder: Path) -> Iterator[str]:
    """The bare endpoint: its address."""
    words = [sys.executable, "-m", "benchmarks.bare", str(folder / "bare.db")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


# Load


class Sender:
    """A client that only sends: statistics of a few observations, one upload after the other."""

    def __init__(
        self, url: str, number: int, dim: int, *, bare: bool, downloads: bool, federation: str = "load"
    ) -> None:
        from fedbandit.network.client.address import Address

        self.bare = bare
        self.known = 0.0 if downloads else 20.0 * dim  # nothing: each upload is answered by a download; all: none
        if bare:
            more = encoded_size(Download, dim) if downloads else 0
            self.url, self.headers = f"{url.replace('http', 'ws', 1)}/stream?more={more}", {}
            self.member, self.terms = 0, bytes(16)
        else:
            address = Address(url, federation, None, f"sender-{number}", None)
            agreement, self.member = address.invitation(60.0)
            self.url, self.headers, self.terms = address.stream, address.headers, agreement.digest
        self.chain = self.sequence = 0
        rng = np.random.default_rng(number)
        X = rng.standard_normal((5, dim)) / dim
        self.sums = Sums(X.T @ X, X.T @ rng.uniform(-1, 1, 5), 5)
        self.body = encode(Upload(0, 0, self.sums, self.known))[40:]

    def frame(self, message: bytes, chain: int) -> bytes:
        """A message in this sender's envelope."""
        return seal(Envelope(self.member + 1, 1, 1, self.sequence, chain, self.terms), message)

    def upload(self) -> bytes:
        """The next upload; only its header is made anew, so that the load costs little."""
        head = encode(Upload(self.member, self.sequence, Sums(self.sums.V[:0, :0], self.sums.b[:0], 0), self.known))
        return head[:4] + len(self.sums.b).to_bytes(4, "little") + head[8:40] + self.body

    async def connect(self) -> Any:
        """A connection that has joined."""
        from websockets.asyncio.client import connect
        from websockets.typing import Subprotocol

        offered = None if self.bare else [Subprotocol("fedbandit.v1")]
        ws = await connect(
            self.url,
            additional_headers=self.headers,
            subprotocols=offered,
            compression=None,
            proxy=None,
            max_size=2**26,
        )
        if not self.bare:
            await ws.send(self.frame(encode(Join(self.member)), 0))
            await ws.recv()
        return ws

    async def send(self, ws: Any, until: float) -> int:
        """Upload until a time; how many were acknowledged."""
        while time.monotonic() < until:
            self.sequence += 1
            data = self.upload()
            await ws.send(self.frame(data, self.chain))
            self.chain = extend(self.chain, data)
            while not is_a(Receipt, await ws.recv()):
                pass
        return self.sequence


async def load(url: str, first: int, dim: int, *, bare: bool, downloads: bool, federation: str) -> float:
    """Uploads a second that half of the senders had acknowledged."""
    options: dict[str, Any] = {"bare": bare, "downloads": downloads, "federation": federation}
    people = [Sender(url, first + k, dim, **options) for k in range(SENDERS // LOADS)]
    sockets = [await person.connect() for person in people]
    until = time.monotonic() + SECONDS
    counts = await asyncio.gather(*(person.send(ws, until) for person, ws in zip(people, sockets, strict=True)))
    for ws in sockets:
        await ws.close()
    return sum(counts) / SECONDS


def uploads_a_second(url: str, dim: int, *, bare: bool = False, downloads: bool = False, first: int = 0) -> float:
    """How many uploads are applied, written and acknowledged in a second."""
    return uploads_of(started(url, dim, bare=bare, downloads=downloads, first=first))


def started(
    url: str, dim: int, *, bare: bool = False, downloads: bool = False, first: int = 0, federation: str = "load"
) -> list[subprocess.Popen[str]]:
    """Processes that upload."""
    words = [sys.executable, "-m", "benchmarks.network", "load", url, str(dim), str(int(bare)), str(int(downloads))]
    numbers = [str(first + k * SENDERS) for k in range(LOADS)]
    return [subprocess.Popen([*words, k, federation], stdout=subprocess.PIPE, text=True) for k in numbers]


def uploads_of(loads: list[subprocess.Popen[str]]) -> float:
    """How many uploads a second they had acknowledged."""
    return sum(float(process.communicate()[0]) for process in loads)


# A client's device


def life(url: str, folder: str, dim: int, observations: int) -> dict[str, Any]:
    """One client's life: its first second, then latencies and bytes written; in a process of its own."""
    begin = time.perf_counter()
    rng = np.random.default_rng(0)
    times: dict[str, list[float]] = {"select": [], "observe": []}
    with fb.Client(url, federation="load", name="measured", state=f"{folder}/client.db") as client:
        for k in range(observations):
            X = rng.standard_normal((25, dim))
            X /= np.linalg.norm(X, axis=1, keepdims=True)
            start = time.perf_counter()
            arm = client.select(X)
            middle = time.perf_counter()
            client.observe(float(rng.uniform(-1, 1)), arm)
            times["select"].append(middle - start)
            times["observe"].append(time.perf_counter() - middle)
            if k == 0:
                first = time.perf_counter() - begin
        client.flush(60.0)
        time.sleep(1.5)  # what happens in the background
        uploads = client.status()["uploads"]
    written = int(Path("/proc/self/io").read_text().partition("wchar:")[2].split()[0])
    found = {name: np.percentile(taken, [50, 99]).tolist() for name, taken in times.items()}
    size = Path(folder, "client.db").stat().st_size
    return {"first": first, "uploads": uploads, "written": written, "size": size, **found}


def measure_life(url: str, folder: Path, dim: int, observations: int) -> dict[str, Any]:
    """`life`, and how long the process took before it: a cold start."""
    words = [sys.executable, "-m", "benchmarks.network", "life", url, str(folder), str(dim), str(observations)]
    found: dict[str, Any] = json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True).stdout)
    return found


def cold_start(url: str, folder: Path) -> float:
    """Seconds of a new process until its first reward is learnt."""
    code = (
        "import sys, fedbandit as fb, numpy as np\n"
        "c = fb.Client(sys.argv[1], federation='load', name='cold', state=sys.argv[2])\n"
        "c.observe(0.5, c.select(np.eye(int(sys.argv[3]))))\n"
        "import os; os._exit(0)"
    )
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code, url, str(folder / "cold.db"), "25"], check=True)
    return time.perf_counter() - begin


async def connected(url: str, process: int, count: int) -> tuple[float, int]:
    """Bytes of the coordinator for each of many clients connected at once, and how many it says are."""

    def memory() -> int:
        return 1024 * int(Path(f"/proc/{process}/status").read_text().partition("VmRSS:")[2].split()[0])

    before = memory()
    people = [Sender(url, 1000 + number, 25, bare=False, downloads=False) for number in range(count)]
    sockets = [await person.connect() for person in people]
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        lines = [text for text in answer.read().decode().splitlines() if text.startswith("fedbandit_connected")]
    grown = (memory() - before) / count
    for ws in sockets:
        await ws.close()
    return grown, int(float(lines[0].split()[-1]))


def throughput() -> list[list[str]]:
    """Uploads a second of the bare endpoint and of a coordinator, at d = 25 and 100."""
    lines = []
    for dim in (25, 100):
        with tempfile.TemporaryDirectory() as folder, bare_endpoint(Path(folder)) as url:
            bare = uploads_a_second(url, dim, bare=True)
            bare_with = uploads_a_second(url, dim, bare=True, downloads=True)
        lines.append([str(dim), "bare endpoint, SQLite", f"{bare:,.0f}", "1.00", f"{bare_with:,.0f}", "1.00"])
        with tempfile.TemporaryDirectory() as folder, coordinator(Path(folder), dim, "load.db") as (url, _):
            without = uploads_a_second(url, dim)
            answered = uploads_a_second(url, dim, downloads=True, first=500)
        cells = [f"{without:,.0f}", f"{without / bare:.2f}", f"{answered:,.0f}", f"{answered / bare_with:.2f}"]
        lines.append([str(dim), "fedbandit, SQLite", *cells])
    return lines


def main() -> None:
    """Print the tables."""
    print(table(["d", "server", "uploads/s", "of bare", "with downloads", "of bare"], throughput()))
    print()
    lines = []
    for dim, observations, gamma in ((25, 20_000, 2.0), (100, 999, 1.2)):
        with tempfile.TemporaryDirectory() as folder, coordinator(Path(folder), dim, "load.db", gamma) as (url, _):
            found = measure_life(url, Path(folder), dim, observations)
        cells = [f"{1e6 * found[name][0]:,.0f} / {1e6 * found[name][1]:,.0f}" for name in ("select", "observe")]
        sizes = [f"{found['written'] / 1e6:,.0f} MB", f"{found['size'] / 1e6:.1f} MB"]
        lines.append([str(dim), f"{observations:,}", f"{found['uploads']:,}", *sizes, *cells])
    print(table(["d", "observations", "uploads", "written and sent", "file", "select p50 / p99, µs", "observe"], lines))
    with tempfile.TemporaryDirectory() as folder, coordinator(Path(folder), 25, "load.db") as (url, process):
        cold = cold_start(url, Path(folder))
        memory, count = asyncio.run(connected(url, process, 1000))
    print(f"\nA new process has learnt its first reward after {cold:.2f} s. ", end="")
    print(f"{count:,} connected clients take {memory / 1000:,.0f} kB each of the coordinator.")


if __name__ == "__main__" and sys.argv[1:2] == ["load"]:
    dim, bare, downloads, first = map(int, sys.argv[3:7])
    named = {"bare": bool(bare), "downloads": bool(downloads), "federation": sys.argv[7]}
    print(asyncio.run(load(sys.argv[2], first, dim, **named)))  # type: ignore[arg-type]
elif __name__ == "__main__" and sys.argv[1:2] == ["life"]:
    print(json.dumps(life(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))))
