"""A clock that never goes back, and threads that are waited for."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from fedbandit.network.coordinator import clock
from tests.network.servers import make_host


def test_after_a_machine_was_suspended_it_is_today_and_a_clock_that_is_put_back_is_not_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wall, monotonic = 1_000_000.0, 50.0
    monkeypatch.setattr(clock, "_offset", wall - monotonic)
    monkeypatch.setattr(time, "time", lambda: wall)
    monkeypatch.setattr(time, "monotonic", lambda: monotonic)
    assert clock.now() == wall
    wall += 2 * 86_400.0  # two days of sleep, in which the monotonic clock stands still
    assert clock.now() == wall
    latest, wall, monotonic = wall, wall - 3600.0, monotonic + 5.0
    assert clock.now() == latest + 5.0


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
        first.cancel()
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
