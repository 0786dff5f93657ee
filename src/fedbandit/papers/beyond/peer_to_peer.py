"""Peer to peer against central: what a network without a coordinator costs, private and not."""

from __future__ import annotations

import math
from functools import partial

from fedbandit import environments
from fedbandit.presets import feducb, linucb
from fedbandit.studies import Below, Curves, Experiment, Ordered, Point, Scale, Tradeoff

below = partial(Below, measure="per_client_regret", facet="not private", ours=True)
ordered = partial(Ordered, measure="per_client_regret", facet="not private", ours=True)

NETWORKS = (
    ("coordinator", "central", 1),
    ("complete", "complete", 1),
    ("random graph, 2 hops", "erdos-renyi", 2),
    ("ring, 1 hop", "ring", 1),
    ("ring, 4 hops", "ring", 4),
)
FACETS = {"not private": math.inf, "ε = 10": 10.0}


def _points(M: int, horizon: int) -> list[Point]:
    env = environments.feducb(n_clients=M, dim=5)
    points = []
    for facet, epsilon in FACETS.items():
        points.append(Point("learning alone", linucb, env, horizon, facet=facet))
        for series, topology, hops in NETWORKS:
            system = partial(feducb, epsilon=epsilon, delta=1e-5, topology=topology, ttl=hops)
            points.append(Point(series, system, env, horizon, facet=facet))
    return points


EXPERIMENT = Experiment(
    title="peer to peer against central",
    reference="no paper has figures of it: FedUCB, §4.2, describes the decentralised protocol",
    remarks=(
        "Messages live as many hops as agents are reached; each hop takes a round. All trigger on public counts.",
    ),
    scales={"quick": Scale(_points(16, 3_000), seeds=4), "paper": Scale(_points(64, 50_000), seeds=5)},
    panels=(
        *(Curves(y="per_client_regret", facet=facet, title=facet) for facet in FACETS),
        Tradeoff(y="per_client_regret", facet="not private", title="not private"),
    ),
    measures=("per_client_regret", "messages"),
    claims=(
        below("coordinator", "learning alone", text="A coordinator beats learning alone."),
        ordered(
            ("complete", "ring, 1 hop", "learning alone"),
            text="The more agents are reached in one hop, the less regret; a ring beats learning alone.",
        ),
        below(
            "ring, 4 hops",
            "ring, 1 hop",
            text="On a ring four hops are better than one.",
            otherwise="With messages that live γ hops an agent uses γ estimators in turn (§4.2) and learns each from a "
            "γ-th of its rounds: at this horizon that costs more than the farther agents bring.",
        ),
    ),
)
