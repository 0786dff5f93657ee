"""The client under Node: several coordinators, terms that change, named actions, bad input."""

from __future__ import annotations

import contextlib
import gzip
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.network.carried import Carried
from fedbandit.network.client.address import Address
from fedbandit.network.coordinator.config import FederationConfig, ServerConfig
from fedbandit.network.coordinator.host import Host
from fedbandit.network.coordinator.migrate import migrate
from fedbandit.network.coordinator.rules import Rules
from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import MemoryStore
from tests.clients.test_mixed import node
from tests.clients.test_typescript import (
    CHROMIUM,
    FOLDER,
    Quiet,
    answering,
    browsing,
    built,
    ended,
    page_server,
    pytestmark,
    visiting,
)
from tests.network.servers import AGREEMENT, make_host, served

__all__ = ["built", "pytestmark"]


@contextlib.contextmanager
def elsewhere(owner: str) -> Iterator[tuple[str, list[str]]]:
    """A coordinator that owns nothing and names the owner, and the paths that it was asked for."""
    asked: list[str] = []

    allowed = {f"Access_Control_Allow_{name}": "*" for name in ("Origin", "Headers")}

    class Handler(Quiet):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = {"error": "Another owns it.", "kind": "elsewhere", "owner": owner}
            self.answer(json.dumps(body).encode(), 421, **allowed)

        def do_OPTIONS(self) -> None:
            self.answer(b"", 204, **allowed)

    with answering(Handler) as address:
        yield address, asked


def test_the_bundle_is_small(built: Path) -> None:
    subprocess.run(["npm", "run", "--silent", "bundle"], cwd=FOLDER, check=True, capture_output=True)
    assert len(gzip.compress((built / "fedbandit.min.js").read_bytes(), 9)) < 40_000


NOBODY = "http://127.0.0.1:1"


@pytest.mark.parametrize("first", [[], [NOBODY]], ids=["one address", "two, the first of nobody"])
def test_a_client_finds_the_owner(built: Path, tmp_path: Path, first: list[str]) -> None:
    """At the first start by its invitation, later by its connection."""
    host = make_host()
    with served(host) as url, elsewhere(url) as (other, asked):
        state = str(tmp_path / "node.journal")
        for visits in (30, 60):
            urls: Any = [*first, other] if first else other
            report = ended(visiting(built, url=urls, name="node", state=state, visits=30))
            assert report["delivered"]
            assert report["observed"] == visits
            assert report["problem"] is None
        assert {path.rpartition("/")[2] for path in asked} == {"invitation", "stream"}
        assert host.federations["shops"].federation.machine.gathered().n == 60 - report["pending"]


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_a_page_finds_the_owner(built: Path, tmp_path: Path) -> None:
    """A page is not told why a WebSocket failed: it asks."""
    subprocess.run(["npm", "run", "--silent", "bundle-tests"], cwd=FOLDER, check=True, capture_output=True)
    script = (
        "const tell = (told) => fetch('/told', {method: 'POST', body: JSON.stringify(told)});"
        "const url = new URLSearchParams(location.search).get('to');"
        "visits({url, federation: 'shops', name: 'page', state: 'p', visits: 20}, 2)"
        ".then(tell, (error) => tell({failed: String(error)}));"
    )
    bundle = (built / "test/page.bundle.js").read_text()
    page = f"<!DOCTYPE html><meta charset=utf-8><script>{bundle}</script><script>{script}</script>"
    with page_server(page) as (origin, told):
        host = make_host(origins=(origin,))
        with served(host) as url, elsewhere(url) as (other, asked), browsing(tmp_path, f"{origin}/?to={other}"):
            reports = told.get(timeout=120)
            assert "failed" not in reports, reports
            assert [report["observed"] for report in reports] == [20, 40]
            assert all(report["delivered"] for report in reports)
            assert any(path.endswith("stream") for path in asked)


def test_terms_that_change(built: Path, tmp_path: Path) -> None:
    """Invited under other terms, a client asks again and goes on; unless its statistics mean something else."""
    store, state = MemoryStore(), str(tmp_path / "node.journal")
    changed = replace(AGREEMENT, keywords={**AGREEMENT.keywords, "gamma_upload": 1.05})
    for agreement, visits in ((AGREEMENT, 30), (changed, 60)):
        host = Host(ServerConfig({"shops": FederationConfig(agreement)}, port=0, rate=1e6), store)
        with served(host) as url:
            report = ended(visiting(built, url=url, name="node", state=state, visits=30))
            assert report["observed"] == visits
            assert report["delivered"], report
            assert report["problem"] is None
    larger = replace(AGREEMENT, world=replace(AGREEMENT.world, dim=4))
    migrate(store, "shops", Carried(changed, larger), Rules())
    other = Host(ServerConfig({"shops": FederationConfig(larger)}, port=0, rate=1e6), store)
    with served(other) as url, node(url, built, state=state) as obey:
        problem = wait_for(lambda: obey({})["problem"])
        _, _, told = Address(url, "shops", None, "python", None).invitation_and_migrations(10.0)
        assert [one["features"] for one in told] == [[0, 1, 2, None]]
        with node(url, built, name="new") as begun:  # which ignores them
            assert 0 <= begun({"arms": np.eye(4).tolist()})["arm"] < 4
    assert "The terms of the federation have changed: The federation's length is 4, but must be as it was" in problem


def test_named_actions_and_bad_input(built: Path) -> None:
    world = fb.World(n_clients=2, dim=2, horizon=900, actions=3)
    agreement = Agreement("async-linucb", {"gamma_upload": 1.2}, world, action_names=("book", "film", "disc"))
    host = Host(ServerConfig({"shops": FederationConfig(agreement)}, port=0, rate=1e6), MemoryStore())
    rng = np.random.default_rng(0)
    with served(host) as url, node(url, built) as obey:
        for t in range(40):
            X = rng.uniform(-0.6, 0.6, (2, 2)).tolist()
            names = ["disc", "book"] if t % 2 else ["film", "disc"]
            told = obey({"arms": X if t % 3 else [X[0]], "actions": names, "explore": 0.4})
            assert told["propensity"] in (pytest.approx(0.2), pytest.approx(0.8))
            assert told["estimated"] is False
            obey({"reward": 1.0 if names[told["arm"]] == "disc" else 0.0})
        for command, sentence in (
            ({"arms": [[0.1, 0.1]], "actions": ["game"]}, "There is no action 'game': the terms have book, film"),
            ({"arms": [[0.1, 0.1]], "actions": [3]}, "There is no action 3: the terms have actions 0, …, 2."),
            ({"arms": [[0.1, 0.1]] * 2}, "The number of lists of features is 2, but must be 1 or 3"),
            ({"arms": "red"}, "arms is 'red', but must be"),
            ({"arms": [["a", "b"]], "actions": ["book"]}, "arms is"),
            ({"arms": [[0.1, 0.1]], "explore": 2}, "explore is 2, but must be a probability."),
            ({"reward": None}, "reward is null, but must be a finite number"),
        ):  # fmt: skip
            assert sentence in obey(command)["error"]
        assert obey({})["observed"] == 40
        wait_for(lambda: obey({})["unacknowledged"] == 0)
        sums = host.federations["shops"].federation.machine.gathered()
        assert sums.n == 40 - obey({})["pending"]
        assert np.abs(sums.b[2]).sum() > 0
        assert np.abs(sums.b[:2]).sum() == 0, "nobody liked books or films"


def wait_for(found: Callable[[], Any]) -> Any:
    for _ in range(3000):
        if value := found():
            return value
        time.sleep(0.02)
    raise AssertionError("it never came")
