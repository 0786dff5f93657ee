"""Several coordinators, as processes, on one PostgreSQL: one owns the federation, and nothing is lost or doubled when
it is killed, stopped, cut off from its store, or restarted.

`FEDBANDIT_STOPPED` is for how many seconds a process stays stopped after another has taken over, 0 if it is not set.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.network.coordinator.config import FederationConfig, ServerConfig
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.host import Host
from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import open_store
from tests.network.conftest import PostgresServer
from tests.network.servers import AGREEMENT, Coordinator, get_json
from tests.network.stores.test_claims import pids
from tests.waiting import eventually

psycopg = pytest.importorskip("psycopg")
STOPPED = float(os.environ.get("FEDBANDIT_STOPPED", "0"))


@pytest.fixture
def pair(tmp_path: Path, postgres_url: str) -> Iterator[dict[str, Coordinator]]:
    """Two coordinators, the first one the owner."""
    found = {}
    for name in "ab":
        (tmp_path / name).mkdir()
        found[name] = Coordinator(tmp_path / name, postgres_url, "lease = 1")
    yield found
    for coordinator in found.values():
        if coordinator.process is not None:
            os.kill(coordinator.process.pid, signal.SIGCONT)
        coordinator.kill()


class Service:
    """A client that notes what it has observed."""

    def __init__(self, urls: list[str], name: str, folder: Path) -> None:
        self.client = fb.Client(urls, federation="shops", name=name, state=folder / f"{name}.db")
        self.rng = np.random.default_rng(0)
        self.V, self.b, self.n = np.zeros((3, 3)), np.zeros(3), 0

    def act(self, visits: int = 20) -> None:
        """Serve users until something has been uploaded, and all of it is acknowledged."""
        before = self.client.status()["uploads"]
        while self.client.status()["uploads"] == before or visits > 0:
            X, y, visits = self.rng.uniform(-0.5, 0.5, (5, 3)), float(self.rng.uniform(-1, 1)), visits - 1
            arm = self.client.select(X)
            self.client.observe(y, arm)
            self.V += np.outer(X[arm], X[arm])
            self.b += y * X[arm]
            self.n += 1
        eventually(lambda: self.client.flush(1.0))


def health(url: str) -> dict[str, Any]:
    try:
        return dict(get_json(f"{url}/healthz"))
    except urllib.error.HTTPError as error:
        return dict(json.load(error))
    except (urllib.error.URLError, OSError):
        return {"status": "down"}


def refusal(url: str) -> tuple[int, dict[str, Any]]:
    """What a coordinator that is not the owner says to an invitation."""
    request = urllib.request.Request(f"{url}/v1/shops/invitation", headers={"X-Fedbandit-Name": "c"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=10)
    with refused.value:
        return refused.value.code, json.load(refused.value)


def stored(url: str, agreement: Agreement = AGREEMENT) -> tuple[np.ndarray, np.ndarray, int]:
    """The sums in the store, when nobody owns it any more."""
    with closing(open_store(url)) as store:
        V, b, n = Federation("shops", agreement, store).machine.gathered()
        return V, b, n


def compare(url: str, services: list[Service]) -> None:
    """The store has what clients have observed, but for what they have not sent yet: nothing is lost, nothing twice."""
    V, b, n = stored(url)
    waiting = [service.client._durable.machine.model.pending() for service in services]
    assert n == sum(service.n for service in services) - sum(sums.n for sums in waiting) > 0
    np.testing.assert_allclose(V, sum(s.V - w.V for s, w in zip(services, waiting, strict=True)), atol=1e-9)
    np.testing.assert_allclose(b, sum(s.b - w.b for s, w in zip(services, waiting, strict=True)), atol=1e-9)


def terminate_all(url: str) -> None:
    """End all sessions of a database but this one."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                   "AND datname = current_database()")  # fmt: skip


