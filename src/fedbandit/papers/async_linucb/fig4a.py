"""Async-LinUCB, Fig. 4(a): Last.FM."""

from fedbandit.environments import lastfm
from fedbandit.papers.async_linucb import TWELVE, liked_fronts
from fedbandit.studies import Below, Experiment, Scale, Tradeoff

EXPERIMENT = Experiment(
    title="reward against communication on Last.FM",
    reference="Li & Wang 2022, Fig. 4(a), App. H: N = 1892, T = 96,733, d = K = 25",
    reports="Learning alone attains a very high reward: preferences are diverse, and one shared model does badly. "
    "Async-LinUCB-AM does relatively well even if clients communicate often.",
    remarks=(
        "An interaction is a tagging: the paper's numbers are those of taggings, though it writes of listened artists.",
    ),
    scales={
        "quick": Scale(liked_fronts((0.1, 4.0, 100.0), lastfm), seeds=3),
        "paper": Scale(liked_fronts(TWELVE, lastfm), seeds=5),
    },
    panels=(Tradeoff(y="normalised_reward", without=("random arms",), levels=("one model (γ = 1)",)),),
    measures=("normalised_reward", "messages"),
    value_name="threshold",
    claims=(
        Below("one model (γ = 1)", "learning alone (γ = ∞)", measure="normalised_reward"),
        Below("Sync-LinUCB", "learning alone (γ = ∞)", measure="normalised_reward"),
        Below("Async-LinUCB", "Async-LinUCB-AM", measure="normalised_reward"),
    ),
)
