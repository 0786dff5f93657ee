"""FCLUB, App. E.4: running times."""

from functools import partial

from fedbandit.environments import fclub
from fedbandit.papers.fclub import compared
from fedbandit.studies import Below, Experiment, Scale, Sweep

WORLD = partial(fclub, theta="m_theta")

EXPERIMENT = Experiment(
    title="running times",
    reference="Liu et al. 2022, App. E.4 (not at hand); the world of Fig. 2(a)",
    reports="Running times of all systems. The authors' code does 934 to 4,600 interactions a second.",
    remarks=(
        "Seconds of one process with the fast engine, compiling and the drawing of items, which all systems of a seed "
        "share, left out. Take them on a machine that has nothing else to do.",
    ),
    scales={
        "quick": Scale(compared(WORLD, 100_000), seeds=2),
        "paper": Scale(compared(WORLD, 100_000), seeds=10),
    },
    panels=(Sweep(y="seconds", title="seconds of a run"), Sweep(y="regret", title="regret")),
    measures=("seconds", "regret"),
    claims=(
        Below(
            "FCLUB-DC",
            "FCLUB",
            measure="seconds",
            ours=True,
            text="Delayed communication also saves time.",
        ),
    ),
)
