"""Worlds that change: models that remember everything, that fade, and with windows that slide or end at a change."""

from __future__ import annotations

from functools import partial
from typing import Any

from fedbandit.environments import clustered, homogeneous
from fedbandit.presets import async_linucb, linucb
from fedbandit.studies import Below, Curves, Experiment, Point, Scale

EVER, FADES, SLIDES, ADAPTS = "for ever", "discount for 3 changes", "the last 500 rounds", "adaptive window"
KINDS: dict[str, dict[str, Any]] = {
    EVER: {},
    FADES: {"discount": "changes:3"},
    SLIDES: {"window": 500},
    ADAPTS: {"window": "adaptive"},
}
WORLDS: dict[str, Any] = {
    "one θ, shared": (async_linucb, homogeneous),
    "one θ, alone": (linucb, homogeneous),
    "clusters, alone": (linucb, partial(clustered, n_clusters=2)),
}
CHANGES, NONE = "three changes", "no change"


def _points(n_clients: int, horizon: int) -> list[Point]:
    points = []
    for world, (system, make) in WORLDS.items():
        for facet, drift in ((CHANGES, tuple(k * horizon // 4 for k in (1, 2, 3))), (NONE, ())):
            env = make(n_clients=n_clients, dim=8, n_arms=10, noise=0.1, drift=drift)
            points += [
                Point(series, partial(system, **keywords), env, horizon, facet=f"{world}, {facet}")
                for series, keywords in KINDS.items()
            ]
    return points


def _claims(series: str, world: str, otherwise: str = "") -> tuple[Below, Below]:
    half = f"{world}, {series}: at most half of the dynamic regret of remembering for ever after three changes."
    tenth = f"{world}, {series}: at most 1.1 times that regret without any."
    return (
        Below(series, EVER, factor=2.0, facet=f"{world}, {CHANGES}", text=half, ours=True),
        Below(series, EVER, factor=1 / 1.1, facet=f"{world}, {NONE}", text=tenth, otherwise=otherwise, ours=True),
    )


LIMIT = "Whoever remembers some hundred rounds knows θ as well as these tell, whether it changes or not."

EXPERIMENT = Experiment(
    title="models that forget, in worlds that change",
    reference="no paper: D-LinUCB (Russac et al. 2019), SW-UCB (Cheung et al. 2019), ADWIN (Bifet & Gavaldà 2007)",
    remarks=("The level of the adaptive window's test was chosen on seeds 11 to 13.",),
    scales={"quick": Scale(_points(5, 6000), seeds=3), "paper": Scale(_points(20, 60_000), seeds=10)},
    panels=tuple(
        Curves(facet=f"{world}, {facet}", title=f"{world}, {facet}") for world in WORLDS for facet in (CHANGES, NONE)
    ),
    measures=("regret", "messages", "scalars"),
    claims=(
        *(claim for world in WORLDS for claim in _claims(ADAPTS, world)),
        *(claim for series in (FADES, SLIDES) for claim in _claims(series, "one θ, shared", LIMIT)),
    ),
)
