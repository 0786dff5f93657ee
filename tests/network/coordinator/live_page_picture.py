"""The picture of the live page in the documentation.

    python -m tests.network.coordinator.live_page_picture docs/live-page.png

A coordinator in memory with two federations, clients on loopback for half a minute, and Debian's Chromium.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from pathlib import Path

import fedbandit as fb
from fedbandit.cli.population import User
from fedbandit.network.client.client import Client
from fedbandit.network.coordinator.config import FederationConfig, ServerConfig, on_a_network
from fedbandit.network.coordinator.host import Host
from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import MemoryStore
from tests.network.coordinator.test_page import browse
from tests.network.servers import served

WORLD = fb.World(n_clients=6, dim=10, horizon=20_000)
SECONDS = 30.0


def main(picture: Path) -> None:
    """Run, and take the picture."""
    async_terms = Agreement("async-linucb", {"gamma_upload": 2.0, "gamma_download": 2.0}, WORLD)
    clustered = on_a_network(Agreement("clustered-linucb", {}, fb.World(n_clients=6, dim=5, horizon=20_000)))
    federations = {"shops": FederationConfig(async_terms), "stations": FederationConfig(clustered, round_seconds=0.5)}
    host = Host(ServerConfig(federations, rate=1e6), MemoryStore())
    with served(host) as url, contextlib.ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        pairs = []
        for i in range(6):
            client = stack.enter_context(Client(url, federation="shops", name=f"shop-{i + 1}", report=True))
            pairs.append((client, User(i, WORLD, 10, 0.1, 0, 1.0)))
        for i in range(6):
            client = stack.enter_context(Client(url, federation="stations", name=f"station-{i + 1}", report=True))
            pairs.append((client, User(0, clustered.world, 10, 0.0, 1 + i % 2, 1.0)))
        begun = time.monotonic()
        while time.monotonic() - begun < SECONDS:
            for client, user in pairs:
                user.meet(client)
            time.sleep(0.1)
        for client, _ in pairs:
            client.flush()
        time.sleep(1.5)
        browse(Path(folder), url + "/", f"--screenshot={picture.resolve()}", "--window-size=1240,1560",
               "--hide-scrollbars")  # fmt: skip
    print(f"{picture}: {picture.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
