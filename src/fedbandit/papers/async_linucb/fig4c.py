"""Async-LinUCB, Fig. 4(c): MovieLens."""

from fedbandit.environments import movielens
from fedbandit.papers.async_linucb import TWELVE, liked_fronts
from fedbandit.studies import Below, Experiment, Scale, Tradeoff

_ANOTHER = (
    "The paper has MovieLens 20M with contexts made of tags, and four thousand interactions a user. On MovieLens 1M a "
    "thousand each are enough for users to know better themselves; sharing is ahead while they are young."
)

EXPERIMENT = Experiment(
    title="reward against communication on MovieLens",
    reference="Li & Wang 2022, Fig. 4(c), App. H: MovieLens 20M, N = 54, T = 214,729, d = K = 25",
    reports="One model for all attains a very high reward: users share preferences. Async-LinUCB-AM learns more slowly "
    "than the other two, but is far above learning alone.",
    remarks=(
        "The best release that is at hand is used; where that is not 20M, contexts are made of genres and of the "
        "ratings of users who are not replayed, and the 54 most active users are kept.",
    ),
    scales={
        "quick": Scale(liked_fronts((0.1, 4.0, 100.0), movielens), seeds=2),
        "paper": Scale(liked_fronts(TWELVE, movielens), seeds=5),
    },
    panels=(Tradeoff(y="normalised_reward", without=("random arms",), levels=("one model (γ = 1)",)),),
    measures=("normalised_reward", "messages"),
    value_name="threshold",
    claims=(
        Below("learning alone (γ = ∞)", "one model (γ = 1)", measure="normalised_reward", otherwise=_ANOTHER),
        Below("Async-LinUCB-AM", "one model (γ = 1)", measure="normalised_reward", otherwise=_ANOTHER),
        Below("learning alone (γ = ∞)", "Async-LinUCB-AM", measure="normalised_reward", otherwise=_ANOTHER),
    ),
)
