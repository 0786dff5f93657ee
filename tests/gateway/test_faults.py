"""Full disks, terms that change, clocks that jump: a gateway goes on, and says what is wrong."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import logging
import resource
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from fedbandit.environments import read_decision_log
from fedbandit.errors import FedbanditError
from fedbandit.gateway.events import Events
from fedbandit.gateway.gateway import Gateway
from fedbandit.gateway.requests import EventRefusal
from fedbandit.gateway.service import make_app
from fedbandit.gateway.watch import Watch
from fedbandit.network import clock
from fedbandit.network.client.client import Client
from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import StoreError
from tests.gateway.application import open_alone, visit
from tests.gateway.test_service import Process, post
from tests.network.servers import make_host, served

FULL = "CREATE TEMP TRIGGER full BEFORE UPDATE ON events BEGIN SELECT RAISE(FAIL, 'database or disk is full'); END"
NO_ROOM = FULL.replace("full BEFORE UPDATE ON events", "too BEFORE UPDATE ON about")


@contextlib.contextmanager
def full(gateway: Gateway) -> Iterator[None]:
    """The disk of the gateway's state is full."""
    gateway.events._db.execute(FULL)
    gateway.events._db.execute(NO_ROOM)
    yield
    gateway.events._db.execute("DROP TRIGGER full")
    gateway.events._db.execute("DROP TRIGGER too")


def until(true: Any) -> None:
    """Wait for what another thread does."""
    while not true():
        time.sleep(0.01)


def test_deadlines_are_looked_for_after_a_full_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fedbandit.gateway")
    now = [0.0]
    gateway = open_alone(tmp_path, deadline=60.0, default_reward=0.0, clock=lambda: now[0])
    for id in ("a", "b", "c"):
        gateway.rank(visit(0.5, id))
    gateway.start(0.02)
    with full(gateway):
        with pytest.raises(StoreError, match="disk is full"):
            gateway.reward({"event_id": "a", "reward": 1})
        until(lambda: gateway._watch is not None and gateway._watch.trouble)  # `try_again` fails too
        assert "disk is full" in gateway.trouble()
        now[0] = 61.0
    until(lambda: not gateway.trouble() and gateway.counts["default"] == 3)
    assert gateway.client.status()["observed"] == 3
    assert [record.message for record in caplog.records] == [
        "looking for deadlines fails", "looking for deadlines works again",
    ]  # fmt: skip
    gateway.close()


def test_any_error_is_survived_and_shown(caplog: pytest.LogCaptureFixture) -> None:
    faults: list[Exception] = [KeyError("x"), FedbanditError("No."), MemoryError()]
    done = []

    def work() -> None:
        if faults:
            raise faults[0]
        done.append(1)

    watch = Watch(work, 0.01)
    for shown in ("KeyError: 'x'", "No.", "MemoryError: "):
        until(lambda shown=shown: watch.trouble == shown)
        faults.pop(0)
    until(lambda: done and not watch.trouble)
    watch.end()
    assert watch.trouble == "the thread that looks for deadlines has ended"
    assert "looking for deadlines has a fault" in caplog.text


def test_a_fault_with_one_event_keeps_no_other_from_its_end() -> None:
    now = [0.0]
    gateway = open_alone(deadline=60.0, default_reward=0.0, clock=lambda: now[0])
    for id in ("a", "b", "c"):
        gateway.rank(visit(0.5, id))
    first, redeem = gateway.events.find("a"), gateway.client.redeem
    assert first is not None

    def faulty(reward: float, choice: Any, *row: Any) -> bool:
        if choice == first.choice:
            raise ArithmeticError("a fault of ours")
        return redeem(reward, choice, *row)

    gateway.client.redeem = faulty  # type: ignore[method-assign,assignment]
    with pytest.raises(ArithmeticError):
        gateway.reward({"event_id": "a", "reward": 1})
    now[0] = 61.0
    gateway.start(0.02)
    until(lambda: gateway.counts["default"] == 2 and gateway.trouble())
    assert gateway.trouble() == "ArithmeticError: a fault of ours"
    gateway.client.redeem = redeem  # type: ignore[method-assign]
    until(lambda: not gateway.trouble())
    assert gateway.events.counts() == {"rewarded": 1, "default": 2}
    gateway.close()


