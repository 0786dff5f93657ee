"""Whom to trust: regret against ε if nobody, only sums, or the coordinator is trusted, for two kinds of own data."""

from __future__ import annotations

import math
from functools import partial

from fedbandit import environments
from fedbandit.presets import feducb, linucb
from fedbandit.privacy.trust import Own, Trust
from fedbandit.studies import Below, Experiment, Point, Scale, Sweep, Trend

below = partial(Below, measure="per_client_regret", ours=True)
trend = partial(Trend, measure="per_client_regret", ours=True)

SERIES: dict[str, tuple[Trust, Own]] = {
    "nobody": ("nobody", "exact"),
    "sums": ("sums", "exact"),
    "coordinator": ("coordinator", "exact"),
    "nobody, joint": ("nobody", "released"),
    "sums, joint": ("sums", "released"),
    "coordinator, joint": ("coordinator", "released"),
}
"""What is trusted; "joint" where choices depend on releases alone."""


def _points(sizes: dict[int, int], budgets: tuple[float, ...]) -> list[Point]:
    points = []
    for M, horizon in sizes.items():
        env, facet = environments.feducb(n_clients=M, dim=10), f"M = {M:,}"
        points.append(Point("not private", partial(feducb, epsilon=math.inf), env, horizon, facet=facet))
        points.append(Point("learning alone", linucb, env, horizon, facet=facet))
        for epsilon in budgets:
            for series, (trust, own) in SERIES.items():
                system = partial(feducb, epsilon=epsilon, delta=1e-5, trust=trust, own=own)
                points.append(Point(series, system, env, horizon, value=epsilon, facet=facet))
    return points


def _panels(sizes: tuple[int, ...]) -> tuple[Sweep, ...]:
    return tuple(
        Sweep(y="per_client_regret", x="ε (δ = 10⁻⁵)", facet=f"M = {M:,}", title=f"M = {M:,}", log_x=True, log=True)
        for M in sizes
    )


EXPERIMENT = Experiment(
    title="whom to trust",
    reference="no paper: FedUCB's world (Dubey & Pentland 2020, §4.4), secure sums as in Bonawitz et al. 2017",
    remarks=(
        "Nobody: every client noises for itself. Sums: only sums over 85 % of the clients or more are opened, with "
        "the noise of one. Coordinator: it noises what it publishes. Joint: clients choose by what was released alone.",
        "The width is 0.6 where noise is shared, and by formula where it is not.",
    ),
    scales={
        "quick": Scale(_points({10: 1000, 50: 300}, (1.0, 8.0)), seeds=1),
        "paper": Scale(_points({10: 4000, 50: 2000, 200: 1000, 1000: 500}, (0.25, 1.0, 4.0)), seeds=3),
    },
    panels=_panels((10, 50, 200, 1000)),
    measures=("per_client_regret", "messages"),
    value_name="ε",
    claims=(
        below("sums", "nobody", facet="M = 50", text="Secure sums have less regret than noise of each client."),
        below("sums, joint", "nobody, joint", facet="M = 50", factor=1.5, text="The same for joint privacy, by half."),
        trend("sums", direction="falls", facet="M = 50", text="More budget, less regret."),
    ),
)
