"""A root, a relay and clients as processes: `kill -9` of the relay at any point, and nothing is lost or counts twice.

`FEDBANDIT_KILLS` is how often, twice if it is not set.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np

import fedbandit as fb
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.relay.federation import RelayFederation
from fedbandit.network.stores import open_store
from tests.network.servers import AGREEMENT, Coordinator, get_json
from tests.network.test_kill import KILLS, alive
from tests.waiting import eventually


class Relay:
    """A relay in a process, on a port that it keeps."""

    def __init__(self, folder: Path, upstream: str) -> None:
        self.folder, self.upstream, self.port = folder, upstream, 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Its address, when it answers."""
        out = self.folder / "relay.out"
        words = [sys.executable, "-m", "fedbandit", "relay", "--json", "--upstream", self.upstream]
        words += ["--federation", "shops", "--store", str(self.folder / "relay.db"), "--port", str(self.port)]
        with out.open("wb") as said, (self.folder / "relay.err").open("ab") as errors:
            self.process = subprocess.Popen([*words, "--forward", "at-once"], stdout=said, stderr=errors)
        eventually(lambda: b"}" in out.read_bytes())
        url = str(json.loads(out.read_text())["address"])
        self.port = int(url.rpartition(":")[2])
        eventually(lambda: alive(url))
        return url

    def end(self, how: int) -> None:
        """Send a signal, and wait for the end."""
        assert self.process is not None
        os.kill(self.process.pid, how)
        self.process.wait()


def test_a_relay_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    draw, rng = random.Random(1), np.random.default_rng(0)
    root = Coordinator(tmp_path, "root.db")
    relay = Relay(tmp_path, root.start())
    url, V, n = relay.start(), np.zeros((3, 3)), 0
    clients = [fb.Client(url, federation="shops", name=f"c{i}", state=tmp_path / f"c{i}.db") for i in range(2)]
    outside = fb.Client(relay.upstream, federation="shops", name="outside")
    try:
        for _ in range(KILLS):
            for _ in range(40):
                for client in (*clients, outside):
                    X = rng.uniform(-0.5, 0.5, (5, 3))
                    arm = client.select(X)
                    client.observe(float(rng.uniform(-1, 1)), arm.id)
                    V, n = V + np.outer(X[int(arm)], X[int(arm)]), n + 1
            time.sleep(draw.uniform(0.0, 0.3))
            relay.end(signal.SIGKILL)
            assert relay.start() == url
        for client in (*clients, outside):
            assert client.flush(60), client.problem
        for client in (*clients, outside):  # what was observed and not uploaded yet
            pending = client._durable.machine.model.pending()
            V, n = V - pending.V, n - pending.n
        sent = [client.status()["observed"] - client.status()["pending"] for client in clients]

        def forwarded() -> bool:
            upstream = get_json(f"{url}/api/overview")["federations"][0]["upstream"]
            return bool(upstream["pending"] == 0 == upstream["waiting"] and upstream["others"] > 0)

        eventually(forwarded)
    finally:
        for client in (*clients, outside):
            client.close()
        relay.end(signal.SIGTERM)
        root.kill()
    with closing(open_store(tmp_path / "root.db")) as store, closing(open_store(tmp_path / "relay.db")) as below:
        total = Federation("shops", AGREEMENT, store).machine.gathered()
        machine = RelayFederation("shops", AGREEMENT, below, 0, lambda: 7).relaying
    assert total.n == n
    np.testing.assert_allclose(total.V, V, atol=1e-9)
    assert machine.below.n == sum(sent)
    assert 0 < machine.others.n <= total.n - machine.below.n
