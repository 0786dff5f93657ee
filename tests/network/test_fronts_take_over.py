"""Two coordinators with front processes on one PostgreSQL: whichever process of the owner is killed, clients go on, and
nothing is lost or counted twice.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.network.coordinator.test_fronts import children, is_running
from tests.network.servers import Coordinator
from tests.network.test_coordinators import Service, compare, health
from tests.waiting import eventually


@pytest.fixture
def pair(tmp_path: Path, postgres_url: str) -> Iterator[list[Coordinator]]:
    """Two coordinators with a front each."""
    found = []
    for name in "ab":
        (tmp_path / name).mkdir()
        found.append(Coordinator(tmp_path / name, postgres_url, "lease = 1\nfronts = 1"))
    yield found
    for coordinator in found:
        coordinator.kill()


def fronts_of(coordinator: Coordinator) -> list[int]:
    assert coordinator.process is not None
    found = children(coordinator.process.pid)
    assert found
    return found


def test_whichever_process_is_killed(pair: list[Coordinator], postgres_url: str, tmp_path: Path, capsys: Any) -> None:
    a, b = pair
    one, two = a.start(), b.start()
    eventually(lambda: (health(one)["status"], health(two)["status"]) == ("ok", "standby"))
    service = Service([one, two], "c", tmp_path)
    service.act()
    seconds = {}

    def timed(what: str) -> None:
        begun = time.monotonic()
        service.act(1)
        seconds[what] = round(time.monotonic() - begun, 2)

    front = fronts_of(a)
    os.kill(front[0], signal.SIGKILL)
    timed("a front, while the owner starts another")
    assert health(one)["status"] == "ok", "the owner is who it was"

    front = fronts_of(a)
    a.kill()
    timed("the owner's writer")
    assert health(two)["status"] == "ok"
    eventually(lambda: not any(map(is_running, front)))  # fronts end with their writer, and free its port
    assert a.start() == one

    front = fronts_of(b)
    assert b.process is not None
    for pid in (*front, b.process.pid):
        os.kill(pid, signal.SIGKILL)
    timed("all processes of the owner")
    assert health(one)["status"] == "ok"
    with capsys.disabled():
        print(f"\nseconds until an upload was acknowledged again after kill -9 of: {seconds}")
    a.stop()
    compare(postgres_url, [service])
    service.client.close()
