"""Private collaborative bandits, Fig. 2: rewards on Last.FM and Delicious."""

from functools import partial

from fedbandit.environments import delicious, lastfm
from fedbandit.papers.private_collaborative import systems
from fedbandit.studies import Below, Curves, Experiment, MakesEnvironment, Point, Scale

WORLDS: dict[str, MakesEnvironment] = {
    "Last.FM": partial(lastfm, social="banditlib"),
    "Delicious": partial(delicious, social="banditlib"),
}
SLOW = ("DP-GOBLin, as published", "LDP-GOBLin, as published", "DP-GOBLin, proven", "LDP-GOBLin, proven", "GOBLin")
NOISE_DECIDES = (
    "With the published noise both are near random arms: a thousand rewards a client say less than the noise, whatever "
    "the trust."
)


def _points(horizon: int | None, without: tuple[str, ...] = ()) -> list[Point]:
    return [
        Point(name, system, env, horizon, facet=facet)
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
        "Clients are the lab's own 100 clusters of a graph cut into 200, and W counts friendships between them.",
        "All systems have α = 0.3 and λ = 0.2, as the lab's programs on these data.",
        "Contacts of Delicious are the lab's, whose user ids are ranks of the original ones. 24 of 1,867 users are not "
        "in our copy; which ranks they had follows from the events that the lab's files list, to a few ranks each.",
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
        for below in (partial(Below, measure="normalised_reward", facet=name),)
        for claim in (
            below("DP-CoLin, as published", "CoLin", text=f"{name}: privacy costs reward (CoLin)."),
            below(
                "LDP-CoLin, as published",
                "DP-CoLin, as published",
                text=f"{name}: local privacy costs more (CoLin).",
                otherwise=NOISE_DECIDES,
            ),
            below(
                "DP-LinUCB, as published",
                "DP-CoLin, as published",
                text=f"{name}: private collaboration beats private learning alone, as published.",
                otherwise=NOISE_DECIDES,
            ),
            below(
                "DP-LinUCB, proven",
                "DP-CoLin, proven",
                text=f"{name}: private collaboration beats private learning alone, proven.",
            ),
        )
    ),
)
