"""The pictures of the live page in the documentation; `make pictures` draws them anew.

What an operator needs is looked for before the page is drawn: what is wrong first, the privacy line, and all of it
within the width of a phone.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedbandit as fb
from fedbandit.cli.population import User
from fedbandit.network.client.client import Client
from fedbandit.network.coordinator.config import FederationConfig, ServerConfig, on_a_network
from fedbandit.network.coordinator.host import Host
from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import MemoryStore
from tests.browser import CHROMIUM, opened
from tests.network.servers import served

WORLD = fb.World(n_clients=6, dim=10, horizon=20_000)
PRIVACY = {"noises": "statistics", "epsilon": 1.0, "delta": 1e-5}
FOLDER = os.environ.get("FEDBANDIT_PICTURES")
"""Where the documentation's pictures are; without it they are drawn into a temporary folder, after fewer rounds."""
ROUNDS = 250 if FOLDER else 12
LIVE = "document.querySelectorAll('[data-number=uploads]').length === 2 && document.body.innerText"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A coordinator with two federations, one of them with a member in quarantine; twelve clients act for a while."""
    folder = tmp_path_factory.mktemp("shops")
    private = Agreement("count-linucb", {"batch": 2, "privacy": PRIVACY}, WORLD)
    clustered = on_a_network(Agreement("clustered-linucb", {}, fb.World(n_clients=6, dim=5, horizon=20_000)))
    federations = {"shops": FederationConfig(private), "stations": FederationConfig(clustered, round_seconds=0.5)}
    with served(Host(ServerConfig(federations, rate=1e6), MemoryStore())) as address, contextlib.ExitStack() as stack:
        pairs = []
        for i in range(6):
            shop = stack.enter_context(
                Client(address, federation="shops", name=f"shop-{i + 1}", state=folder / f"{i}.db")
            )
            station = stack.enter_context(Client(address, federation="stations", name=f"station-{i + 1}", report=True))
            pairs += [
                (shop, User(i, WORLD, 10, 0.1, 0, 1.0)),
                (station, User(0, clustered.world, 10, 0.0, 1 + i % 2, 1.0)),
            ]
        for _ in range(ROUNDS):
            for client, user in pairs:
                user.meet(client)
            time.sleep(0.1)
        for client, _ in pairs:
            client.flush()
        yield address


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.parametrize(
    ("name", "width", "trouble", "dark"),
    [("live-page", 1240, False, False), ("live-page-trouble", 1240, True, True), ("live-page-phone", 390, True, False)],
)
def test_the_page_and_its_picture(url: str, tmp_path: Path, name: str, width: int, trouble: bool, dark: bool) -> None:
    if trouble:
        wish = json.dumps({"client": "shop-3", "reason": "sends rewards of yesterday"}).encode()
        headers = {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/shops/quarantine", wish, headers), timeout=30):
            pass
    with opened(url + "/", tmp_path, (width, 900), dark=dark) as page:
        page.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500
        )
        text = page.until(LIVE)
        assert ("sends rewards of yesterday" in text) == trouble
        if trouble:  # what needs a person stands before every number of that federation
            assert text.index("sends rewards of yesterday") < text.index("uploads")
        assert "one interaction" in text
        assert "NOT PRIVATE IN USE" not in text, "its clients draw secure noise"
        assert "Nothing is hidden: statistics leave this client as they are." in text
        assert page.value("document.documentElement.scrollWidth") <= width, "nobody scrolls sideways"
        assert page.value("matchMedia('(prefers-color-scheme: dark)').matches") == dark
        picture = (Path(FOLDER) if FOLDER and width > 500 else tmp_path) / f"{name}.png"
        page.screenshot(picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 10_000
