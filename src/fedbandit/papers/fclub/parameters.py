"""FCLUB, App. E.2: what the number of users, clusters, dimensions and servers does."""

from collections.abc import Sequence
from functools import partial

from fedbandit.environments import fclub
from fedbandit.papers.fclub import ALONE, MERGING, PRIVATE
from fedbandit.presets import cdp_fclub_dc, fclub_dc
from fedbandit.studies import Below, Experiment, Point, Scale, Sweep, Trend

PURE = {2: "m_2_10", 3: "m_3_15", 4: "m_4_20", 5: "m_5_25", 6: "m_6_30", 8: "m_8_40", 10: "m_10_50"}
"""Files with so many clusters of five users each, one after another."""

WORLDS = {
    "users": {n: partial(fclub, theta=name) for n, name in ((20, "20_theta"), (40, "m_theta"), (60, "60_theta"),
                                                            (80, "80_theta"))},
    "clusters": {m: partial(fclub, theta=name) for m, name in PURE.items()},
    "dimension": {d: partial(fclub, theta=f"{d}_theta") for d in (5, 10, 15)},
    "servers": {L: partial(fclub, theta=name, n_servers=L) for L, name in PURE.items() if L <= 8},
}  # fmt: skip
"""The authors' files; on five servers, but for the last sweep, in which every server has one cluster."""

BUDGETS = (0.1, 1.0, 10.0, 100.0)
THRESHOLDS = (1.01, 1.1, 1.5, 2.0)
TORN = (
    "With ten clusters on five servers each server has users of two, as near each other as any, and they learn "
    "together until they are told apart: at this horizon FCLUB-DC is level with LinUCB."
)


def _points(horizon: int) -> list[Point]:
    points = [
        Point(series, system, env, horizon, value=value, facet=facet)
        for facet, worlds in WORLDS.items()
        for value, env in worlds.items()
        for series, system in (("LinUCB", ALONE), ("FCLUB-DC", fclub_dc))
    ]
    env = partial(fclub, theta="m_theta")
    for threshold in THRESHOLDS:
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
    reference="Liu et al. 2022, App. E.2 (not at hand); the authors' files and sweeps: users 20–80, clusters 2–10, "
    "d 5–15, servers 2–8, ε 0.1–10 (here to 100)",
    reports="A parameter study. Regret grows with users, clusters and dimensions (the bound is d√(mT) log T), and "
    "falls as ε grows.",
    remarks=(
        "Clusters are blocks of consecutive users in all files of the authors. L servers have one cluster of five "
        "users each; m clusters are the same files on five servers. Their files have no d = 20.",
        MERGING,
    ),
    scales={"quick": Scale(_points(50_000), seeds=2), "paper": Scale(_points(100_000), seeds=10)},
    panels=(*_panels((*WORLDS, "U = D", "ε")), Sweep(y="messages", x="U = D", facet="U = D", title="communication")),
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
        Below("FCLUB-DC", "LinUCB", facet="servers", text="FCLUB-DC is below LinUCB for any number of servers."),
        Trend("FCLUB-DC", facet="servers", text="Regret of FCLUB-DC rises with the number of servers."),
        Below(
            "FCLUB-DC",
            "LinUCB",
            facet="clusters",
            text="FCLUB-DC is below LinUCB for any number of clusters.",
            otherwise=TORN,
        ),
    ),
)
