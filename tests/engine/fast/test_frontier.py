"""Memory that is handed out ahead: only what is likely to be used, and nothing that is there changes."""

from __future__ import annotations

import resource
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit.engine.fast import frontier, memory
from fedbandit.engine.fast.frontier import MOST_AHEAD, Frontier

ROW = 1 << 13  # bytes

pytestmark = pytest.mark.skipif(frontier._madvise() is None, reason="memory can be asked for since Linux 5.14")


class Asked(ThreadPoolExecutor):
    """What the second thread was asked to hand out."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, int]] = []

    def submit(self, *args: object) -> None:  # type: ignore[override]
        """Write it down."""
        *_, start, stop = args
        assert isinstance(start, int)
        assert isinstance(stop, int)
        self.parts.append((start, stop))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", 2)
    recorder = Asked()
    monkeypatch.setattr(frontier, "_helper", lambda: recorder)
    return recorder


def wait() -> None:
    frontier._helper().submit(int).result()


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=30).map(np.cumsum))
def test_at_most_as_much_again_is_asked_for_and_nothing_twice(steps: np.ndarray) -> None:
    """Whatever the steps in which an array is used."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numba.config, "NUMBA_NUM_THREADS", 2)
        recorder = Asked()
        patch.setattr(frontier, "_helper", lambda: recorder)
        array = np.empty((50_000, ROW // 8))  # 400 MB of addresses, never written to
        reached, end = Frontier(), 0
        for used in np.minimum(steps, len(array)).tolist():
            before = len(recorder.parts)
            reached.reach(array, used)
            assert len(recorder.parts) <= before + 1
            for start, stop in recorder.parts[before:]:
                assert max(end, used * ROW) <= start < stop
                assert stop <= min(2 * used * ROW, used * ROW + MOST_AHEAD, array.nbytes)
                end = stop
            if 4 << 20 <= used * ROW < array.nbytes:
                assert end >= min(used * ROW + min(used * ROW, MOST_AHEAD) // 2, array.nbytes)


def test_an_array_that_has_moved_is_begun_anew(asked: Asked) -> None:
    reached = Frontier()
    first, second = np.empty((10_000, ROW // 8)), np.empty((20_000, ROW // 8))
    reached.reach(first, 1000)
    reached.reach(first, 1000)
    reached.reach(second, 1000)
    assert asked.parts == [(1000 * ROW, 2000 * ROW)] * 2


def test_little_memory_and_a_single_thread_are_left_alone(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.empty((10_000, ROW // 8))
    Frontier().reach(array, 500)  # less than 4 MB
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", 1)
    Frontier().reach(array, 5000)
    assert asked.parts == []


def test_what_was_handed_out_is_there_and_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Written to without waiting for the system; what was written before is still there."""
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", 2)
    monkeypatch.setattr(memory, "_kept", [])
    array = memory.room_for((8192, ROW // 8))  # 64 MB
    array[:4000] = 7.0
    array[4100] = 8.0
    Frontier().reach(array, 4000)
    wait()
    assert (array[:4000] == 7.0).all()
    assert (array[4100] == 8.0).all()
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    array[4200:7900, ::512] = 1.0
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before < 10  # 14 large pages, or 7,400 small ones


def test_an_array_may_go_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", 2)
    array = memory.room_for((8192, ROW // 8))
    gone, go_on = weakref.ref(array), threading.Event()
    frontier._helper().submit(go_on.wait, 60)
    Frontier().reach(array, 1000)
    del array
    assert gone() is None
    go_on.set()
    wait()


def test_without_a_thread_a_simulation_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", 2)
    ended = ThreadPoolExecutor(1)
    ended.shutdown()
    monkeypatch.setattr(frontier, "_helper", lambda: ended)
    Frontier().reach(np.empty((10_000, ROW // 8)), 1000)
