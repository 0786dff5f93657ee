"""Trials on a Ray cluster, for sweeps that one machine is too small for. The same runs, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fedbandit.errors import FedbanditError, needs
from fedbandit.studies.runner import THREAD_LIMITS, Answer, Item, usable_processors


def require_ray() -> Any:
    """Ray, or a sentence about how to get it."""
    return needs("ray", "ray", "--engine ray")


def on_ray(
    work: Callable[[Item], Answer],
    items: Sequence[Item],
    done: Callable[[int, Answer], object],
    processes: int | None = None,
    *,
    address: str | None = None,
) -> None:
    """Call `work` on every item on the cluster at `address`, or on one that is started here for it and ended after.

    Workers have one thread each for linear algebra, as local processes do: sums must not depend on who computes them.
    """
    ray = require_ray()
    started = not ray.is_initialized()
    if started:
        _connect(ray, address, processes)
    try:
        remote = ray.remote(work)
        waiting = {remote.remote(item): position for position, item in enumerate(items)}
        while waiting:
            ready, _ = ray.wait(list(waiting), num_returns=1)
            for answer in ready:
                try:
                    result = ray.get(answer)
                except ray.exceptions.RayTaskError as error:
                    raise error.as_instanceof_cause() from None
                done(waiting.pop(answer), result)
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
        options |= {"num_cpus": processes or usable_processors(), "include_dashboard": False}
    try:
        ray.init(address, **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise FedbanditError(f"There is no Ray cluster at {address!r}: {error}.") from None
