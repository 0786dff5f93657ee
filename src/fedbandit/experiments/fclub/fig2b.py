"""FCLUB, Fig. 2(b): clusters of users on local servers, MovieLens."""

from fedbandit.experiments.claims import below, ordered
from fedbandit.experiments.declaration import Experiment, Scale
from fedbandit.experiments.fclub.systems import AUTHORS_CLUB, AUTHORS_SCLUB, NOT_A_TARGET, PRIVATE, compared
from fedbandit.experiments.panels import Curves

WORLD = "movielens-users:n_clients=100"

EXPERIMENT = Experiment(
    title="clusters of users on local servers, MovieLens",
    reference="Liu et al. 2022, Fig. 2(b), §5; settings of the authors' code: MovieLens 1M, 10 clusters, T = 200,000",
    reports="CDP-FCLUB-DC is below SCLUB, CLUB, LinUCB, Homo and Homo-DC, and above FCLUB and FCLUB-DC; in the early "
    "stage it needs time to find the clusters. The authors' code: LinUCB 2,304, FCLUB-DC 898.",
    remarks=(
        "Users' parameters are singular vectors of who rated what, moved to ten centres; everything else is simulated.",
    ),
    scales={
        "quick": Scale(compared(WORLD, 60_000, servers=5), seeds=3),
        "paper": Scale(compared(WORLD, 200_000, servers=5), seeds=10),
    },
    panels=(
        Curves(log=False),
        Curves(y="messages", log=True, without=("LinUCB", "CLUB", "SCLUB", AUTHORS_CLUB, AUTHORS_SCLUB)),
    ),
    measures=("regret", "messages", "clusters", "rand_index"),
    claims=(
        below("FCLUB-DC", "LinUCB"),
        below("FCLUB-DC", "CLUB"),
        below("FCLUB-DC", "SCLUB"),
        below(
            "FCLUB-DC",
            "Homo-DC",
            otherwise="Not explained. FCLUB-DC ends with about as many clusters as there are (ten), and yet its regret "
            "grows faster than that of one model for all to the end of this horizon. We have 100 users; how many the "
            "authors have is not printed.",
        ),
        ordered("FCLUB", "FCLUB-DC", PRIVATE, slack=0.1, text="Delay and privacy cost regret, in this order."),
        below(PRIVATE, "LinUCB", text="CDP-FCLUB-DC, too, is below LinUCB.", otherwise=NOT_A_TARGET),
    ),
)
