"""Async-LinUCB, Fig. 3: heterogeneous clients, the more they share the more they gain."""

from functools import partial

from fedbandit.environments import global_local
from fedbandit.presets import async_linucb_am
from fedbandit.studies import Experiment, Point, Scale, Sweep, Trend

SHARED = (4, 8, 12, 16, 20, 24)


def _points(n_clients: int, horizon: int) -> list[Point]:
    points = []
    for shared in SHARED:
        env = global_local(n_clients=n_clients, dim=25, n_arms=25, d_global=shared)
        system = partial(async_linucb_am, gamma_upload=5.0, gamma_download=5.0, d_global=shared)
        points.append(Point("Async-LinUCB-AM", system, env, horizon, value=shared))
    return points


EXPERIMENT = Experiment(
    title="heterogeneous clients that share a part of their taste",
    reference="Li & Wang 2022, Fig. 3, §4: N = 1000, T = 30,000, d_g + d_l = 25, γ = 5, 10 runs",
    reports="As the share of global components d_g/(d_g + d_l) grows, regret keeps decreasing while communication "
    "keeps increasing.",
    scales={"quick": Scale(_points(1000, 30_000), seeds=2), "paper": Scale(_points(1000, 30_000), seeds=10)},
    panels=(Sweep(x="global dimensions d_g of 25"), Sweep(y="messages", x="global dimensions d_g of 25")),
    value_name="d_g",
    claims=(
        Trend("Async-LinUCB-AM", direction="falls", text="Regret falls as more is shared."),
        Trend("Async-LinUCB-AM", measure="messages", direction="rises", text="Communication rises as more is shared."),
    ),
)
