"""A clustered federation under local privacy: every reward is noised before anything is done with it."""

from __future__ import annotations

from collections.abc import Callable

from fedbandit.errors import unknown
from fedbandit.experiments.claims import below, trend
from fedbandit.experiments.declaration import Experiment, Point, Scale
from fedbandit.experiments.panels import Sweep
from fedbandit.presets import PRESETS
from fedbandit.privacy import NoisyRewards
from fedbandit.system import System


def _private(preset: str, epsilon: float) -> Callable[[], System]:
    """The preset with noisy rewards; it may not be there."""

    def make() -> System:
        if preset not in PRESETS:
            raise unknown("system", preset, PRESETS)
        return PRESETS[preset](privacy=NoisyRewards(epsilon))

    return make


def _points(n_clients: int, horizon: int, budgets: tuple[float, ...]) -> list[Point]:
    env = f"clustered:n_clients={n_clients},dim=10,n_arms=10,n_clusters=3,gap=0.5,rewards=bernoulli,contexts=sphere"
    points = []
    for epsilon in budgets:
        for series, preset in (
            ("clusters by evidence", "clustered_linucb"),
            ("HetoFedBandit, asynchronous", "hetofedbandit_async"),
        ):
            points.append(Point(series, _private(preset, epsilon), env, horizon, value=epsilon, extra="clusters"))
        alone = f"dp-linucb:epsilon={epsilon:g}"
        points.append(Point("learning alone, private", alone, env, horizon, value=epsilon))
    points.append(Point("learning alone", "linucb", env, horizon))
    points.append(Point("clusters by evidence, not private", "clustered-linucb", env, horizon, extra="clusters"))
    return points


EXPERIMENT = Experiment(
    title="clusters of clients under local privacy",
    reference="no paper: FCLUB names local privacy as future work; HetoFedBandit has none",
    remarks=(
        "Rewards (0 or 1) are noised by the client, so clusters, messages and arms reveal one reward with ε at most; "
        "contexts are not protected.",
    ),
    scales={
        "quick": Scale(_points(30, 60_000, (1.0, 4.0, 16.0)), seeds=2),
        "paper": Scale(_points(60, 600_000, (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)), seeds=5),
    },
    panels=(
        Sweep(x="ε", log_x=True),
        Sweep(
            y="rand_index",
            x="ε",
            log_x=True,
            title="agreement with the true clusters",
            without=("learning alone", "learning alone, private"),
        ),
    ),
    measures=("regret", "messages", "clusters", "rand_index"),
    value_name="ε",
    claims=(
        trend("clusters by evidence", direction="falls", text="More budget, less regret.", ours=True),
        below(
            "clusters by evidence",
            "learning alone, private",
            text="Clusters help under local privacy at every budget.",
            ours=True,
        ),
    ),
)
