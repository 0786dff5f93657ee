"""Private collaborative bandits, Fig. 1(a): regret on synthetic data."""

from fedbandit.papers.private_collaborative import FIRST_SEED, REMARKS, compared, world
from fedbandit.studies import Below, Curves, Experiment, Ordered, Scale

EXPERIMENT = Experiment(
    title="collaboration on a graph, with and without privacy",
    reference="Wang et al. 2020, Fig. 1(a), §6: N = 10, pool 1,000, 10 arms, T = 30,000, ε = 2",
    reports="Non-private collaboration is best; global privacy (DP) costs regret, local privacy (LDP) much more; "
    "DP-CoLin and DP-GOBLin are below DP-LinUCB.",
    remarks=REMARKS,
    scales={
        "quick": Scale(compared(world(), 10_000), seeds=4, first_seed=FIRST_SEED),
        "paper": Scale(compared(world(), 30_000), seeds=5, first_seed=FIRST_SEED),
    },
    panels=(Curves(),),
    measures=("regret",),
    claims=(
        Below("CoLin", "LinUCB", text="Collaboration helps: CoLin is below LinUCB."),
        Below("GOBLin", "LinUCB", text="So is GOBLin."),
        *(
            Ordered(
                (name, f"DP-{name}, as published", f"LDP-{name}, as published"),
                text=f"Privacy costs, local privacy more ({name}).",
            )
            for name in ("CoLin", "GOBLin")
        ),
        *(
            Below(f"DP-{name}, {how}", f"DP-LinUCB, {how}", text=f"DP-{name} is below DP-LinUCB ({how}).")
            for how in ("as published", "proven")
            for name in ("CoLin", "GOBLin")
        ),
        Below("DP-CoLin, as published", "random arms", text="DP-CoLin learns."),
        Below("DP-CoLin, proven", "DP-CoLin, as published", text="With proven noise it has less regret.", ours=True),
    ),
)