def test_a_reward_that_could_not_be_written_is_learnt_once(tmp_path: Path) -> None:
    """The client has learnt it, and neither the log nor the event says so: both say it later, and it counts once."""
    gateway = open_alone(tmp_path)
    for id in ("log", "event", "watch"):
        gateway.rank(visit(0.5, id))
    log = gateway.decisions
    assert log is not None
    write = log._write
    for id in ("log", "watch"):
        log._write = no_room  # type: ignore[method-assign]
        with pytest.raises(StoreError, match=r"The log of decisions cannot be written: .*No space left"):
            gateway.reward({"event_id": id, "reward": 1})
        log._write = write  # type: ignore[method-assign]
    move = gateway.events.move
    gateway.events.move = lambda *said: move(*said) if said[1] == "learning" else no_room()  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        gateway.reward({"event_id": "event", "reward": 1})
    gateway.events.move = move  # type: ignore[method-assign]
    with pytest.raises(EventRefusal, match="has the reward 1, not 0"):
        gateway.reward({"event_id": "log", "reward": 0})
    for id in ("log", "event"):
        assert gateway.reward({"event_id": id, "reward": 1})["repeated"] is False
        assert gateway.reward({"event_id": id, "reward": 1})["repeated"] is True
    gateway.expire()
    assert gateway.events.counts() == {"rewarded": 3}
    assert gateway.client.status()["observed"] == 3
    gateway.close()
    assert read_decision_log(tmp_path / "log").rewards.tolist() == [1, 1, 1]


def no_room(*_: Any, **__: Any) -> None:
    raise StoreError("No space left.") from OSError(28, "No space left on device")


def test_what_only_the_client_could_not_write_is_written_before_it_counts(tmp_path: Path) -> None:
    """Its files are copied, as a kill would leave them."""
    (tmp_path / "one").mkdir()
    gateway = open_alone(tmp_path / "one")
    gateway.rank(visit(0.5, "e"))
    store = gateway.client._store
    append = store.append
    store.append = no_room  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(StoreError):
            gateway.reward({"event_id": "e", "reward": 1})
        assert gateway.client.problem == "No space left."
        with pytest.raises(StoreError):
            gateway.expire()
        assert gateway.events.counts() == {"learning": 1}
    store.append = append  # type: ignore[method-assign]
    assert gateway.reward({"event_id": "e", "reward": 1})["repeated"] is False
    assert gateway.client.problem is None
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    gateway.close()
    again = open_alone(tmp_path / "two")
    assert again.events.counts() == {"rewarded": 1}
    assert again.client.status()["observed"] == 1
    again.close()


