"""Private collaborative bandits, Fig. 1(a): regret on synthetic data."""

from fedbandit.papers.private_collaborative import REMARKS, WORSE_THAN_RANDOM, compared, world
from fedbandit.studies import Below, Curves, Experiment, Ordered, Scale

EXPERIMENT = Experiment(
    title="collaboration on a graph, with and without privacy",
    reference="Wang et al. 2020, Fig. 1(a), §6: N = 10, pool 1,000, 10 arms, T = 30,000, ε = 2",
    reports="Non-private collaboration is best; global privacy (DP) costs regret, local privacy (LDP) much more; "
    "DP-CoLin and DP-GOBLin are below DP-LinUCB.",
    remarks=REMARKS,
    scales={
        "quick": Scale(compared(world(), 10_000), seeds=3),
        "paper": Scale(compared(world(), 30_000), seeds=5),
    },
    panels=(Curves(),),
    measures=("regret",),
    claims=(
        Below("CoLin", "LinUCB", text="Collaboration helps: CoLin is below LinUCB."),
        Below("GOBLin", "LinUCB", text="So is GOBLin."),
        Ordered(
            ("CoLin", "DP-CoLin, as published", "LDP-CoLin, as published"), text="Privacy costs, local privacy more."
        ),
        Ordered(
            ("GOBLin", "DP-GOBLin, as published", "LDP-GOBLin, as published"),
            text="The same for GOBLin.",
            otherwise=WORSE_THAN_RANDOM,
        ),
        Below("DP-CoLin, as published", "random arms", text="DP-CoLin learns.", otherwise=WORSE_THAN_RANDOM),
        Below("DP-CoLin, proven", "random arms", text="With proven noise it does.", ours=True),
        Below("DP-CoLin, proven", "DP-LinUCB, proven", text="Private collaboration beats private learning alone."),
        Below("DP-GOBLin, proven", "DP-LinUCB, proven", text="Also for GOBLin."),
    ),
)
