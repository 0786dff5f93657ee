"""Async-LinUCB, Fig. 2(a): regret against communication, clients equally active."""

from fedbandit.environments import homogeneous
from fedbandit.papers.async_linucb import FOUR, MESSAGES, REMARKS, TWELVE, homogeneous_fronts
from fedbandit.studies import BetterFront, Experiment, Scale, Tradeoff, Trend

WORLD = homogeneous(n_clients=1000, dim=25, n_arms=25)

EXPERIMENT = Experiment(
    title="regret against communication, clients equally active",
    reference="Li & Wang 2022, Fig. 2(a), §4: N = 1000, T = 30,000, d = K = 25, 10 runs",
    reports="Both algorithms trade regret for communication smoothly. With uniform arrivals Sync-LinUCB communicates "
    "less than Async-LinUCB at the same regret.",
    remarks=REMARKS,
    scales={
        "quick": Scale(homogeneous_fronts(FOUR, WORLD, 30_000), seeds=3),
        "paper": Scale(homogeneous_fronts(TWELVE, WORLD, 30_000), seeds=10),
    },
    panels=(Tradeoff(), MESSAGES),
    measures=("regret", "messages", "messages_seen"),
    value_name="threshold",
    claims=(
        Trend("Async-LinUCB", direction="rises", text="Regret of Async-LinUCB rises with its threshold."),
        Trend(
            "Async-LinUCB",
            measure="messages",
            direction="falls",
            otherwise="They fall but for one step, around γ = 1 + 1/λ = 11: above it a client's first pull (‖x‖ ≤ 1) "
            "no longer suffices to make it upload.",
        ),
        Trend("Sync-LinUCB", direction="rises", text="Regret of Sync-LinUCB rises with its threshold."),
        Trend("Sync-LinUCB", measure="messages", direction="falls"),
        BetterFront("Sync-LinUCB", "Async-LinUCB"),
        BetterFront("Sync-LinUCB, warm join", "Async-LinUCB, warm join", ours=True),
    ),
)
