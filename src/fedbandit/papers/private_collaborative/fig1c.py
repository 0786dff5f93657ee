"""Private collaborative bandits, Fig. 1(c): what the number of users does."""

from fedbandit.papers.private_collaborative import AS_PRINTED, FIRST_SEED, LAB, REMARKS, compared, world
from fedbandit.studies import Below, Experiment, Point, Scale, Sweep, Trend

SCALE_FALLS = "The scale of regret itself falls with N: that of random arms does, too (see 'random arms')."
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
    return [
        point
        for facet in (LAB, AS_PRINTED)
        for N in sizes
        for point in compared(world(N, facet), horizon, value=N, facet=facet)
        if point.series in SHOWN
    ]


EXPERIMENT = Experiment(
    title="regret over the number of users",
    reference="Wang et al. 2020, Fig. 1(c), §6.3: T = 10,000 in all, N = 5 to 50, ε = 2",
    reports="Regret increases with the number of users, and the added regret of privacy does; that of LDP is roughly "
    "√N times that of DP.",
    remarks=REMARKS,
    scales={
        "quick": Scale(_points((5, 20, 50), 10_000), seeds=3, first_seed=FIRST_SEED),
        "paper": Scale(_points((5, 10, 20, 30, 40, 50), 10_000), seeds=5, first_seed=FIRST_SEED),
    },
    panels=tuple(Sweep(x="users N", log=True, facet=facet, title=facet) for facet in (LAB, AS_PRINTED)),
    measures=("regret",),
    value_name="N",
    claims=(
        *(
            Trend(name, facet=LAB, text=f"Regret of {name} rises with the number of users.", otherwise=SCALE_FALLS)
            for name in SHOWN
            if name not in ("random arms", "DP-CoLin, proven")
        ),
        *(
            Trend(
                f"LDP-{name}, as published",
                above=f"DP-{name}, as published",
                facet=LAB,
                text=f"What local privacy costs beyond global grows with the number of users ({name}).",
            )
            for name in ("CoLin", "GOBLin")
        ),
        *(
            Below(
                "DP-CoLin, as published",
                "LDP-CoLin, as published",
                facet=facet,
                text=f"Local privacy costs more at every N ({facet}).",
            )
            for facet in (LAB, AS_PRINTED)
        ),
        *(
            Below(
                "DP-CoLin, proven",
                "LDP-CoLin, as published",
                facet=facet,
                text=f"Proven privacy, global or local, is below it ({facet}).",
                ours=True,
            )
            for facet in (LAB, AS_PRINTED)
        ),
    ),
)
