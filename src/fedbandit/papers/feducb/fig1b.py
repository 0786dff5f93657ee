"""FedUCB, Fig. 1(B): regret over time for three amounts of communication, private and not."""

import math
from functools import partial

from fedbandit import environments
from fedbandit.bounds import feducb_regret, feducb_synchronisations
from fedbandit.papers.feducb import DELTA, REMARKS
from fedbandit.presets import feducb, linucb
from fedbandit.privacy.bounds import published_bounds
from fedbandit.studies import Below, Curves, Experiment, MakesSystem, Overlay, Point, Scale, Tradeoff
from fedbandit.types import Array, Ints

below = partial(Below, measure="per_client_regret")
DIM = 10
THEOREM_1S, DISLINUCBS = "ε = 1 as published, O(M log T)", "not private, O(M^1.5 d³)"


def _independent_of_T(M: int, horizon: int) -> float:
    """D of [48], Wang et al. 2019."""
    return horizon * math.log(M * horizon) / (DIM * M)


def _theorem(rounds: Ints) -> Array:
    """Theorem 1 with the noise of the figure's M = 100 and T = 1,000."""
    noise = published_bounds(1.0, DELTA, 1_000, DIM, streams=100, failure=0.1)
    return feducb_regret(rounds, 100, DIM, *noise)


def _proposition(rounds: Ints) -> Array:
    """Prop. 1 without noise, where ρ_min = ρ_max = λ; with noise it does not hold (`feducb_synchronisations`)."""
    return feducb_synchronisations(rounds, DIM, _independent_of_T(100, 1_000), 0.1, 0.1)


def _points(M: int, horizon: int) -> list[Point]:
    """All six curves of the figure, learning alone, and ours."""
    env = environments.feducb(n_clients=M, dim=DIM)
    few, some = "theorem", _independent_of_T(M, horizon)
    amounts: dict[str, str | float] = {"O(M log T)": few, "O(M^1.5 d³)": some, "O(MT)": 0.0}
    systems: dict[str, MakesSystem] = {"learning alone": linucb}
    for name, D in amounts.items():
        shared = partial(feducb, delta=DELTA, calibration="published", threshold=D)
        systems[f"not private, {name}"] = partial(shared, epsilon=math.inf)
        systems[f"ε = 1 as published, {name}"] = partial(shared, epsilon=1.0)
    for epsilon in (1.0, 10.0):
        systems[f"ε = {epsilon:g}, proven"] = partial(feducb, epsilon=epsilon, delta=DELTA)
    return [Point(series, system, env, horizon) for series, system in systems.items()]


EXPERIMENT = Experiment(
    title="regret over time for different amounts of communication",
    reference="Dubey & Pentland 2020, Fig. 1(B), §4.4: M = 100, n = O(M^1.5), O(M log T), O(MT), ε = 1, δ = 0.1",
    reports="More communication means less regret, private (ε = 1) and not: 'a tradeoff as highlighted in Remark 1'.",
    remarks=(
        *REMARKS,
        "O(M log T) has Theorem 1's D, O(M^1.5 d³) that of DisLinUCB, which Remark 1 cites, T log(MT)/(dM), and O(MT) "
        "D = 0. At these sizes M^1.5 d³ is more than M log T: the order of the figure's legend is that of large T. "
        "With D = 0 everybody synchronises after each observation, M times a round: M²T uploads, so the horizon is "
        "short.",
    ),
    scales={"quick": Scale(_points(10, 1_000), seeds=3), "paper": Scale(_points(100, 1_000), seeds=3)},
    panels=(
        Curves(y="per_client_regret", log=True, bounds=(Overlay(THEOREM_1S, "Theorem 1, for its D", _theorem),)),
        Tradeoff(y="per_client_regret", log=True),
        Curves(
            y="messages",
            log=True,
            without=("learning alone",),
            bounds=(Overlay(DISLINUCBS, "Prop. 1, for not private, O(M^1.5 d³)", _proposition),),
        ),
    ),
    measures=("per_client_regret", "messages"),
    claims=(
        below("not private, O(M^1.5 d³)", "not private, O(M log T)"),
        below("not private, O(MT)", "not private, O(M^1.5 d³)"),
        below(
            "ε = 1 as published, O(M^1.5 d³)",
            "ε = 1 as published, O(M log T)",
            text="With the published noise, too, more communication means less regret.",
            otherwise="An agent whose first synchronisation comes late learns from its own data until then; after "
            "it the published noise and width make it explore.",
        ),
        below(
            "ε = 1 as published, O(MT)",
            "ε = 1 as published, O(M log T)",
            text="With the published noise communicating always has less regret than O(M log T).",
            otherwise="As above: the sooner noise of this size is adopted, the more regret.",
        ),
        below(
            "ε = 1, proven",
            "ε = 1 as published, O(MT)",
            factor=2.0,
            text="The proven system has less than half of the regret of the published one that communicates always.",
            ours=True,
        ),
    ),
)
