"""A clock that never goes back, and threads that are waited for."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from fedbandit.network import clock
from tests.network.servers import make_host


class Times:
    """The clocks of a machine; this one is read every second, as a coordinator does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.elapsed = 1_000_000.0, 50.0
        monkeypatch.setattr(time, "time", lambda: self.wall)
        monkeypatch.setattr(clock, "_elapsed", lambda: self.elapsed)
        self.clock = clock.Clock()

    def go_on(self, seconds: int) -> float:
        for _ in range(seconds):
            self.wall, self.elapsed = self.wall + 1.0, self.elapsed + 1.0
            self.clock.now()
        return self.clock.now()


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    return Times(monkeypatch)


def test_after_a_machine_was_suspended_it_is_today(times: Times) -> None:
    """Two days of sleep, in which the clock of Linux that is asked goes on; elsewhere it is seen as a step."""
    times.wall, times.elapsed = times.wall + 172_800.0, times.elapsed + 172_800.0
    assert times.clock.now() == times.wall


def test_a_step_of_an_instant_leaves_no_trace(times: Times, caplog: pytest.LogCaptureFixture) -> None:
    right = times.wall
    for _ in range(3):
        times.wall += 365 * 86_400.0
        assert times.go_on(10) == right + 10.0
        times.wall -= 365 * 86_400.0
        right = times.go_on(int(clock.LASTING_SECONDS))
        assert right == times.wall
    assert [record.message for record in caplog.records] == ["the system's clock was set"] * 3


def test_a_step_that_lasts_is_followed(times: Times, caplog: pytest.LogCaptureFixture) -> None:
    times.wall += 86_400.0
    assert times.go_on(int(clock.LASTING_SECONDS)) == times.wall - 86_400.0
    assert times.go_on(1) == times.wall
    assert caplog.records[-1].message == "the system's clock is followed"
    times.wall += 0.5
    assert times.clock.now() == times.wall, "and a small one at once"


def test_a_step_that_changes_has_to_last_anew(times: Times) -> None:
    right = times.wall
    for _ in range(6):
        times.wall += 86_400.0
        right += 100.0
        assert times.go_on(100) == right


def test_a_clock_that_is_put_back_is_not_followed(times: Times) -> None:
    right = times.wall
    times.wall -= 3600.0
    assert times.go_on(900) == right + 900.0
    times.wall += 3600.0
    assert times.clock.now() == times.wall


def test_clocks_of_this_machine() -> None:
    first = clock.now()
    assert abs(first - time.time()) < 3600.0
    assert clock.now() >= first


def test_whoever_is_cancelled_leaves_no_thread_behind_in_a_federation() -> None:
    """A federation does one thing at a time, also when the request that asked for one is given up."""

    async def run() -> None:
        host = make_host()
        await host.open()
        hosted, go_on, said = host.federations["shops"], threading.Event(), []

        def slow() -> None:
            go_on.wait(10.0)
            said.append("first")

        first = asyncio.create_task(hosted.do(slow))
        await asyncio.sleep(0.05)
        for _ in range(3):  # and again while it waits
            first.cancel()
            await asyncio.sleep(0.01)
            assert not first.done()
        second = asyncio.create_task(hosted.do(said.append, "second"))
        await asyncio.sleep(0.1)
        assert said == []
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await first
        await second
        assert said == ["first", "second"]
        await host.close()

    asyncio.run(run())
