"""Li & Wang, Asynchronous Upper Confidence Bound Algorithms for Federated Linear Bandits, 2022.

The figures have systems over thresholds in common: γ = 1 + threshold or D = threshold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fedbandit.bounds import async_communication
from fedbandit.environments import Environment
from fedbandit.presets import Common, async_linucb, async_linucb_am, linucb, linucb_central, sync_linucb, uniform
from fedbandit.studies import MakesEnvironment, Overlay, Point, Sweep
from fedbandit.system import System
from fedbandit.types import Array

TWELVE = tuple(float(f"{10 ** (-2 + 5 * step / 11):.3g}") for step in range(12))
"""The paper's: logarithmic between 10⁻² and 10³."""

FOUR = (1.0, 10.0, 100.0, 1000.0)
REMARKS = (
    "σ is not printed: 0.1 here, as in the authors' code; λ = δ = 0.1, and the width of log det V instead of theirs.",
    "In both algorithms clients start with nothing and wait for a download (Alg. 2 and 4, lines 5–6); with a thousand "
    "clients the blind first pulls cost a regret of some hundred whatever the threshold. With warm join (ours) a "
    "client downloads when it joins.",
    "A synchronisation is 2N messages, as in Alg. 4; the authors' code counts those of clients seen so far.",
)
WIDTH: Common = {"alpha": 0.3, "ridge": 0.2}
"""On data sets (App. H)."""


def front(
    series: str,
    preset: Callable[..., System],
    thresholds: Sequence[float],
    env: Environment | MakesEnvironment,
    horizon: int | None,
    extra: str = "",
    **common: Any,
) -> list[Point]:
    """A system at several thresholds, labelled with them as in the paper."""
    points = []
    for threshold in thresholds:
        if preset is sync_linucb:
            system = partial(preset, threshold=threshold, **common)
        else:
            system = partial(preset, gamma_upload=1 + threshold, gamma_download=1 + threshold, **common)
        points.append(Point(series, system, env, horizon, value=threshold, extra=extra))
    return points


def homogeneous_fronts(thresholds: Sequence[float], env: Environment, horizon: int) -> list[Point]:
    """Fig. 2: both algorithms as published and with clients that download when they join, and learning alone."""
    fronts = [
        point
        for name, preset in (("Async-LinUCB", async_linucb), ("Sync-LinUCB", sync_linucb))
        for series, warm in ((name, False), (f"{name}, warm join", True))
        for point in front(series, preset, thresholds, env, horizon, extra="seen", warm_join=warm)
    ]
    return [*fronts, Point("learning alone", linucb, env, horizon)]


def _messages(thresholds: Array) -> Array:
    """d N log T/log γ at γ = 1 + threshold, with Fig. 2's numbers (Theorem 3.2)."""
    return np.array([async_communication(30_000, 1000, 25, 1 + one, 1 + one) for one in thresholds])


MESSAGES = Sweep(
    y="messages",
    x="threshold (γ − 1, or D)",
    log_x=True,
    log=True,
    without=("learning alone",),
    bounds=(Overlay("Async-LinUCB", "Theorem 3.2, for Async-LinUCB", _messages),),
)
"""Communication over thresholds beside what the theorem says."""


def liked_fronts(thresholds: Sequence[float], env: MakesEnvironment) -> list[Point]:
    """Fig. 4: the same on data sets, with AM, random arms and the two ends γ = 1 and ∞."""
    return [
        *front("Async-LinUCB", async_linucb, thresholds, env, None, **WIDTH),
        *front("Async-LinUCB-AM", async_linucb_am, thresholds, env, None, **WIDTH),
        *front("Sync-LinUCB", sync_linucb, thresholds, env, None, **WIDTH),
        Point("learning alone (γ = ∞)", partial(linucb, **WIDTH), env),
        Point("one model (γ = 1)", partial(linucb_central, **WIDTH), env),
        Point("random arms", uniform, env),
    ]
