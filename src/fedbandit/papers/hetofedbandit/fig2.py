"""HetoFedBandit, Fig. 2: clusters of clients, synthetic: regret and communication."""

from fedbandit.papers.hetofedbandit import ALONE, DIS, DYCLU, FCLUB, HFB, HFB_E, OURS, compared, world
from fedbandit.studies import Below, Curves, Experiment, Grows, Scale

EXPERIMENT = Experiment(
    title="clusters of clients, synthetic",
    reference="Blaser et al. 2024, Fig. 2, §4.2: N = 50, M = 5, d = 25, K = 25 of 1000, T = 3,000, γ = 0.85, σ = 0.1",
    reports="HetoFedBandit and -E are below the other decentralised baselines, -E closest to DyClu, which is "
    "centralised; DisLinUCB has linear regret. The paper's two communicate least, -E more than the base.",
    remarks=(
        "Contexts and parameters have norm one: the printed N(0, I) fits the printed numbers only if normalised.",
        "clustered-linucb is this project's own system; the paper does not have it.",
    ),
    scales={
        "quick": Scale(compared(world(50, 5, 3_000), 3_000), seeds=3),
        "paper": Scale(compared(world(50, 5, 3_000), 3_000), seeds=10),
    },
    panels=(Curves(), Curves(y="messages", log=True, without=(ALONE, DYCLU))),
    measures=("regret", "messages", "clusters", "rand_index"),
    claims=(
        Below(HFB, ALONE),
        Below(HFB, FCLUB),
        Below(HFB_E, HFB),
        Below(DYCLU, HFB_E, text="DyClu, which has all data in one place, is below HetoFedBandit-E."),
        Grows(DIS, least=0.9, text="DisLinUCB has linear regret."),
        Below(HFB, FCLUB, measure="messages", text="HetoFedBandit communicates less than FCLUB_DC."),
        Below(HFB, HFB_E, measure="messages", text="HetoFedBandit communicates less than -E."),
        Below(OURS, HFB_E, text="Our own clustered federation has less regret than HetoFedBandit-E.", ours=True),
    ),
)
