"""Many trials at once: in processes of this machine or on a Ray cluster. The runs are the same, bit for bit."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fedbandit.environments.synthetic import Synthetic
from fedbandit.errors import FedbanditError, needs, require
from fedbandit.studies.trials import Refusal, Run, Trial, accepted, run_together
from fedbandit.user_code import loaded_files, module_at

THREAD_LIMITS = ("FEDBANDIT_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class Parcel(NamedTuple):
    """Trials on their way to another process: pickled, with the users' files that define what is in them."""

    files: tuple[Path, ...]
    trials: bytes


@dataclass(frozen=True)
class Workers:
    """Where trials are run: in so many processes (by default one for each processor), or on a Ray cluster.

    With one process, trials run in the calling one.
    address: of the cluster; by default one is started here and ended after the work.
    """

    kind: Literal["processes", "ray"] = "processes"
    jobs: int | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        """Refuse no processes, and Ray where it is missing."""
        require(self.jobs is None or self.jobs >= 1, "--jobs", self.jobs, "at least 1")
        if self.kind == "ray":
            needs("ray", "ray", "--workers ray")

    def run(self, trials: Sequence[Trial], done: Callable[[int, Run | Refusal], object]) -> None:
        """Run all trials; `done` is told the position and the run of each when its bundle is ready."""
        places = bundled(trials, self.jobs or processors())
        bundles = [[trials[place] for place in bundle] for bundle in places]

        def unpack(which: int, runs: list[Run | Refusal]) -> None:
            for place, run in zip(places[which], runs, strict=True):
                done(place, run)

        jobs = min(self.jobs or processors(), len(bundles))
        if self.kind == "ray" and bundles:
            _on_ray([pack(bundle) for bundle in bundles], unpack, self.jobs, self.address)
        elif jobs > 1:
            _in_processes([pack(bundle) for bundle in bundles], unpack, jobs)
        else:
            for which, bundle in enumerate(bundles):
                unpack(which, run_together(bundle))


def run_trials(
    trials: Sequence[Trial], workers: Workers | None = None, progress: Callable[[Run], object] | None = None
) -> list[Run]:
    """Run all trials and return their runs in the same order; `progress` is told each one as it finishes.

    A script that calls this needs `if __name__ == "__main__":`, as the workers import it.
    """
    runs: dict[int, Run] = {}

    def keep(place: int, run: Run | Refusal) -> None:
        runs[place] = accepted(run)
        if progress is not None:
            progress(runs[place])

    (workers or Workers()).run(trials, keep)
    return [runs[place] for place in range(len(trials))]


def bundled(trials: Sequence[Trial], processes: int) -> list[list[int]]:
    """The positions of trials that are best run together, in no fewer bundles than there are processes.

    Fresh contexts cost more to draw than most systems cost to run, so trials on the same ones share them; a trial on
    contexts that need not be drawn is a bundle of its own.
    """
    bundles: dict[object, list[int]] = {}
    for place, trial in enumerate(trials):
        env = trial.point.make_environment()
        fresh = isinstance(env, Synthetic) and env.pool is None
        key = (_identity(trial.point.env), trial.horizon, trial.seed) if fresh else place
        bundles.setdefault(key, []).append(place)
    found = list(bundles.values())
    while len(found) < processes and max(map(len, found), default=0) > 1:
        largest = max(found, key=len)
        half = len(largest) // 2
        found[found.index(largest)] = largest[:half]
        found.append(largest[half:])
    return found


def _identity(env: object) -> object:
    """Equal for equal environments and equal calls that make one; one that holds arrays equals itself only.

    Of what a trial has, which lives as long as the trial: a made environment may be gone, and its id another's.
    """
    same = (env.func, env.args, tuple(sorted(env.keywords.items()))) if isinstance(env, partial) else env
    try:
        hash(same)
    except TypeError:
        return id(env)
    return same


def processors() -> int:
    """Processors that this process is allowed to use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def pack(trials: Sequence[Trial]) -> Parcel:
    """Pickle trials; one that holds a function or class without an importable name is refused."""
    try:
        return Parcel(loaded_files(), pickle.dumps(list(trials)))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise FedbanditError(
            f"{trials[0].point.label.text} cannot be sent to another process ({error}): use functions and classes that "
            "have a name at the top of a file, or one process (--jobs 1)."
        ) from None


def run_parcel(parcel: Parcel) -> list[Run | Refusal]:
    """Run the trials of a parcel in the process that received it."""
    for path in parcel.files:
        module_at(path)
    return run_together(pickle.loads(parcel.trials))


Done = Callable[[int, list[Run | Refusal]], object]


def _in_processes(parcels: Sequence[Parcel], done: Done, processes: int) -> None:
    """Run parcels in worker processes; `done` is called here, with the position and the runs of each."""
    others = set(multiprocessing.active_children())
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn, initializer=_die_quietly_when_interrupted) as pool:
        try:
            with _one_thread_each():
                futures = {pool.submit(run_parcel, parcel): which for which, parcel in enumerate(parcels)}
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


def _on_ray(parcels: Sequence[Parcel], done: Done, processes: int | None, address: str | None) -> None:
    """Run parcels on the cluster at `address`, or on one that is started here and ended after.

    Workers have one thread each for linear algebra, as local processes do: sums must not depend on who computes them.
    """
    ray = needs("ray", "ray", "--workers ray")
    started = not ray.is_initialized()
    if started:
        _connect(ray, address, processes)
    try:
        remote = ray.remote(run_parcel)
        waiting = {remote.remote(parcel): which for which, parcel in enumerate(parcels)}
        while waiting:
            ready, _ = ray.wait(list(waiting), num_returns=1)
            for answer in ready:
                try:
                    runs = ray.get(answer)
                except ray.exceptions.RayTaskError as error:
                    raise error.as_instanceof_cause() from None
                done(waiting.pop(answer), runs)
    finally:
        if started:
            ray.shutdown()


def _connect(ray: Any, address: str | None, processes: int | None) -> None:
    options: dict[str, Any] = {
        "runtime_env": {"env_vars": dict.fromkeys(THREAD_LIMITS, "1")},
        "log_to_driver": False,
        "logging_level": "error",
    }
    if address is None:
        options |= {"num_cpus": processes or processors(), "include_dashboard": False}
    try:
        ray.init(address, **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise FedbanditError(f"There is no Ray cluster at {address!r}: {error}.") from None
