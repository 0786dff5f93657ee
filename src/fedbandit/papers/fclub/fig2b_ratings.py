"""FCLUB, Fig. 2(b) once more: users' parameters made from the ratings of MovieLens 1M."""

from functools import partial

from fedbandit.environments import movielens_users
from fedbandit.papers.fclub import MERGING, SILENT, compared
from fedbandit.papers.fclub.fig2b import claims
from fedbandit.studies import Curves, Experiment, Scale

WORLD = partial(movielens_users, n_clients=1000, first=40)

EXPERIMENT = Experiment(
    title="clusters of users on local servers, MovieLens from its ratings",
    reference="Liu et al. 2022, Fig. 2(b), §5; settings of the authors' code: the first 40, that is most active, of "
    "1,000 users of MovieLens 1M in ten clusters, 5 servers, T = 200,000",
    reports="As in Fig. 2(b): FCLUB and FCLUB-DC are below SCLUB, CLUB, LinUCB, Homo and Homo-DC.",
    remarks=(
        "Users' parameters are singular vectors of who rated what, moved to ten centres by k-means, which starts "
        "elsewhere than the authors'; everything else is simulated.",
        MERGING,
    ),
    scales={
        "quick": Scale(compared(WORLD, 100_000, n_servers=5), seeds=3),
        "paper": Scale(compared(WORLD, 200_000, n_servers=5), seeds=10),
    },
    panels=(Curves(log=False), Curves(y="messages", log=True, without=SILENT)),
    measures=("regret", "messages", "clusters", "rand_index"),
    claims=claims(),
)
