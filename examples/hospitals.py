"""A private federation of hospitals: the coordinator sees noisy sums over all of them and nothing else.

    python examples/hospitals.py

A real coordinator in a process of its own and five hospitals with clients, on this machine. Each hospital insists on
what it was promised before anything leaves it. Needs `fedbandit[secure,server]`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

import fedbandit as fb

CONFIG = """
[server]
port = 0
store = "federation.db"

[federations.hospitals]
system = "feducb"
clients = 5
dim = 4
horizon = 5000
keywords = {trust = "sums", own = "exact", epsilon = 1.0, delta = 1e-5}
"""
EFFECT = np.array([0.6, -0.3, 0.2, 0.1])  # what nobody knows: how much each property of a treatment helps


def main(visits: int = 40, hospitals: int = 5) -> list[dict[str, Any]]:
    """Serve patients in every hospital, wait for sums, and say what happened; the clients' status."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        (folder / "federation.toml").write_text(CONFIG)
        words = [sys.executable, "-m", "fedbandit", "serve", "--config", "federation.toml", "--json"]
        coordinator = stack.enter_context(
            subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        )
        stack.callback(coordinator.terminate)
        assert coordinator.stdout is not None
        url = json.loads(coordinator.stdout.readline())["address"]
        insists = fb.Require(epsilon=1.0, delta=1e-5, trust="sums")
        clients = [
            stack.enter_context(
                fb.Client(url, federation="hospitals", name=f"hospital-{i}", state=folder / f"{i}.db", require=insists)
            )
            for i in range(hospitals)
        ]
        print(clients[0].guarantee.sentence(), "\n")
        for _ in range(visits):
            for client in clients:
                treatments = rng.uniform(-0.5, 0.5, (3, 4))
                arm = client.select(treatments)
                client.observe(float(np.clip(treatments[arm] @ EFFECT + 0.1 * rng.normal(), -1, 1)), arm)
            time.sleep(0.05)  # patients do not come all at once; sums are opened meanwhile
        deadline = time.monotonic() + 60.0
        while time.monotonic() < deadline and not all(client.status()["version"] for client in clients):
            time.sleep(0.1)  # a sum waits for whoever is late
        status = [client.status() for client in clients]
        for client, one in zip(clients, status, strict=True):
            print(f"{one['observed']} observed, knows sums up to version {one['version']}, problem: {client.problem}")
        print("\nKeys of the others, to be compared by telephone:", clients[0].acquaintances)
    return status


if __name__ == "__main__":
    main()
