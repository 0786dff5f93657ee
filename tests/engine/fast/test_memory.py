"""Memory that is used again must never be seen to have been used before."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.engine.checkpoint import read_checkpoint, write_checkpoint
from fedbandit.engine.fast import cohorts, memory, rows
from fedbandit.engine.fast.hub import catch_up
from fedbandit.engine.fast.packed import unpacked
from fedbandit.engine.fast.row import inverse_of
from fedbandit.engine.fast.row_model import pending_sums, shared_sums
from fedbandit.engine.fast.statistics import REFRESH_EVERY, scratch_matrix
from fedbandit.engine.simulation import Simulation
from fedbandit.types import Array
from tests.engine.test_exact import POLICIES

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
    kept = len(memory._kept)
    larger = memory.room_for((2000, 1000))
    assert len(memory._kept) == kept, "all are too small"
    smaller = memory.room_for((600, 1000))
    assert len(memory._kept) == kept - 1, "one is large enough"
    assert address(smaller) in addresses
    memory.room_for((10**4, 1000))
    assert len(memory._kept) == kept - 1, "80 MB are more than may be kept"
    del larger
    assert sum(map(len, memory._kept)) <= memory.MOST_KEPT


@needs_reuse
def test_what_fits_best_is_used_first() -> None:
    """Or who needs the larger one next would have to wait for new pages."""
    smaller, larger = memory.room_for((700, 1000)), memory.room_for(LARGE)
    first = address(smaller)
    del smaller, larger
    assert address(memory.room_for((600, 1000))) == first


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


@needs_reuse
def test_threads_never_share_what_is_used_again() -> None:
    """Each fills an array with a number of its own, and finds nothing else in it."""

    def use(number: int) -> bool:
        size = 600 + 100 * (number % 7)
        array = memory.room_for((size, 1000))
        array[:, ::512] = number
        return bool((array[:, ::512] == number).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(use, range(400)))


def test_memory_that_there_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **keywords: object) -> None:  # noqa: ARG001
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(MemoryError, match="the system has no 80 GB for one array"):
        memory.lazy_zeros((10**10, 1))


def test_zeros_are_zeros() -> None:
    memory.room_for(LARGE)[:] = 1.0
    assert not memory.lazy_zeros(LARGE).any()


@pytest.mark.parametrize("n", [3, 10**6])
def test_minus_ones_are_minus_one(n: int) -> None:
    numbers = memory.minus_ones(n)
    assert numbers.shape == (n,)
    assert numbers.dtype == np.int64
    assert (numbers == -1).all()


def finished(
    system: fb.System, env: fb.environments.Homogeneous, horizon: int, checkpoint: Path | None = None
) -> Simulation:
    """Run to the end; with a checkpoint, through it in the middle."""
    simulation = Simulation(system, env, horizon, 0, engine="fast")
    while not simulation.finished:
        simulation.advance()
        if checkpoint is not None and not checkpoint.exists():
            write_checkpoint(checkpoint, simulation, "")
            simulation = Simulation(system, env, horizon, 0, engine="fast")
            read_checkpoint(checkpoint, simulation, "")
    return simulation


def check_nothing_is_read_before_it_is_written(run: Callable[[], Simulation], patch: pytest.MonkeyPatch) -> None:
    """Memory full of NaN instead of zeros, at the start of a line of the cache or not: the same result and state."""
    outcomes = []
    for filling, offset in ((0.0, 0), (np.nan, 0), (np.nan, 1)):

        def filled(shape: tuple[int, int], filling: float = filling, offset: int = offset) -> Array:
            around = np.full(shape[0] * shape[1] + 16, filling)
            first = -(around.ctypes.data // 8) % 8 + offset
            return np.asarray(around[first : first + shape[0] * shape[1]].reshape(shape))

        for module in (rows, memory, cohorts):
            patch.setattr(module, "room_for", filled)
        simulation = run()
        outcomes.append((simulation.result(), simulation.learner.state().arrays))
    (plain, state), *others = outcomes
    for again, state_again in others:
        assert np.array_equal(plain.arms, again.arms)
        assert np.array_equal(plain.regret, again.regret)
        for name, array in state.items():
            assert np.array_equal(array, state_again[name]), name


@pytest.mark.parametrize(
    ("preset", "policy"),
    [(preset, policy) for preset in (fb.async_linucb, fb.sync_linucb, fb.linucb) for policy in POLICIES]
    + [(fb.feducb, policy) for policy in ("ucb", "ucb-fixed", "greedy", "uniform")],  # samples under noise are plain
)
def test_rows_are_written_before_they_are_read(
    preset: Callable[..., fb.System], policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = fb.environments.homogeneous(n_clients=30, dim=6, n_arms=4, delay=(0, 5))
    system = preset(policy=POLICIES[policy][0])
    check_nothing_is_read_before_it_is_written(lambda: finished(system, env, 1500), monkeypatch)


@pytest.mark.parametrize("preset", [fb.async_linucb, fb.linucb, fb.count_linucb, fb.feducb])
def test_rows_that_grow_or_are_restored_are_written_before_they_are_read(
    preset: Callable[..., fb.System], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Members of `feducb` have their rows from the start, however many they are."""
    monkeypatch.setattr(rows, "LARGEST_AT_ONCE", 0)
    env = fb.environments.homogeneous(n_clients=5000, dim=3, n_arms=2, delay=(0, 5))
    names = iter(("zeros", "NaN", "elsewhere"))

    def run() -> Simulation:
        return finished(preset(), env, 20_000, tmp_path / next(names))

    check_nothing_is_read_before_it_is_written(run, monkeypatch)


@pytest.mark.parametrize("policy", list(POLICIES))
def test_a_base_is_there_when_it_is_needed(policy: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For a refresh long after the last download, for an upload, and after a pause."""
    env = fb.environments.homogeneous(n_clients=3, dim=4, n_arms=4)
    system = fb.async_linucb(gamma_upload=3.0, gamma_download=3.0, policy=POLICIES[policy][0])
    numbers = iter(range(10))
    check_nothing_is_read_before_it_is_written(lambda: finished(system, env, 40_000), monkeypatch)
    check_nothing_is_read_before_it_is_written(
        lambda: finished(system, env, 40_000, tmp_path / f"{next(numbers)}.ckpt"), monkeypatch
    )
    simulation = finished(system, env, 40_000)
    learner = simulation.learner
    assert isinstance(learner, rows.RowsLearner)
    communication = simulation.result().communication
    assert communication.uploads < 40_000 / REFRESH_EVERY / 2, (
        "rows are refreshed more often than they are sent anything"
    )
    apart = Simulation(system, env, 40_000, 0, engine="plain")
    while not apart.finished:
        apart.advance()
    assert np.array_equal(simulation.result().arms, apart.result().arms)
    learner.settle()
    for slot, r in enumerate(learner.slots.row_at):
        row = learner.rows[slot]
        catch_up(learner.hub, int(r), row, 4, 0.1, scratch_matrix(4))
        V = shared_sums(row, 4).V + pending_sums(row, 4).V
        np.testing.assert_allclose(unpacked(inverse_of(row, 4), 4) @ (V + 0.1 * np.eye(4)), np.eye(4), atol=1e-8)
