"""Private collaborative bandits, Fig. 1(b): how far estimates are from the truth."""

from fedbandit.papers.private_collaborative.systems import REMARKS, compared, world
from fedbandit.studies.claims import below, ordered
from fedbandit.studies.declaration import Experiment, Scale
from fedbandit.studies.panels import Curves

LEARNERS = [point.series for point in compared(world(), 1) if point.series != "random arms"]
"""Random arms estimate nothing."""

EXPERIMENT = Experiment(
    title="distance of estimates from the truth",
    reference="Wang et al. 2020, Fig. 1(b), §6.2: ‖θ̂ − θ*‖₂ over time, ε = 2",
    reports="Private systems converge more slowly than non-private ones, locally private ones much more slowly.",
    remarks=(*REMARKS, "The distance is that of what a user's arms are scored with, mean over users."),
    scales={
        "quick": Scale(compared(world(), 12_288, extra="estimates", only=LEARNERS), seeds=3),
        "paper": Scale(compared(world(), 30_000, extra="estimates", only=LEARNERS), seeds=5),
    },
    panels=(Curves(y="estimation_error", log=True),),
    measures=("estimation_error", "regret"),
    claims=(
        below("CoLin", "DP-CoLin, as published", measure="estimation_error"),
        below("GOBLin", "DP-GOBLin, as published", measure="estimation_error"),
        ordered(
            "DP-CoLin, as published",
            "LDP-CoLin, as published",
            measure="estimation_error",
            text="Local privacy imposes a larger error than global (CoLin).",
        ),
        ordered(
            "DP-GOBLin, as published",
            "LDP-GOBLin, as published",
            measure="estimation_error",
            text="Local privacy imposes a larger error than global (GOBLin).",
        ),
    ),
)
