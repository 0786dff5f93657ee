"""Private collaborative bandits, Fig. 2: rewards on Last.FM and Delicious."""

from functools import partial

from fedbandit.environments import delicious, lastfm
from fedbandit.papers.private_collaborative import WORSE_THAN_RANDOM, systems, with_isolated_users
from fedbandit.studies import Below, Curves, Experiment, MakesEnvironment, Point, Scale

WORLDS: dict[str, MakesEnvironment] = {
    "Last.FM": partial(lastfm, n_clusters=100),
    "Delicious": partial(delicious, n_clusters=100),
}
SLOW = ("DP-GOBLin, as published", "LDP-GOBLin, as published")


def _points(horizon: int | None, without: tuple[str, ...] = ()) -> list[Point]:
    return [
        Point(name, partial(with_isolated_users, system.func, **system.keywords), env, horizon, facet=facet)
        for facet, env in WORLDS.items()
        for name, system in systems(alpha=0.3, ridge=0.2).items()
        if name not in without
    ]


EXPERIMENT = Experiment(
    title="rewards on Last.FM and Delicious",
    reference="Wang et al. 2020, Fig. 2, §6: users clustered to 100 clients, W of friendships, d = K = 25, ε = 2",
    reports="Non-private collaboration collects most, globally private ones less, locally private ones much less; "
    "DP-CoLin and DP-GOBLin more than DP-LinUCB.",
    remarks=(
        "A cluster of friends that has no friends outside is a user without neighbours: it learns alone.",
        "Delicious is left out where its contact graph (user_contacts.dat) is missing: there is then no W.",
        "Rewards of likes are 0 or 1, so what is hidden is whether one recommendation was liked.",
    ),
    scales={
        "quick": Scale(_points(20_000, without=SLOW), seeds=2),
        "paper": Scale(_points(None), seeds=5),
    },
    panels=tuple(Curves(y="normalised_reward", facet=name, title=name, without=("random arms",)) for name in WORLDS),
    measures=("normalised_reward", "reward"),
    claims=tuple(
        claim
        for name in WORLDS
        for claim in (
            Below(
                "DP-CoLin, as published",
                "CoLin",
                measure="normalised_reward",
                facet=name,
                text=f"{name}: privacy costs reward (CoLin).",
            ),
            Below(
                "LDP-CoLin, as published",
                "DP-CoLin, as published",
                measure="normalised_reward",
                facet=name,
                text=f"{name}: local privacy costs more (CoLin).",
                otherwise=WORSE_THAN_RANDOM,
            ),
            Below(
                "DP-LinUCB, proven",
                "DP-CoLin, proven",
                measure="normalised_reward",
                facet=name,
                text=f"{name}: private collaboration beats private learning alone.",
            ),
        )
    ),
)
