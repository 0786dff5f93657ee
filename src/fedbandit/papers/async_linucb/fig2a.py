"""Async-LinUCB, Fig. 2(a): regret against communication, clients equally active."""

from fedbandit.papers.async_linucb.thresholds import SIX, TWELVE, homogeneous_fronts
from fedbandit.studies.claims import better_front, trend
from fedbandit.studies.declaration import Experiment, Scale
from fedbandit.studies.panels import Tradeoff

WORLD = "homogeneous:n_clients=1000,dim=25,n_arms=25"
OUR_REMARKS = (
    "σ is not printed: 0.1 here, as in the authors' code; λ = δ = 0.1, and the width of log det V instead of theirs.",
    "The paper's clients start with nothing and wait for a download (Alg. 2); with a thousand clients the blind first "
    "pulls cost a regret of some hundred whatever the threshold. With warm join a client downloads when it joins, as "
    "members of a synchronous federation do.",
)

EXPERIMENT = Experiment(
    title="regret against communication, clients equally active",
    reference="Li & Wang 2022, Fig. 2(a), §4: N = 1000, T = 30,000, d = K = 25, 10 runs",
    reports="Both algorithms trade regret for communication smoothly. With uniform arrivals Sync-LinUCB communicates "
    "less than Async-LinUCB at the same regret.",
    remarks=OUR_REMARKS,
    scales={
        "quick": Scale(homogeneous_fronts(SIX, WORLD, 30_000), seeds=2),
        "paper": Scale(homogeneous_fronts(TWELVE, WORLD, 30_000), seeds=10),
    },
    panels=(Tradeoff(),),
    value_name="threshold",
    claims=(
        trend("Async-LinUCB", direction="rises", text="Regret of Async-LinUCB rises with its threshold."),
        trend(
            "Async-LinUCB",
            measure="messages",
            direction="falls",
            otherwise="They fall but for one step, around γ = 1 + 1/λ = 11: above it a client's first pull (‖x‖ ≤ 1) "
            "no longer suffices to make it upload.",
        ),
        trend("Sync-LinUCB", direction="rises", text="Regret of Sync-LinUCB rises with its threshold."),
        trend("Sync-LinUCB", measure="messages", direction="falls"),
        better_front("Sync-LinUCB", "Async-LinUCB"),
        better_front("Sync-LinUCB", "Async-LinUCB, warm join", ours=True),
    ),
)
