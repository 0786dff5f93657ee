"""Memory that is used again must never be seen to have been used before."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable

import numpy as np
import pytest

import fedbandit as fb
from fedbandit import memory
from fedbandit.algebra import Array
from fedbandit.engine import rows
from fedbandit.engine.simulation import Simulation
from tests.test_exact import POLICIES

LARGE = (1000, 1000)  # 8 MB

needs_reuse = pytest.mark.skipif(not hasattr(mmap, "MADV_FREE"), reason="this system has no MADV_FREE")


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    memory._kept.clear()


def address(array: Array) -> int:
    return int(array.ctypes.data)


@needs_reuse
def test_memory_is_used_again_once_nobody_sees_it() -> None:
    array = memory.room_for(LARGE)
    first, part = address(array), array[10:20]
    del array
    assert address(memory.room_for(LARGE)) != first, "part is still in use"
    del part
    assert {address(memory.room_for(LARGE)) for _ in range(3)} >= {first}


@needs_reuse
def test_what_is_kept_is_bounded_and_of_the_right_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST_KEPT", 3 * 10**7)
    arrays = [memory.room_for(LARGE) for _ in range(5)]
    addresses = {address(array) for array in arrays}
    del arrays
    assert 0 < sum(map(len, memory._kept)) <= memory.MOST_KEPT
    assert address(memory.room_for((2000, 1000))) not in addresses, "too small"
    assert address(memory.room_for((600, 1000))) in addresses, "large enough"
    kept = len(memory._kept)
    memory.room_for((10**4, 1000))
    assert len(memory._kept) == kept, "80 MB are more than may be kept"


@needs_reuse
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_keeps_nothing() -> None:
    """It would copy page by page what it shares with its parent."""
    memory.room_for(LARGE)
    assert memory._kept
    child = os.fork()
    if child == 0:
        os._exit(len(memory._kept))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert memory._kept


def test_zeros_are_zeros() -> None:
    memory.room_for(LARGE)[:] = 1.0
    assert not memory.lazy_zeros(LARGE).any()


@pytest.mark.parametrize("policy", list(POLICIES))
@pytest.mark.parametrize("preset", [fb.async_linucb, fb.sync_linucb, fb.linucb, fb.feducb])
def test_nothing_is_read_before_it_is_written(
    preset: Callable[..., fb.System], policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows full of NaN instead of zeros: the same result, and the same state byte for byte."""
    env = fb.environments.homogeneous(n_clients=30, dim=6, n_arms=4, delay=(0, 5))
    outcomes = []
    for filling in (0.0, np.nan):

        def filled(shape: tuple[int, int], filling: float = filling) -> Array:
            return np.full(shape, filling)

        monkeypatch.setattr(rows, "room_for", filled)
        monkeypatch.setattr(memory, "room_for", filled)
        simulation = Simulation(preset(policy=POLICIES[policy][0]), env, 1500, 0)
        while not simulation.finished:
            simulation.advance()
        outcomes.append((simulation.result(), simulation.learner.state()))
    (plain, state), (again, state_again) = outcomes
    assert np.array_equal(plain.arms, again.arms)
    assert np.array_equal(plain.regret, again.regret)
    for name, array in state.arrays.items():
        assert np.array_equal(array, state_again.arrays[name], equal_nan=True), name
