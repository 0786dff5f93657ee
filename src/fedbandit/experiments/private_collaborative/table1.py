"""Private collaborative bandits, Table 1: regret over the privacy budget."""

from fedbandit.experiments.claims import below, trend
from fedbandit.experiments.declaration import Experiment, Point, Scale
from fedbandit.experiments.panels import Sweep
from fedbandit.experiments.private_collaborative.systems import PUBLISHED, REMARKS, WORSE_THAN_RANDOM, compared, world

BUDGETS = (0.5, 1.0, 2.0, 5.0, 10.0)
PRINTED = {
    "DP-LinUCB": (3083, 2684, 1504, 911, 496),
    "DP-CoLin": (2620, 2451, 1328, 884, 297),
    "DP-GOBLin": (2673, 2550, 965, 686, 247),
    "LDP-CoLin": (3311, 3095, 2389, 1795, 939),
    "LDP-GOBLin": (3269, 3005, 2335, 1744, 1061),
}


def _points(budgets: tuple[float, ...]) -> list[Point]:
    return [point for e in budgets for point in compared(world(), 10_000, e, value=e, plain=False)]


def _printed() -> dict[tuple[str, float | int | str], float]:
    return {
        (f"{name}, {how}", epsilon): float(number)
        for name, numbers in PRINTED.items()
        for epsilon, number in zip(BUDGETS, numbers, strict=True)
        for how in (("as published",) if name in PUBLISHED else ("proven",))
    }


EXPERIMENT = Experiment(
    title="regret over the privacy budget",
    reference="Wang et al. 2020, Table 1, §6.3: T = 10,000, 5 runs",
    reports="Regret falls as ε grows, roughly like 1/ε; locally private systems have far more than global ones.",
    remarks=(
        *REMARKS,
        "Printed numbers depend on d, σ and the scale of rewards, none of which is printed: orders and trends are "
        "compared, not numbers.",
    ),
    scales={"quick": Scale(_points((0.5, 2.0, 10.0)), seeds=2), "paper": Scale(_points(BUDGETS), seeds=5)},
    panels=(Sweep(x="ε", log_x=True, log=True),),
    measures=("regret",),
    printed=_printed(),
    pivot=True,
    value_name="ε",
    claims=(
        *(
            trend(f"{name}, as published", direction="falls", text=f"Regret of {name} falls as ε grows.")
            for name in PUBLISHED
        ),
        trend("DP-LinUCB, proven", direction="falls", text="Regret of DP-LinUCB falls as ε grows."),
        below(
            "DP-CoLin, as published",
            "LDP-CoLin, as published",
            text="At every ε, DP-CoLin is below LDP-CoLin.",
            otherwise=WORSE_THAN_RANDOM,
        ),
        below(
            "DP-GOBLin, as published",
            "LDP-GOBLin, as published",
            text="At every ε, DP-GOBLin is below LDP-GOBLin.",
            otherwise=WORSE_THAN_RANDOM,
        ),
        below("DP-CoLin, proven", "DP-LinUCB, proven", text="At every ε, DP-CoLin is below DP-LinUCB."),
    ),
)
