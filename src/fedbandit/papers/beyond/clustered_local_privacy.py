"""A clustered federation under local privacy: clients noise their rewards, or all that they send, themselves."""

from __future__ import annotations

from functools import partial

from fedbandit.environments import clustered
from fedbandit.presets import clustered_linucb, dp_linucb, hetofedbandit_async, linucb
from fedbandit.privacy import NoisyRewards, PrivateStatistics
from fedbandit.studies import Below, Experiment, Point, Scale, Sweep, Trend

below = partial(Below, ours=True)
trend = partial(Trend, ours=True)

EVIDENCE, BOTH = "clusters by evidence", "clusters by evidence, contexts too"
DELTA = 1e-5


def _points(n_clients: int, horizon: int, budgets: tuple[float, ...]) -> list[Point]:
    env = clustered(
        n_clients=n_clients, dim=10, n_arms=10, n_clusters=3, gap=0.5, rewards="bernoulli", contexts="sphere"
    )
    points = []
    for epsilon in budgets:
        rewards, statistics = NoisyRewards(epsilon), PrivateStatistics(epsilon, DELTA)
        for series, system in (
            (EVIDENCE, partial(clustered_linucb, privacy=rewards)),
            ("HetoFedBandit, asynchronous", partial(hetofedbandit_async, privacy=rewards)),
            (BOTH, partial(clustered_linucb, privacy=statistics)),
        ):
            points.append(Point(series, system, env, horizon, value=epsilon, extra="clusters"))
        points.append(
            Point("learning alone, private", partial(dp_linucb, epsilon=epsilon), env, horizon, value=epsilon)
        )
    points.append(Point("learning alone", linucb, env, horizon))
    points.append(Point("clusters by evidence, not private", clustered_linucb, env, horizon, extra="clusters"))
    return points


EXPERIMENT = Experiment(
    title="clusters of clients under local privacy",
    reference="no paper: FCLUB names local privacy as future work; HetoFedBandit has none",
    remarks=(
        "Rewards (0 or 1) are noised by the client, so clusters, messages and arms reveal one reward with ε at most; "
        "contexts are not protected.",
        "'contexts too': clients noise the statistics that they release, (ε, 10⁻⁵) for one interaction, against the "
        "coordinator and all other clients; a client's own data are exact on its own side.",
    ),
    scales={
        "quick": Scale(_points(30, 60_000, (1.0, 4.0, 16.0)), seeds=3),
        "paper": Scale(_points(60, 600_000, (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)), seeds=5),
    },
    panels=(
        Sweep(x="ε", log_x=True),
        Sweep(
            y="rand_index",
            x="ε",
            log_x=True,
            log=False,
            title="agreement with the true clusters",
            without=("learning alone", "learning alone, private"),
        ),
    ),
    measures=("regret", "messages", "clusters", "rand_index"),
    value_name="ε",
    claims=(
        trend(EVIDENCE, direction="falls", text="More budget, less regret."),
        below(EVIDENCE, "learning alone, private", text="Clusters help under local privacy at every budget."),
        trend(BOTH, direction="falls", text="More budget, less regret (contexts too)."),
        below(
            EVIDENCE,
            BOTH,
            text="To protect contexts too costs regret.",
            otherwise="Not at small budgets: such clients keep their own data exact, which noised rewards are not.",
        ),
        below(
            BOTH,
            "learning alone",
            at=16.0,
            text="With ε = 16 clusters from noisy statistics beat learning alone without privacy.",
        ),
    ),
)
