"""Private collaborative bandits, Fig. 1(c): what the number of users does."""

from fedbandit.experiments.claims import below, trend
from fedbandit.experiments.declaration import Experiment, Point, Scale
from fedbandit.experiments.panels import Sweep
from fedbandit.experiments.private_collaborative.systems import REMARKS, WORSE_THAN_RANDOM, compared, world

SCALE_FALLS = (
    "The scale of regret itself falls with N in this world: that of random arms does, too (see 'random arms')."
)
SHOWN = (
    "random arms",
    "CoLin",
    "GOBLin",
    "DP-CoLin, as published",
    "DP-CoLin, proven",
    "LDP-CoLin, as published",
    "DP-GOBLin, as published",
    "LDP-GOBLin, as published",
)


def _points(sizes: tuple[int, ...], horizon: int) -> list[Point]:
    return [point for N in sizes for point in compared(world(N), horizon, value=N, only=SHOWN)]


EXPERIMENT = Experiment(
    title="regret over the number of users",
    reference="Wang et al. 2020, Fig. 1(c), §6.3: T = 10,000 in all, N = 5 to 50, ε = 2",
    reports="Regret increases with the number of users, and the added regret of privacy does; that of LDP is roughly "
    "√N times that of DP.",
    remarks=REMARKS,
    scales={
        "quick": Scale(_points((5, 20, 50), 10_000), seeds=2),
        "paper": Scale(_points((5, 10, 20, 30, 40, 50), 10_000), seeds=5),
    },
    panels=(Sweep(x="users N", log=True),),
    measures=("regret",),
    value_name="N",
    claims=(
        trend("CoLin", text="Regret of CoLin rises with the number of users.", otherwise=SCALE_FALLS),
        trend(
            "DP-CoLin, as published", text="Regret of DP-CoLin rises with the number of users.", otherwise=SCALE_FALLS
        ),
        below(
            "DP-CoLin, as published",
            "LDP-CoLin, as published",
            text="Local privacy costs more, at any N (CoLin).",
            otherwise=WORSE_THAN_RANDOM,
        ),
        below(
            "DP-GOBLin, as published", "LDP-GOBLin, as published", text="Also for GOBLin.", otherwise=WORSE_THAN_RANDOM
        ),
        below("DP-CoLin, proven", "LDP-CoLin, as published", text="Proven global privacy is below it.", ours=True),
    ),
)
