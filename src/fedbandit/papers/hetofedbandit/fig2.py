"""HetoFedBandit, Fig. 2: clusters of clients, synthetic: regret and communication."""

from functools import partial

from fedbandit.bounds import hetofed_regret
from fedbandit.papers.hetofedbandit import (
    ALONE,
    DIS,
    DYCLU,
    FCLUB,
    HFB,
    HFB_CODE,
    HFB_E,
    HFB_E_PRINTED,
    HFB_PRINTED,
    HFB_T0,
    OURS,
    POOL,
    TUNED,
    compared,
    world,
)
from fedbandit.studies import Below, Curves, Experiment, Grows, Overlay, Scale

THEOREM = partial(hetofed_regret, sizes=(10,) * 5, dim=25)
"""Clusters are of random size, ten on average; the term that T does not change is left out."""

EXPERIMENT = Experiment(
    title="clusters of clients, synthetic",
    reference="Blaser et al. 2024, Fig. 2, §4.2: N = 50, M = 5, d = 25, K = 25 of 1000, T = 3,000, γ = 0.85, σ = 0.1",
    reports="HetoFedBandit and -E are below the other decentralised baselines, -E closest to DyClu, which is "
    "centralised; DisLinUCB has linear regret. The paper's two communicate least, -E more than the base.",
    remarks=(
        POOL,
        TUNED,
        "Under 'as printed' with T₀ of Theorem 3.3, clients explore for most of the 3,000 rounds.",
        "clustered-linucb is this project's own system; the paper does not have it.",
    ),
    scales={
        "quick": Scale(compared(world(50, 5, 3_000), 3_000), seeds=3),
        "paper": Scale(compared(world(50, 5, 3_000), 3_000), seeds=10),
    },
    panels=(
        Curves(bounds=(Overlay(HFB_E, "Theorem 3.3, for HetoFedBandit-E", THEOREM),)),
        Curves(y="messages", log=True, without=(ALONE, DYCLU)),
    ),
    measures=("regret", "messages", "clusters", "rand_index"),
    claims=(
        Below(HFB, ALONE),
        Below(HFB_CODE, ALONE, otherwise="70 random rounds alone cost more than what is gained after them."),
        Below(
            HFB_T0,
            ALONE,
            text="As printed, with 48 rounds of exploration, it is below independent learning.",
            otherwise="With ψᶜ = 1/σ² tests find nearly everybody alike, and unlike clients learn together for ever.",
        ),
        Below(HFB_PRINTED, ALONE, text="And with T₀ of Theorem 3.3.", otherwise="T₀ is most of the horizon."),
        Below(HFB, FCLUB),
        Below(HFB_E, HFB),
        Below(
            HFB_E_PRINTED,
            HFB,
            text="So is HetoFedBandit-E to the letter.",
            otherwise="D of Alg. 2 is some eighty times that of the code, so that little is shared.",
        ),
        Below(DYCLU, HFB_E, text="DyClu, which has all data in one place, is below HetoFedBandit-E."),
        Grows(DIS, least=0.9, text="DisLinUCB has linear regret."),
        Below(HFB, FCLUB, measure="messages", text="HetoFedBandit communicates less than FCLUB_DC."),
        Below(HFB, HFB_E, measure="messages", text="HetoFedBandit communicates less than -E."),
        Below(OURS, HFB_E, text="Our own clustered federation has less regret than HetoFedBandit-E.", ours=True),
    ),
)
