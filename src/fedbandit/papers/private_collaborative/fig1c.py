"""Private collaborative bandits, Fig. 1(c): what the number of users does."""

from fedbandit.papers.private_collaborative import (
    AS_PRINTED,
    REMARKS,
    SIGNED,
    SIGNED_REMARK,
    WORSE_THAN_RANDOM,
    compared,
    world,
)
from fedbandit.studies import Below, Experiment, Point, Scale, Sweep, Trend

SCALE_FALLS = (
    "The scale of regret itself falls with N in this world: that of random arms does, too (see 'random arms')."
)
ENOUGH_NEIGHBOURS = (
    "It rises up to N = 20 and is lower again at N = 50, perhaps as a user then has some twenty-five neighbours."
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


BUDGETS = {SIGNED: 10.0, AS_PRINTED: 2.0}
"""With contexts of either sign regrets at ε = 10 are nearest to the paper's at ε = 2."""


def _points(sizes: tuple[int, ...], horizon: int) -> list[Point]:
    return [
        point
        for facet, epsilon in BUDGETS.items()
        for N in sizes
        for point in compared(world(N, facet), horizon, epsilon, value=N, facet=facet)
        if point.series in SHOWN
    ]


EXPERIMENT = Experiment(
    title="regret over the number of users",
    reference="Wang et al. 2020, Fig. 1(c), §6.3: T = 10,000 in all, N = 5 to 50, ε = 2",
    reports="Regret increases with the number of users, and the added regret of privacy does; that of LDP is roughly "
    "√N times that of DP.",
    remarks=(
        *REMARKS,
        SIGNED_REMARK,
        "ε = 10 with contexts of either sign, where regrets are then nearest to the paper's.",
    ),
    scales={
        "quick": Scale(_points((5, 20, 50), 10_000), seeds=3),
        "paper": Scale(_points((5, 10, 20, 30, 40, 50), 10_000), seeds=5),
    },
    panels=tuple(
        Sweep(x="users N", log=True, facet=facet, title=f"{facet}, ε = {e:g}") for facet, e in BUDGETS.items()
    ),
    measures=("regret",),
    value_name="N",
    claims=(
        Trend("CoLin", facet=SIGNED, text="Regret of CoLin rises with the number of users."),
        Trend("GOBLin", facet=SIGNED, text="Regret of GOBLin rises with the number of users."),
        Trend("LDP-CoLin, as published", facet=SIGNED, text="Regret of LDP-CoLin rises with the number of users."),
        Trend("LDP-GOBLin, as published", facet=SIGNED, text="Regret of LDP-GOBLin rises with the number of users."),
        Trend(
            "DP-CoLin, as published",
            facet=SIGNED,
            text="Regret of DP-CoLin rises with the number of users.",
            otherwise=ENOUGH_NEIGHBOURS,
        ),
        Trend(
            "DP-GOBLin, as published",
            facet=SIGNED,
            text="Regret of DP-GOBLin rises with the number of users.",
            otherwise=ENOUGH_NEIGHBOURS,
        ),
        *(
            Trend(
                f"LDP-{name}, as published",
                above=f"DP-{name}, as published",
                facet=SIGNED,
                text=f"What local privacy costs beyond global grows with the number of users ({name}).",
            )
            for name in ("CoLin", "GOBLin")
        ),
        Trend(
            "DP-CoLin, as published",
            facet=AS_PRINTED,
            text="With contexts as printed, too, regret of DP-CoLin rises with the number of users.",
            otherwise=SCALE_FALLS,
        ),
        Below(
            "DP-CoLin, as published",
            "LDP-CoLin, as published",
            facet=AS_PRINTED,
            text="With contexts as printed, too, local privacy costs more (CoLin).",
            otherwise=WORSE_THAN_RANDOM,
        ),
        *(
            Below(
                "DP-CoLin, proven",
                "LDP-CoLin, as published",
                facet=facet,
                text=f"Proven privacy, global or local, is below it ({facet}).",
                ours=True,
            )
            for facet in BUDGETS
        ),
    ),
)
