"""A federation of a Python client, one under Node and one in a browser is the simulation of the same events."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.environments import recorded
from fedbandit.machines.link import Link
from fedbandit.network.client.client import Client
from fedbandit.network.coordinator.config import FederationConfig, ServerConfig
from fedbandit.network.coordinator.host import Host
from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import MemoryStore
from tests.clients.test_typescript import CHROMIUM, FOLDER, browsing, built, page_server, pytestmark
from tests.network.servers import served

__all__ = ["built", "pytestmark"]

T, KINDS = 45, ("python", "node", "browser")
KEYWORDS: dict[str, Any] = {"gamma_upload": 1.3, "gamma_download": 1.3}
Obey = Callable[[dict[str, Any]], dict[str, Any]]


@contextlib.contextmanager
def python(url: str) -> Iterator[Obey]:
    with Client(url, federation="shops", name="python") as client:
        arm: list[Any] = [None]

        def obey(command: dict[str, Any]) -> dict[str, Any]:
            if "arms" in command:
                arm[0] = client.select(command["arms"])
            if "reward" in command:
                client.observe(command["reward"], arm[0])
            machine = client._durable.machine
            return {"arm": arm[0], "version": machine.version, "uploads": machine.sequence,
                    "unacknowledged": len(machine.outbox), "theta": client.theta.tolist()}  # fmt: skip

        yield obey


@contextlib.contextmanager
def node(url: str, built: Path, **options: Any) -> Iterator[Obey]:
    said = {"url": url, "federation": "shops", "name": "node", **options}
    words = ["node", str(built / "test" / "obey.js"), json.dumps(said)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    assert process.stdin is not None
    assert process.stdout is not None

    def obey(command: dict[str, Any]) -> dict[str, Any]:
        print(json.dumps(command), file=process.stdin, flush=True)
        assert process.stdout is not None
        return dict(json.loads(process.stdout.readline()))

    try:
        yield obey
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


@contextlib.contextmanager
def browser(url: str, origin: str, folder: Path, commands: queue.Queue[Any], told: queue.Queue[Any]) -> Iterator[Obey]:
    def obey(command: dict[str, Any]) -> dict[str, Any]:
        commands.put(command)
        return dict(told.get(timeout=120))

    with browsing(folder, f"{origin}/?to={url}"):
        yield obey
        commands.put(None)


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_a_mixed_federation_is_the_simulation(built: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    who, X = rng.integers(0, 3, T), rng.uniform(-0.55, 0.55, (T, 4, 3)).round(3)
    means = X @ [0.6, -0.4, 0.3]
    rewards = np.clip(means + rng.normal(0, 0.1, (T, 4)), -1, 1).round(3)
    system, world = fb.async_linucb(**KEYWORDS), fb.World(n_clients=3, dim=3, horizon=T)
    simulated = fb.simulate(system, recorded(who, X, means, rewards, n_clients=3, bound=1.0), T, 0, engine="plain")
    link = Link(system, world, 0)
    subprocess.run(["npm", "run", "--silent", "bundle-tests"], cwd=FOLDER, check=True, capture_output=True)
    order = list(dict.fromkeys(who.tolist()))  # members are numbered as they come
    bundle = (built / "test/page.bundle.js").read_text()
    script = "obey({url: new URLSearchParams(location.search).get('to'), federation: 'shops', name: 'browser'})"
    page = f"<!DOCTYPE html><meta charset=utf-8><script>{bundle}</script><script>{script}</script>"
    commands: queue.Queue[Any] = queue.Queue()
    with contextlib.ExitStack() as stack:
        origin, told = stack.enter_context(page_server(page, commands=commands))
        config = FederationConfig(Agreement("async-linucb", KEYWORDS, world))
        host = Host(ServerConfig({"shops": config}, origins=(origin,), rate=1e6), MemoryStore())
        url = stack.enter_context(served(host))
        for name in (KINDS[order.index(i)] for i in range(3)):  # places are taken beforehand, in the simulation's order
            host.federations["shops"].federation.invite(name, 0.0)
        live: dict[int, Obey] = {}
        makers: dict[str, Callable[[], Any]] = {
            "python": lambda: python(url),
            "node": lambda: node(url, built),
            "browser": lambda: browser(url, origin, tmp_path, commands, told),
        }
        for t, i in enumerate(who.tolist()):
            if i not in live:
                link.greet(i)
                live[i] = stack.enter_context(makers[KINDS[order.index(i)]]())
                live[i]({})
                wait_until_joined(host, i)
            client = link.client(i)
            choice = client.select(X[t])
            found = live[i]({"arms": X[t].tolist()})
            assert found["arm"] == choice.arm == simulated.arms[t], (t, KINDS[order.index(i)])
            link.say(client.observe(choice.number, float(rewards[t, choice.arm])))
            live[i]({"reward": float(rewards[t, choice.arm])})
            for j, obey in live.items():
                wait_until_as(obey, link.client(j))
        machine = host.federations["shops"].federation.machine
        assert link.uploads == simulated.communication.uploads > 10
        assert link.downloads == simulated.communication.downloads > 10
        assert machine.gathered().n == T - sum(link.client(i).pending for i in range(3))
        for i, obey in live.items():
            np.testing.assert_allclose(obey({})["theta"], link.client(i).model.theta, atol=1e-9)


def wait_until_joined(host: Host, member: int) -> None:
    """Until the coordinator has a client's Join: one that has uploads by then asks for downloads once more."""
    for _ in range(3000):
        if member in host.federations["shops"].connections:
            return
        time.sleep(0.02)
    raise AssertionError(f"member {member} never joined")


def wait_until_as(obey: Obey, machine: fb.ClientMachine) -> None:
    """Until a client has been sent, and has sent, what the simulated one has."""
    expected = {"version": machine.version, "uploads": machine.sequence, "unacknowledged": 0}
    for _ in range(3000):
        found = obey({})
        if all(found[key] == value for key, value in expected.items()):
            return
        time.sleep(0.02)
    raise AssertionError(f"{found} is not {expected}")