def test_take_overs(
    pair: dict[str, Coordinator], postgres_url: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedbandit.network.client.connection.SECONDS_TO_ANSWER", 2.0)
    a, b = pair["a"], pair["b"]
    one, two = a.start(), b.start()
    assert health(one) == {"status": "ok", "federations": {"shops": "owner"}}
    assert health(two) == {"status": "standby", "federations": {"shops": "standby"}}
    with pytest.raises(urllib.error.HTTPError, match="503"):
        get_json(f"{two}/healthz?federation=shops")  # for a load balancer
    status, said = refusal(two)
    assert (status, said["kind"], said["owner"]) == (421, "elsewhere", one)

    first = Service([two], "behind a load balancer", tmp_path)
    first.act()
    first.client.close()
    service = Service([one, two], "c", tmp_path)
    service.act()
    seconds = {}

    def timed(what: str) -> None:
        begun = time.monotonic()
        service.act(1)
        seconds[what] = round(time.monotonic() - begun, 2)

    a.kill()
    timed("kill -9 of the owner")
    assert health(two)["status"] == "ok"
    assert a.start() == one
    assert health(one)["status"] == "standby"

    assert b.process is not None
    os.kill(b.process.pid, signal.SIGSTOP)
    timed("kill -STOP of the owner, with a lease of 1 s")
    assert health(one)["status"] == "ok"
    term = owner_term(postgres_url)
    time.sleep(STOPPED)
    os.kill(b.process.pid, signal.SIGCONT)
    status, said = refusal_in_time(two)
    assert said["owner"] == one
    eventually(lambda: health(two)["status"] == "standby")
    assert owner_term(postgres_url) == term, "whoever was stopped has not touched the owner's row"
    service.act()

    terminate_all(postgres_url)
    timed("pg_terminate_backend of all sessions")

    a.stop()  # a rolling restart
    timed("SIGTERM of the owner")
    eventually(lambda: health(two)["status"] == "ok")
    with capsys.disabled():
        print(f"\nseconds until an upload was acknowledged again: {seconds}")
    b.stop()
    compare(postgres_url, [first, service])
    service.client.close()


def refusal_in_time(url: str) -> tuple[int, dict[str, Any]]:
    """The first answers of a process that was stopped may be that it is not sure."""
    found = refusal(url)
    while found[1]["kind"] == "unavailable":
        found = refusal(url)
    return found


def owner_term(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as db:
        return int(db.execute("SELECT term FROM fedbandit_owners").fetchone()[0])


def test_a_standby_with_another_configuration_is_refused(postgres_url: str) -> None:
    def host(horizon: int) -> Host:
        agreement = replace(AGREEMENT, world=replace(AGREEMENT.world, horizon=horizon))
        return Host(ServerConfig({"shops": FederationConfig(agreement)}, store=postgres_url), address="http://a:1")

    owner = host(10_000)
    standby = host(10_000)
    assert (owner.owners.states(), standby.owners.states()) == ({"shops": "owner"}, {"shops": "standby"})
    with pytest.raises(fb.FedbanditError, match="is served by http://a:1 under another configuration"):
        host(20_000)
    for one in (standby, owner):
        one.store.close()
    host(20_000).store.close()  # when nobody has it, a sound change is taken


def test_sessions_that_end_or_hang_at_any_point(
    pair: dict[str, Coordinator], postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedbandit.network.client.connection.SECONDS_TO_ANSWER", 2.0)
    service = Service([pair["a"].start(), pair["b"].start()], "c", tmp_path)
    service.act()
    draw = random.Random(0)
    for _ in range(4):
        with acting(service):
            time.sleep(draw.uniform(0.0, 0.2))
            terminate_all(postgres_url)
    eventually(lambda: pids(postgres_url, "lock") != [])
    (backend,) = pids(postgres_url, "lock")
    os.kill(backend, signal.SIGSTOP)  # the owner's lock is in a session that answers no more
    try:
        service.act()
    finally:
        os.kill(backend, signal.SIGCONT)
    service.act()
    with psycopg.connect(postgres_url) as db:  # the owner's writes wait for whoever has its row
        db.execute("SELECT 1 FROM fedbandit_owners FOR UPDATE")
        with acting(service):
            time.sleep(2.0)
            db.rollback()
    for coordinator in pair.values():
        coordinator.stop()
    compare(postgres_url, [service])
    service.client.close()


@contextmanager
def acting(service: Service) -> Iterator[None]:
    """While a client serves users, until an upload has been acknowledged."""
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(service.act)
        yield
        working.result()


def test_a_restart_of_postgresql_and_a_reload(tmp_path: Path) -> None:
    server = PostgresServer()
    try:
        server.start()
        url = server.database()
        coordinator = Coordinator(tmp_path, url, "lease = 1")
        service = Service([coordinator.start()], "c", tmp_path)
        service.act()
        draw = random.Random(1)
        for _ in range(3):
            with acting(service):
                time.sleep(draw.uniform(0.0, 0.2))
                server.end()
                server.start()
        service.act()
        assert coordinator.process is not None
        text = coordinator.config.read_text()
        coordinator.config.write_text(text.replace("horizon = 10000", "horizon = 20000"))
        os.kill(coordinator.process.pid, signal.SIGHUP)
        eventually(lambda: '"event": "reload"' in coordinator.log.read_text())
        service.act()
        coordinator.stop()
        V, _, n = stored(url, replace(AGREEMENT, world=replace(AGREEMENT.world, horizon=20_000)))
        waiting = service.client._durable.machine.model.pending()
        assert n == service.n - waiting.n
        np.testing.assert_allclose(V, service.V - waiting.V, atol=1e-9)
        service.client.close()
    finally:
        coordinator.kill()
        server.end()
        shutil.rmtree(server.folder, ignore_errors=True)
