"""Private collaborative bandits, Fig. 2: rewards on Last.FM and Delicious."""

from fedbandit.papers.private_collaborative.systems import WORSE_THAN_RANDOM, compared
from fedbandit.studies.claims import below
from fedbandit.studies.declaration import Experiment, Point, Scale
from fedbandit.studies.panels import Curves

WORLDS = {"Last.FM": "lastfm:n_clusters=100", "Delicious": "delicious:n_clusters=100"}


def _points(horizon: int | None, without: tuple[str, ...] = ()) -> list[Point]:
    points = []
    for facet, env in WORLDS.items():
        points += compared(env, horizon, facet=facet, common="alpha=0.3,ridge=0.2", isolated=True)
    return [point for point in points if point.series not in without]


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
        "quick": Scale(_points(20_000, ("DP-GOBLin, as published", "LDP-GOBLin, as published")), seeds=2),
        "paper": Scale(_points(None), seeds=5),
    },
    panels=tuple(Curves(y="normalised_reward", facet=name, title=name, without=("random arms",)) for name in WORLDS),
    measures=("normalised_reward", "reward"),
    claims=tuple(
        claim
        for name in WORLDS
        for claim in (
            below(
                "DP-CoLin, as published",
                "CoLin",
                measure="normalised_reward",
                facet=name,
                text=f"{name}: privacy costs reward (CoLin).",
            ),
            below(
                "LDP-CoLin, as published",
                "DP-CoLin, as published",
                measure="normalised_reward",
                facet=name,
                text=f"{name}: local privacy costs more (CoLin).",
                otherwise=WORSE_THAN_RANDOM,
            ),
            below(
                "DP-LinUCB, proven",
                "DP-CoLin, proven",
                measure="normalised_reward",
                facet=name,
                text=f"{name}: private collaboration beats private learning alone.",
            ),
        )
    ),
)
