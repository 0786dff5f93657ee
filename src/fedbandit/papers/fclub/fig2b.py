"""FCLUB, Fig. 2(b): clusters of users on local servers, MovieLens, with the authors' parameters of users."""

from functools import partial

from fedbandit.environments import fclub
from fedbandit.papers.fclub import (
    AUTHORS_CLUB,
    AUTHORS_DC,
    AUTHORS_SCLUB,
    MERGING,
    NOT_A_TARGET,
    PRIVATE,
    SILENT,
    compared,
)
from fedbandit.studies import Below, Claim, Curves, Experiment, Ordered, Scale

WORLD = partial(fclub, theta="ml_1000user_d10", first=40, n_servers=5)
CONSTANTS = (
    "With constants that do not tear true clusters apart CLUB and SCLUB are level with FCLUB-DC: three of four users "
    "are alike, and most servers have little to learn from others. With the authors' constants they are above."
)


def claims() -> tuple[Claim, ...]:
    """Those of Fig. 2(b)."""
    return (
        Below("FCLUB-DC", "LinUCB"),
        Below("FCLUB-DC", AUTHORS_CLUB),
        Below("FCLUB-DC", AUTHORS_SCLUB),
        Below("FCLUB-DC", "CLUB", otherwise=CONSTANTS),
        Below("FCLUB-DC", "SCLUB", otherwise=CONSTANTS),
        Below("FCLUB-DC", "Homo-DC"),
        Ordered(("FCLUB", "FCLUB-DC", PRIVATE), slack=0.1, text="Delay and privacy cost regret, in this order."),
        Below(PRIVATE, "LinUCB", text="CDP-FCLUB-DC, too, is below LinUCB.", otherwise=NOT_A_TARGET),
        Below(PRIVATE, "LinUCB", factor=0.98, ours=True, text="CDP-FCLUB-DC is not above LinUCB."),
    )


EXPERIMENT = Experiment(
    title="clusters of users on local servers, MovieLens",
    reference="Liu et al. 2022, Fig. 2(b), §5; settings of the authors' code: the first 40, that is most active, of "
    "1,000 users of MovieLens 1M in ten clusters, 5 servers, T = 200,000",
    reports="CDP-FCLUB-DC is below SCLUB, CLUB, LinUCB, Homo and Homo-DC, and above FCLUB and FCLUB-DC; in the early "
    "stage it needs time to find the clusters. The authors' code: LinUCB 2,304, FCLUB-DC 898.",
    remarks=(
        "Users' parameters are the authors' file ml_1000user_d10; 31 of these 40 are in one of six clusters.",
        MERGING,
    ),
    scales={
        "quick": Scale(compared(WORLD, 100_000), seeds=3),
        "paper": Scale(compared(WORLD, 200_000), seeds=10),
    },
    panels=(Curves(log=False), Curves(y="messages", log=True, without=SILENT)),
    measures=("regret", "messages", "clusters", "rand_index"),
    printed={("LinUCB", ""): 2304, (AUTHORS_DC, ""): 898},
    claims=claims(),
)
