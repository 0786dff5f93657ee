"""What the paper's figures have in common: systems over thresholds, γ = 1 + threshold or D = threshold."""

from __future__ import annotations

from collections.abc import Sequence

from fedbandit.studies.declaration import Point

TWELVE = tuple(float(f"{10 ** (-2 + 5 * step / 11):.3g}") for step in range(12))
"""The paper's: logarithmic between 10⁻² and 10³."""

SIX = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)


def front(
    series: str, system: str, thresholds: Sequence[float], env: str, horizon: int | None, common: str = ""
) -> list[Point]:
    """A system at several thresholds, labelled with them as in the paper."""
    points = []
    for threshold in thresholds:
        if system.startswith("sync"):
            keywords = f"threshold={threshold:g}"
        else:
            keywords = f"gamma_upload={1 + threshold:.10g},gamma_download={1 + threshold:.10g}"
        points.append(Point(series, f"{system}:{keywords}{common}", env, horizon, value=threshold))
    return points


def homogeneous_fronts(thresholds: Sequence[float], env: str, horizon: int) -> list[Point]:
    """Fig. 2: Async-LinUCB as published and with clients that download when they join, Sync-LinUCB, and the ends."""
    return [
        *front("Async-LinUCB", "async-linucb", thresholds, env, horizon),
        *front("Async-LinUCB, warm join", "async-linucb", thresholds, env, horizon, ",warm_join=true"),
        *front("Sync-LinUCB", "sync-linucb", thresholds, env, horizon),
        Point("learning alone", "linucb", env, horizon),
    ]


def liked_fronts(thresholds: Sequence[float], env: str, horizon: int | None = None) -> list[Point]:
    """Fig. 4: the same on data sets, α = 0.3 and λ = 0.2, with AM, random arms and the two ends γ = 1 and ∞."""
    width = ",alpha=0.3,ridge=0.2"
    return [
        *front("Async-LinUCB", "async-linucb", thresholds, env, horizon, width),
        *front("Async-LinUCB-AM", "async-linucb-am", thresholds, env, horizon, width),
        *front("Sync-LinUCB", "sync-linucb", thresholds, env, horizon, width),
        Point("learning alone (γ = ∞)", "linucb:alpha=0.3,ridge=0.2", env, horizon),
        Point("one model (γ = 1)", "linucb-central:alpha=0.3,ridge=0.2", env, horizon),
        Point("random arms", "uniform", env, horizon),
    ]
