"""FCLUB with the authors' parameters of Yelp's users, who are all different."""

from functools import partial

from fedbandit.environments import fclub
from fedbandit.papers.fclub import PRIVATE, SILENT, compared
from fedbandit.studies import Below, Curves, Experiment, Grows, Scale

WORLD = partial(fclub, theta="yelp_1000user_d10", first=40, n_servers=5)
ALL_DIFFERENT = (
    "No two users of this file are alike, so that whoever learns together learns something wrong until all are told "
    "apart; then there is nothing to share."
)

EXPERIMENT = Experiment(
    title="users who are all different, Yelp",
    reference="Liu et al. 2022: parameters yelp_1000user_d10 of the authors' code, no figure of the paper; its first "
    "40 users, 5 servers, as for MovieLens",
    reports="Nothing: the file is there, its results are not printed.",
    scales={
        "quick": Scale(compared(WORLD, 100_000), seeds=3),
        "paper": Scale(compared(WORLD, 200_000), seeds=10),
    },
    panels=(Curves(log=False), Curves(y="messages", log=True, without=SILENT)),
    measures=("regret", "messages", "clusters", "rand_index"),
    claims=(
        Grows("Homo-DC", least=0.9, ours=True, text="Homo-DC suffers linear regret."),
        Below("FCLUB-DC", "Homo-DC", ours=True),
        Below("FCLUB-DC", "LinUCB", ours=True, otherwise=ALL_DIFFERENT),
        Below(PRIVATE, "LinUCB", factor=0.98, ours=True, text="CDP-FCLUB-DC is not above LinUCB."),
    ),
)
