"""Private collaborative bandits, Fig. 1(b): how far estimates are from the truth."""

from fedbandit.papers.private_collaborative import FIRST_SEED, REMARKS, compared, world
from fedbandit.studies import Below, Curves, Experiment, Ordered, Point, Scale


def _points(horizon: int) -> list[Point]:
    """All but random arms, which estimate nothing."""
    return [point for point in compared(world(), horizon, extra="estimates") if point.series != "random arms"]


EXPERIMENT = Experiment(
    title="distance of estimates from the truth",
    reference="Wang et al. 2020, Fig. 1(b), §6.2: ‖θ̂ − θ*‖₂ over time, ε = 2",
    reports="Private systems converge more slowly than non-private ones, locally private ones much more slowly.",
    remarks=(*REMARKS, "The distance is that of what a user's arms are scored with, mean over users."),
    scales={
        "quick": Scale(_points(12_288), seeds=4, first_seed=FIRST_SEED),
        "paper": Scale(_points(30_000), seeds=5, first_seed=FIRST_SEED),
    },
    panels=(Curves(y="estimation_error", log=True),),
    measures=("estimation_error", "regret"),
    claims=(
        Below("CoLin", "DP-CoLin, as published", measure="estimation_error"),
        Below("GOBLin", "DP-GOBLin, as published", measure="estimation_error"),
        Ordered(
            ("DP-CoLin, as published", "LDP-CoLin, as published"),
            measure="estimation_error",
            text="Local privacy imposes a larger error than global (CoLin).",
        ),
        Ordered(
            ("DP-GOBLin, as published", "LDP-GOBLin, as published"),
            measure="estimation_error",
            text="Local privacy imposes a larger error than global (GOBLin).",
        ),
    ),
)
