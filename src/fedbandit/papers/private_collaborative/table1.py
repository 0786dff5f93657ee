"""Private collaborative bandits, Table 1: regret over the privacy budget."""

from functools import partial

from fedbandit.papers.private_collaborative import AS_PRINTED, FIRST_SEED, LAB, PLAIN, REMARKS, compared, world
from fedbandit.studies import Below, Experiment, NearPrinted, Point, Scale, Sweep, Trend

below = partial(Below, facet=LAB)

BUDGETS = (0.5, 1.0, 2.0, 5.0, 10.0)
PRINTED = {
    "DP-LinUCB": (3083, 2684, 1504, 911, 496),
    "DP-CoLin": (2620, 2451, 1328, 884, 297),
    "DP-GOBLin": (2673, 2550, 965, 686, 247),
    "LDP-CoLin": (3311, 3095, 2389, 1795, 939),
    "LDP-GOBLin": (3269, 3005, 2335, 1744, 1061),
}
ALONE = "DP-LinUCB, as published"
LOCAL = ("LDP-CoLin, proven", "LDP-GOBLin, proven")
NO_LEARNING = "Nothing is learnt with the published noise where users have no groups: random arms are as good."


def _points(budgets: tuple[float, ...]) -> list[Point]:
    return [
        point
        for facet in (LAB, AS_PRINTED)
        for epsilon in budgets
        for point in compared(world(facet=facet), 10_000, epsilon, value=epsilon, facet=facet)
        if point.series not in {*PLAIN, *LOCAL}
    ]


def _printed() -> dict[tuple[str, float | int | str], float]:
    return {
        (f"{name}, as published", epsilon): float(number)
        for name, numbers in PRINTED.items()
        for epsilon, number in zip(BUDGETS, numbers, strict=True)
    }


EXPERIMENT = Experiment(
    title="regret over the privacy budget",
    reference="Wang et al. 2020, Table 1, §6.3: T = 10,000, 5 runs",
    reports="Regret falls as ε grows, roughly like 1/ε; locally private systems have far more than global ones; "
    "DP-CoLin and DP-GOBLin have less than DP-LinUCB at every ε.",
    remarks=(
        *REMARKS,
        "Printed numbers depend on d, σ and the threshold of edges, none of which is printed, and on the masks that "
        "were drawn (random arms differ by hundreds between them): orders and trends are compared first.",
    ),
    scales={
        "quick": Scale(_points((1.0, 2.0, 10.0)), seeds=4, first_seed=FIRST_SEED),
        "paper": Scale(_points(BUDGETS), seeds=5, first_seed=FIRST_SEED),
    },
    panels=tuple(Sweep(x="ε", log_x=True, log=True, facet=facet, title=facet) for facet in (LAB, AS_PRINTED)),
    measures=("regret",),
    printed=_printed(),
    pivot=True,
    value_name="ε",
    claims=(
        *(
            Trend(
                f"{name}, as published",
                direction="falls",
                facet=facet,
                text=f"{facet.capitalize()}: regret of {name} falls as ε grows.",
            )
            for facet in (LAB, AS_PRINTED)
            for name in PRINTED
        ),
        *(
            below(
                f"DP-{name}, as published",
                f"LDP-{name}, as published",
                text=f"At every ε, DP-{name} is below LDP-{name}.",
            )
            for name in ("CoLin", "GOBLin")
        ),
        *(
            below(f"DP-{name}, as published", ALONE, text=f"At every ε, DP-{name} is below DP-LinUCB.")
            for name in ("CoLin", "GOBLin")
        ),
        below("DP-CoLin, as published", "random arms", text="At every ε, DP-CoLin learns."),
        NearPrinted(
            "LDP-CoLin, as published",
            dict(zip(BUDGETS, PRINTED["LDP-CoLin"], strict=True)),
            facet=LAB,
            within=0.2,
        ),
        Below(
            "DP-CoLin, as published",
            "LDP-CoLin, as published",
            facet=AS_PRINTED,
            text="Without groups, too, DP-CoLin is below LDP-CoLin.",
            otherwise=NO_LEARNING,
        ),
        *(
            Below(
                "DP-CoLin, proven",
                "DP-LinUCB, proven",
                facet=facet,
                text=f"Proven, {facet}: at every ε, DP-CoLin is below DP-LinUCB.",
                ours=True,
            )
            for facet in (LAB, AS_PRINTED)
        ),
    ),
)
