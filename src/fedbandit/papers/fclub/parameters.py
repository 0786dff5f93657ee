"""FCLUB, App. E.2: what the number of users, clusters, dimensions and servers does."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from fedbandit import environments
from fedbandit.papers.fclub import ALONE, PRIVATE
from fedbandit.presets import cdp_fclub_dc, fclub_dc
from fedbandit.studies import Below, Experiment, Point, Scale, Sweep, Trend

MIXED = "FCLUB-DC, mixed clusters"
SWEEPS = {
    "users": ("n_clients", (20, 40, 60, 80)),
    "clusters": ("n_clusters", (2, 5, 8, 10)),
    "dimension": ("dim", (5, 10, 15, 20)),
    "servers": ("n_servers", (2, 4, 5, 8)),
}
BUDGETS = (0.1, 1.0, 10.0, 100.0)
THRESHOLDS = (1.01, 1.1, 1.5, 2.0)


def _points(horizon: int, step: int = 1) -> list[Point]:
    points = []
    for facet, (keyword, values) in SWEEPS.items():
        for value in values[::step]:
            given: dict[str, Any] = {keyword: value}
            blocks, mixed = (environments.fclub(placement=placement, **given) for placement in ("blocks", "mixed"))
            for series, system, env in (
                ("LinUCB", ALONE, blocks),
                ("FCLUB-DC", fclub_dc, blocks),
                (MIXED, fclub_dc, mixed),
            ):
                points.append(Point(series, system, env, horizon, value=value, facet=facet))
    env = environments.fclub(placement="blocks")
    for threshold in THRESHOLDS[::step]:
        system = partial(fclub_dc, upload=threshold, download=threshold)
        points.append(Point("FCLUB-DC", system, env, horizon, value=threshold, facet="U = D"))
    for epsilon in BUDGETS:
        system = partial(cdp_fclub_dc, epsilon=epsilon, delta=0.1)
        points.append(Point(PRIVATE, system, env, horizon, value=epsilon, facet="ε"))
    return points


def _panels(names: Sequence[str]) -> tuple[Sweep, ...]:
    return tuple(Sweep(x=name, facet=name, log_x=name == "ε") for name in names)


EXPERIMENT = Experiment(
    title="users, clusters, dimensions, servers, thresholds and budgets",
    reference="Liu et al. 2022, App. E.2 (not at hand); sweeps of the authors' code: users 20–80, clusters 2–10, "
    "d 5–20, servers 2–8, ε 0.1–10 (here to 100)",
    reports="A parameter study. Regret grows with users, clusters and dimensions (the bound is d√(mT) log T), and "
    "falls as ε grows.",
    remarks=(
        "The authors use both: clusters of users that follow each other, so that with five servers each has one "
        "cluster, and clusters that are mixed on every server.",
    ),
    scales={"quick": Scale(_points(20_000, 3), seeds=4), "paper": Scale(_points(100_000), seeds=10)},
    panels=(*_panels((*SWEEPS, "U = D", "ε")), Sweep(y="messages", x="U = D", facet="U = D", title="communication")),
    claims=(
        Trend(
            "FCLUB-DC",
            facet="clusters",
            text="Regret of FCLUB-DC rises with the number of clusters.",
            otherwise="But for five clusters on five servers: then no server has users that it has to tell apart.",
        ),
        Trend("FCLUB-DC", facet="dimension", text="Regret of FCLUB-DC rises with the dimension."),
        Trend(
            "FCLUB-DC", facet="U = D", measure="messages", direction="falls", text="Larger thresholds save messages."
        ),
        Trend(PRIVATE, facet="ε", direction="falls", text="Regret of CDP-FCLUB-DC falls as ε grows."),
        Below("FCLUB-DC", "LinUCB", facet="users", text="FCLUB-DC is below LinUCB for any number of users."),
        Below(
            MIXED,
            "LinUCB",
            facet="users",
            text="Also where clusters are mixed on every server.",
            otherwise="Until users are told apart sharing hurts, and our default constants do not find all clusters in "
            "this world even at T = 100,000 (docs/clusters-fclub.md).",
        ),
        Below(
            "FCLUB-DC",
            "LinUCB",
            facet="servers",
            text="FCLUB-DC is below LinUCB for any number of servers.",
            otherwise="With two servers each has users of several clusters, and at this horizon they are only being "
            "told apart; with one cluster a server it is far below.",
        ),
    ),
)
