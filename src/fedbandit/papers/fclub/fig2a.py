"""FCLUB, Fig. 2(a): clusters of users on local servers, synthetic."""

from functools import partial

from fedbandit.bounds import fclub_communication
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
from fedbandit.studies import Below, Curves, Experiment, Grows, Ordered, Overlay, Scale

WORLD = fclub(placement="blocks")
LOG_T = partial(fclub_communication, dim=10, n_servers=5, n_clusters=5, upload=1.01, download=1.01)
ONE_CLUSTER_A_SERVER = (
    "Every server has one cluster here, as in the authors' parameters: there is nothing to learn from other servers, "
    "and CLUB and SCLUB do as well once their constants do not tear true clusters apart, as the authors' do."
)

EXPERIMENT = Experiment(
    title="clusters of users on local servers, synthetic",
    reference="Liu et al. 2022, Fig. 2(a), §5; settings of the authors' code: 40 users in 5 clusters on 5 servers, "
    "d = 10, 10 items, T = 100,000, 10 seeds",
    reports="FCLUB and FCLUB-DC are far below SCLUB, CLUB, LinUCB, Homo and Homo-DC; Homo and Homo-DC merge different "
    "clusters and suffer linear regret; CDP-FCLUB-DC is a little worse than FCLUB-DC. The authors' code, seed 0, ends "
    "at: LinUCB 1,506, CLUB 1,469, SCLUB 1,313, Homo-DC 1,025, FCLUB-DC 340, 'CDP' 445, FCLUB 613.",
    remarks=(
        "Parameters are drawn anew for each seed; the authors have one set, with the same clusters and servers.",
        "Our constants, λ, the root in the bonus and its width differ from the code's; see the preset.",
        MERGING,
    ),
    scales={"quick": Scale(compared(WORLD, 40_000), seeds=3), "paper": Scale(compared(WORLD, 100_000), seeds=10)},
    panels=(
        Curves(log=False),
        Curves(y="messages", log=True, without=SILENT, bounds=(Overlay("FCLUB-DC", "Theorem 2, for FCLUB-DC", LOG_T),)),
    ),
    measures=("regret", "messages", "clusters", "rand_index"),
    printed={
        ("LinUCB", ""): 1506,
        (AUTHORS_CLUB, ""): 1469,
        (AUTHORS_SCLUB, ""): 1313,
        ("Homo-DC", ""): 1025,
        (AUTHORS_DC, ""): 340,
        (PRIVATE, ""): 445,
        ("FCLUB", ""): 613,
    },
    claims=(
        Below("FCLUB-DC", "LinUCB", factor=1.5, text="FCLUB-DC is clearly below LinUCB."),
        Below("FCLUB-DC", AUTHORS_CLUB),
        Below("FCLUB-DC", AUTHORS_SCLUB),
        Below("FCLUB-DC", "CLUB", otherwise=ONE_CLUSTER_A_SERVER),
        Below("FCLUB-DC", "SCLUB", otherwise=ONE_CLUSTER_A_SERVER),
        Below("FCLUB-DC", "Homo-DC"),
        Below("FCLUB", "Homo"),
        Grows("Homo-DC", least=0.9, text="Homo-DC suffers linear regret."),
        Grows("FCLUB-DC", most=0.8, text="FCLUB-DC does not."),
        Ordered(("FCLUB", "FCLUB-DC", PRIVATE), slack=0.1, text="Delay and privacy cost regret, in this order."),
        Below(PRIVATE, "LinUCB", text="CDP-FCLUB-DC, too, is below LinUCB.", otherwise=NOT_A_TARGET),
    ),
)
