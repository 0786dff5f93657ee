"""What tests of the service share: a host in memory, clients without a network, and a coordinator on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from starlette.applications import Starlette

import fedbandit as fb
from fedbandit.network.addresses import bind
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.coordinator.config import FederationConfig, ServerConfig
from fedbandit.network.coordinator.host import Host
from fedbandit.network.coordinator.listener import Guard, Listener
from fedbandit.network.coordinator.service import make_app
from fedbandit.network.coordinator.serving import Patient, follow_certificate, uvicorn_config
from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import MemoryStore

WORLD = fb.World(n_clients=4, dim=3, horizon=10_000)
AGREEMENT = Agreement("async-linucb", {"gamma_upload": 1.3, "gamma_download": 1.3}, WORLD)
CONFIG = """
[server]
port = {port}
store = "{store}"

[federations.shops]
system = "async-linucb"
clients = 4
dim = 3
horizon = 10000
keywords = {{gamma_upload = 1.3, gamma_download = 1.3}}
"""


def make_host(keys: Path | None = None, **settings: Any) -> Host:
    """A host with a federation `shops` in memory."""
    config = ServerConfig({"shops": FederationConfig(AGREEMENT)}, keys=keys, **{"rate": 1e6, **settings})
    return Host(config, MemoryStore())


def make_client(number: int, entropy: int = 7) -> DurableClient:
    """A client without a network."""
    return DurableClient(MemoryStore(), AGREEMENT, number, lambda: entropy)


def act(client: DurableClient, visits: int, seed: int = 0) -> None:
    """Let a client serve some users."""
    rng = np.random.default_rng(seed)
    for _ in range(visits):
        X = rng.uniform(-0.5, 0.5, (4, 3))
        choice = client.select(X)
        client.observe(choice.number, float(rng.uniform(-1, 1)))


def known(client: DurableClient) -> int:
    """How many observations the client's model has learnt from, its own and others'."""
    return client.machine.model.n


def served(host: Host, port: int = 0) -> contextlib.AbstractContextManager[str]:
    """The host on a port of loopback, in a thread; its address."""
    return running(make_app(host), port)


@contextlib.contextmanager
def running(app: Starlette, port: int = 0) -> Iterator[str]:
    """An application on a port of loopback, in a thread; its address."""
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_config=None, ws="websockets-sansio")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)


def guarded(host: Host, guard: Guard, **tls: Any) -> contextlib.AbstractContextManager[int]:
    """The host behind a guard, on a port of loopback; the port."""
    host.guard = guard
    config = uvicorn_config(make_app(host), 2**16, tls)
    if config.ssl is not None:
        assert host.config.keys is not None
        host.renew, host.expiry = follow_certificate(config.ssl, host.config.keys, tls)
    return serving(config, guard)


@contextlib.contextmanager
def serving(config: uvicorn.Config, guard: Guard) -> Iterator[int]:
    """An application behind a guard as commands serve it, on a port of loopback; the port."""
    guarding = Listener.around(bind("127.0.0.1", 0), guard)
    port = int(guarding.getsockname()[1])
    server = Patient(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([guarding])), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield port
    finally:
        server.should_exit = True
        thread.join(20)
        guarding.close()


@contextlib.contextmanager
def cut_off() -> Iterator[str]:
    """A coordinator that breaks off in the middle of each of its answers; its address."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        await reader.readexactly(int(size[1]) if size else 0)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789")
        await writer.drain()
        writer.close()

    async def serve() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            address.put(server.sockets[0].getsockname()[1])
            await ended.wait()

    address: queue.Queue[int] = queue.Queue()
    ended, loop = asyncio.Event(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{address.get(timeout=20)}"
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(20)
        loop.close()


def get_json(url: str) -> Any:
    """What a GET answers."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


class Coordinator:
    """A coordinator in a process of its own, to be killed and started again on the same port."""

    def __init__(self, folder: Path, store: str, more: str = "") -> None:
        self.more = more
        self.config = folder / "federation.toml"
        self.log = folder / "serve.log"
        self.store = store
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Start it; its address."""
        self.config.write_text(
            CONFIG.format(port=self.port, store=self.store).replace("[server]", f"[server]\n{self.more}")
        )
        return self.launch()

    def launch(self) -> str:
        """Start it as it is configured; its address."""
        words = [sys.executable, "-m", "fedbandit", "serve", "--config", str(self.config), "--json"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        address = str(json.loads(line)["address"])
        self.port = int(address.rpartition(":")[2])
        return address

    def kill(self) -> None:
        """End it at once."""
        self.stop(signal.SIGKILL)

    def stop(self, how: int = signal.SIGTERM) -> None:
        """Let it end."""
        if self.process is not None:
            os.kill(self.process.pid, how)
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None
