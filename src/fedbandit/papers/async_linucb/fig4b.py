"""Async-LinUCB, Fig. 4(b): Delicious."""

from fedbandit.environments import delicious
from fedbandit.papers.async_linucb import TWELVE, liked_fronts
from fedbandit.studies import Below, Experiment, Scale, Tradeoff, Trend

OFTEN = 0.1

EXPERIMENT = Experiment(
    title="reward against communication on Delicious",
    reference="Li & Wang 2022, Fig. 4(b), App. H: N = 1861, T = 104,799, d = K = 25",
    reports="As on Last.FM. Where communication is low, reward rises with it; with γ from 9001 down to 1.01 it falls "
    "from 1.8322 to 1.2887 as messages go from 14,599 to 12,901,135.",
    remarks=("Copies of the data set may be partial; the contact graph is not needed here.",),
    scales={
        "quick": Scale(liked_fronts((OFTEN, 4.0, 9000.0), delicious), seeds=2),
        "paper": Scale(liked_fronts(sorted((*TWELVE, OFTEN, 9000.0)), delicious), seeds=5),
    },
    panels=(Tradeoff(y="normalised_reward", without=("random arms",), levels=("one model (γ = 1)",)),),
    measures=("normalised_reward", "messages"),
    value_name="threshold",
    printed={("Async-LinUCB", 9000.0): 1.8322, ("Async-LinUCB", 0.01): 1.2887},
    claims=(
        Below("one model (γ = 1)", "learning alone (γ = ∞)", measure="normalised_reward"),
        Below(
            "Sync-LinUCB",
            "learning alone (γ = ∞)",
            measure="normalised_reward",
            at=OFTEN,
            text="Sync-LinUCB that communicates often is below learning alone.",
        ),
        Below(
            "Async-LinUCB",
            "Async-LinUCB-AM",
            measure="normalised_reward",
            at=OFTEN,
            text="Where clients communicate often, Async-LinUCB is below Async-LinUCB-AM.",
        ),
        Trend(
            "Async-LinUCB",
            measure="normalised_reward",
            direction="rises",
            text="Reward of Async-LinUCB rises with the threshold, up to 9000: less communication is better.",
        ),
    ),
)
