"""Async-LinUCB, Fig. 2(b): regret against communication, a few clients far more active than the others."""

from fedbandit.environments import homogeneous
from fedbandit.papers.async_linucb import FOUR, MESSAGES, REMARKS, TWELVE, homogeneous_fronts
from fedbandit.studies import BetterFront, Experiment, Scale, Tradeoff, Trend

WORLD = homogeneous(n_clients=1000, dim=25, n_arms=25, arrivals="skewed")

EXPERIMENT = Experiment(
    title="regret against communication, clients unequally active",
    reference="Li & Wang 2022, Fig. 2(b), §4: N = 1000, T = 30,000, d = K = 25, 10 runs",
    reports="With non-uniform arrivals Async-LinUCB communicates less than Sync-LinUCB at the same regret.",
    remarks=(
        "The paper's distribution of clients is not printed: here client i comes with probability ∝ (i + 1)^-1.5.",
        *REMARKS,
    ),
    scales={
        "quick": Scale(homogeneous_fronts(FOUR, WORLD, 30_000), seeds=3),
        "paper": Scale(homogeneous_fronts(TWELVE, WORLD, 30_000), seeds=10),
    },
    panels=(Tradeoff(), MESSAGES),
    measures=("regret", "messages", "messages_seen"),
    value_name="threshold",
    claims=(
        Trend("Async-LinUCB", measure="messages", direction="falls"),
        Trend("Sync-LinUCB", measure="messages", direction="falls"),
        BetterFront("Async-LinUCB", "Sync-LinUCB"),
        BetterFront(
            "Async-LinUCB",
            "Sync-LinUCB",
            cost="messages_seen",
            text="Also if only clients seen so far are counted, as in the authors' code.",
        ),
        BetterFront("Async-LinUCB, warm join", "Sync-LinUCB, warm join", ours=True),
    ),
)
