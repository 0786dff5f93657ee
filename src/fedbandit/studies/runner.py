"""Runs trials, each one system on one environment with one seed: here, in parallel processes, or on Ray."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, TypeVar

from fedbandit.engine import Result, simulate
from fedbandit.engine.draws import Ahead
from fedbandit.engine.simulation import Simulation
from fedbandit.engine.thinning import thinned
from fedbandit.environments import Environment
from fedbandit.environments.block import world_of
from fedbandit.environments.synthetic import Synthetic
from fedbandit.errors import FedbanditError
from fedbandit.studies.extras import Estimates, Traces, watch
from fedbandit.studies.specs import Spec, build_environment, build_system, hyphenated
from fedbandit.system import System
from fedbandit.types import Array, Ints

CURVE_POINTS = 200
CHECKPOINTS = 10
"""A long run saves its state about this often; what it saves grows with its length."""

THREAD_LIMITS = ("FEDBANDIT_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

Item = TypeVar("Item")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Trial:
    """One run to be done. Systems and environments may be given as specs, which the worker builds.

    `extra` names what is measured beside totals and curves (`extras.EXTRAS`). A long run saves its state to
    `checkpoint` now and then, and goes on from there.
    """

    label: str
    system: System | Spec
    env: Environment | Spec
    horizon: int
    seed: int
    extra: str = ""
    checkpoint: str | None = None


class Curve(NamedTuple):
    """What had added up after some of the rounds."""

    round: Ints
    regret: Array
    reward: Array
    uploads: Ints
    downloads: Ints


@dataclass(frozen=True)
class Run:
    """A trial that was done: its report and a thinned curve, small enough to send between processes."""

    label: str
    report: dict[str, Any]
    curve: Curve
    extra: dict[str, Any] = field(default_factory=dict)
    traces: Traces = field(default_factory=dict)


def report_of(result: Result, seconds: float) -> dict[str, Any]:
    """The totals of a run under the names and in the order that scripts rely on."""
    report = {**result.summary(), "system": hyphenated(result.system), "seconds": round(seconds, 4)}
    report["guarantee"] = report.pop("guarantee")  # to the end
    return report


class Refusal(NamedTuple):
    """A trial that could not be run, and why."""

    reason: str


class Underway:
    """A trial that is being run, and the seconds it has taken; contexts for several are drawn on the clock of one."""

    def __init__(self, trial: Trial, env: Environment, blocks: Ahead) -> None:
        self.label, self.seconds = trial.label, 0.0
        system = build_system(trial.system) if isinstance(trial.system, Spec) else trial.system
        self.simulation = Simulation(system, env, trial.horizon, trial.seed, blocks=blocks)
        self.watcher = watch(self.simulation, trial.extra)
        if trial.checkpoint is not None and not isinstance(self.watcher, Estimates):  # which would lose what it saw
            self.simulation.keep(trial.checkpoint, max(100_000, trial.horizon // CHECKPOINTS))

    def advance(self) -> None:
        """Run the next block."""
        start = time.perf_counter()
        self.simulation.advance()
        self.watcher.look()
        self.seconds += time.perf_counter() - start

    def end(self) -> Run:
        """What is kept of the trial."""
        result = self.simulation.result()
        extra, traces = self.watcher.finish(result)
        return Run(self.label, report_of(result, self.seconds), curve_of(result), extra, traces)


def run_together(trials: Sequence[Trial]) -> list[Run | Refusal]:
    """Run trials of one environment, horizon and seed in this process. Contexts are drawn once for all of them.

    A trial that is refused does not end the others. Seconds do not include loading compiled code.
    """
    first = trials[0]
    try:
        env = build_environment(first.env) if isinstance(first.env, Spec) else first.env
        end = world_of(env, first.horizon, first.seed).horizon
        blocks = Ahead(env.open(first.seed), end)
    except FedbanditError as error:
        return [Refusal(str(error))] * len(trials)
    _load_compiled_code()
    ended: dict[int, Run | Refusal] = {}
    underway: dict[int, Underway] = {}
    for k, trial in enumerate(trials):
        try:
            underway[k] = Underway(trial, env, blocks)
        except FedbanditError as error:
            ended[k] = Refusal(str(error))
    while underway:
        k = min(underway, key=lambda k: underway[k].simulation.done)
        try:
            if underway[k].simulation.finished:
                ended[k] = underway[k].end()
            else:
                underway[k].advance()
        except FedbanditError as error:
            ended[k] = Refusal(str(error))
        if k in ended:
            del underway[k]
    return [ended[k] for k in range(len(trials))]


def run_trial(trial: Trial) -> Run:
    """Run one trial in this process."""
    (run,) = run_together([trial])
    return accepted(run)


def accepted(run: Run | Refusal) -> Run:
    """The run, or its refusal raised."""
    if isinstance(run, Refusal):
        raise FedbanditError(run.reason)
    return run


def curve_of(result: Result, most: int = CURVE_POINTS) -> Curve:
    """The curves of a result at no more than `most` rounds."""
    at, talk = thinned(result.horizon, most), result.communication
    return Curve(at + 1, result.regret[at], result.reward[at], talk.upload_curve[at], talk.download_curve[at])


def run_trials(
    trials: Sequence[Trial],
    *,
    processes: int | None = None,
    progress: Callable[[Run], object] | None = None,
) -> list[Run]:
    """Run all trials and return their runs in the same order; `progress` is told each one as it finishes.

    By default there are as many processes as processors; with one, trials run in this process.
    A script that calls this needs `if __name__ == "__main__":`, as the workers import it.
    """
    runs: dict[int, Run] = {}

    def keep(position: int, run: Run | Refusal) -> None:
        runs[position] = accepted(run)
        if progress is not None:
            progress(runs[position])

    in_bundles(trials, keep, processes, in_processes)
    return [runs[position] for position in range(len(trials))]


class Crew(Protocol):
    """Whoever calls `work` on every item and `done` with its position and answer: processes here, or Ray."""

    def __call__(
        self,
        work: Callable[[Sequence[Trial]], list[Run | Refusal]],
        items: Sequence[Sequence[Trial]],
        done: Callable[[int, list[Run | Refusal]], object],
        processes: int | None = None,
    ) -> None:
        """Do that."""
        ...


def in_bundles(
    trials: Sequence[Trial], done: Callable[[int, Run | Refusal], object], processes: int | None, crew: Crew
) -> None:
    """Have a crew run all trials; `done` is told the position and the run of each."""
    bundles = bundled(trials, processes or usable_processors())

    def unpack(which: int, runs: list[Run | Refusal]) -> None:
        for position, run in zip(bundles[which], runs, strict=True):
            done(position, run)

    crew(run_together, [[trials[position] for position in bundle] for bundle in bundles], unpack, processes)


def bundled(trials: Sequence[Trial], processes: int) -> list[list[int]]:
    """The positions of trials that are best run together, in no fewer bundles than there are processes.

    Fresh contexts cost more to draw than most systems cost to run, so those that want the same ones share them; a
    trial on contexts that need not be drawn is a bundle of its own.
    """
    fresh: dict[object, bool] = {}
    bundles: dict[object, list[int]] = {}
    for position, trial in enumerate(trials):
        world = trial.env if isinstance(trial.env, Spec) else id(trial.env)
        if world not in fresh:
            env = build_environment(trial.env) if isinstance(trial.env, Spec) else trial.env
            fresh[world] = isinstance(env, Synthetic) and env.pool is None
        shared = (world, trial.horizon, trial.seed) if fresh[world] else position
        bundles.setdefault(shared, []).append(position)
    found = list(bundles.values())
    while len(found) < processes and max(map(len, found), default=0) > 1:
        largest = max(found, key=len)
        half = len(largest) // 2
        found[found.index(largest)] = largest[:half]
        found.append(largest[half:])
    return found


def in_processes(
    work: Callable[[Item], Answer],
    items: Sequence[Item],
    done: Callable[[int, Answer], object],
    processes: int | None = None,
) -> None:
    """Call `work` on every item in worker processes, and `done` here with its position and answer as each is ready."""
    processes = min(processes or usable_processors(), len(items))
    if processes <= 1:
        for position, item in enumerate(items):
            done(position, work(item))
        return
    others = set(multiprocessing.active_children())
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn, initializer=_die_quietly_when_interrupted) as pool:
        try:
            with _one_thread_each():
                futures = {pool.submit(work, item): position for position, item in enumerate(items)}
            for future in as_completed(futures):
                done(futures[future], future.result())
        except BrokenProcessPool:
            raise FedbanditError(
                "A worker process ended abruptly, perhaps for lack of memory; try fewer processes at once."
            ) from None
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - others:
                child.terminate()
            raise


def usable_processors() -> int:
    """Processors that this process is allowed to use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@lru_cache(maxsize=1)
def _load_compiled_code() -> None:
    """Have the kernels compiled, or loaded from the cache, before the clock runs."""
    world = {"n_clients": "2", "dim": "2", "n_arms": "2"}
    env = build_environment(Spec("homogeneous", tuple(world.items())))
    for name in ("async_linucb", "sync_linucb"):  # one whose events are compiled, one whose are not
        simulate(build_system(Spec(name)), env, 20, 0)


def _die_quietly_when_interrupted() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the parent reports; compiled loops never look at Python's handler


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Child processes started here use one thread: the processes already occupy all processors.

    The libraries read these variables when they are loaded, which in a worker is before any of our code runs.
    """
    before = {name: os.environ.get(name) for name in THREAD_LIMITS}
    os.environ.update(dict.fromkeys(THREAD_LIMITS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