def test_an_end_that_cannot_be_written_closes_everything(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gateway = open_alone(tmp_path)
    with TestClient(make_app(gateway), base_url="http://127.0.0.1") as web:
        web.post("/rank", json=visit(0.5, "e"))
        gateway.client._store.append = no_room  # type: ignore[method-assign]
        assert web.post("/reward", json={"event_id": "e", "reward": 1}).status_code == 503
    assert "the end could not be written" in caplog.text
    with pytest.raises(StoreError, match="The gateway has been closed"):
        gateway.reward({"event_id": "e", "reward": 1})
    again = open_alone(tmp_path)  # which is free, and learns what could not be written
    assert again.events.counts() == {"rewarded": 1}
    assert again.client.status()["observed"] == 1
    again.close()


def lower(client: Client, bound: float) -> None:
    """The federation has lowered `reward_bound`."""
    agreement = dataclasses.replace(client.agreement, reward_bound=bound)
    client._durable.renew(agreement, client._durable.machine.member)


def test_a_default_reward_beyond_a_bound_that_was_lowered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is learnt no more, and said; everything else goes on, also after a restart."""
    now = [0.0]

    def opened(client: Client) -> Gateway:
        events = Events(tmp_path / "g.db")
        return Gateway(client, events, deadline=60.0, default_reward=1.0, clock=lambda: now[0])

    with served(make_host()) as url:
        client = Client(url, federation="shops", name="gateway", state=tmp_path / "c.db")
        gateway = opened(client)
        actions = [{"id": "a", "features": [0.1, 0.2, 0.3]}]
        for id in ("late", "interrupted", "in time"):
            gateway.rank({"event_id": id, "actions": actions})
    assert gateway.trouble() == ""
    gateway.events.move("interrupted", "learning", 0.9, None)  # a crash between these two
    lower(client, 0.5)
    wrong = "default_reward is 1.0, but must be within ±0.5, the reward_bound of this federation."
    assert gateway.trouble() == wrong
    gateway.reward({"event_id": "in time", "reward": 0.5})
    gateway.close()

    again = opened(Client(url, federation="shops", name="gateway", state=tmp_path / "c.db"))
    assert again.trouble() == wrong
    assert again.events.counts() == {"expired": 1, "rewarded": 1, "waiting": 1}
    assert "a reward cannot be learnt" in caplog.text
    now[0] = 61.0
    with TestClient(make_app(again), base_url="http://127.0.0.1") as web:
        until(lambda: again.events.counts() == {"expired": 2, "rewarded": 1})
        assert web.get("/healthz").status_code == 503
        assert web.post("/reward", json={"event_id": "late", "reward": 0}).status_code == 410
        assert web.post("/rank", json={"event_id": "new", "actions": actions}).status_code == 200
        assert web.post("/reward", json={"event_id": "new", "reward": 0.5}).status_code == 200
    assert again.client.status()["observed"] == 2


def test_an_event_of_other_contexts_is_over(tmp_path: Path) -> None:
    """`fedbandit migrate --client` has given contexts another length while an event waited."""
    gateway = open_alone(tmp_path)
    for id in ("a", "b"):
        gateway.rank(visit(0.5, id))
    gateway.events._db.execute("UPDATE events SET features = x'0000000000000000'")
    with TestClient(make_app(gateway), base_url="http://127.0.0.1") as web:
        answer = web.post("/reward", json={"event_id": "a", "reward": 1})
        assert answer.status_code == 410
        assert answer.json()["error"].startswith("Event 'a' is over, and nothing was learnt: the shape of arms is")
        assert web.post("/reward", json={"event_id": "a", "reward": 1}).status_code == 410
        assert web.get("/healthz").status_code == 200


def test_a_reward_that_privacy_refuses_is_refused_before_it_is_kept() -> None:
    agreement = Agreement("dp-linucb", {"epsilon": 1.0})
    rule = agreement.build().privacy.reward_rule._replace(clip=False)
    privately = SimpleNamespace(privacy=SimpleNamespace(reward_rule=rule))
    client: Any = SimpleNamespace(agreement=SimpleNamespace(reward_bound=2.0, build=lambda: privately), alone=False)
    assert Gateway._within(client, rule.high, "reward") == rule.high
    with pytest.raises(FedbanditError, match="the privacy guarantee holds for rewards in"):
        Gateway._within(client, rule.high + 0.5, "reward")


def test_a_clock_that_is_ahead_for_an_instant_ends_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway, right = open_alone(deadline=3600.0, default_reward=-1.0), time.time
    assert gateway.clock is clock.now
    for k in range(20):
        gateway.rank(visit(0.5, f"e{k}"))
    monkeypatch.setattr(time, "time", lambda: right() + 7200.0)
    assert gateway.expire() == 0
    assert gateway.reward({"event_id": "e0", "reward": 1})["repeated"] is False
    monkeypatch.setattr(time, "time", right)
    assert gateway.expire() == 0
    assert gateway.events.counts() == {"waiting": 19, "rewarded": 1}
    gateway.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="no prlimit")
def test_a_disk_that_was_full_and_a_kill(tmp_path: Path) -> None:
    """What was answered is there after it; what was not can be asked again. A stranger's text changes nothing."""
    process = Process(tmp_path, "--dim", "2", "--actions", "9", "--state", "g.db", "--decisions", "log")
    url = process.start()

    def status(path: str, body: Any) -> int:
        with contextlib.closing(http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)) as at:
            at.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            return at.getresponse().status

    def rank(id: str) -> int:
        return status("/rank", {"event_id": id, "actions": [{"id": "a", "features": [0.1, 0.2]}]})

    try:
        half = {"event_id": "x", "actions": [{"id": "\ud800", "features": [0.1, 0.2]}]}
        assert status("/rank", half) == 400
        assert [rank(f"e{k}") for k in range(5)] == [200] * 5
        assert [status("/reward", {"event_id": f"e{k}", "reward": 1}) for k in range(2)] == [200] * 2
        limits = resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE, (0, limits[1]))
        assert rank("full") == 503
        assert status("/reward", {"event_id": "e2", "reward": 1}) == 503
        resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE, limits)
        assert status("/reward", {"event_id": "e2", "reward": 1}) == 200
        assert rank("full") == 200
    finally:
        process.end()
    url = process.start()
    try:
        assert [status("/reward", {"event_id": f"e{k}", "reward": 1}) for k in range(5)] == [200] * 5
        assert post(f"{url}/reward", {"event_id": "full", "reward": 1})["repeated"] is False
    finally:
        process.end(signal.SIGTERM)
    again = Events(tmp_path / "g.db")
    assert again.counts() == {"rewarded": 6}
    again.close()
    assert len(read_decision_log(tmp_path / "log").rewards) == 6
