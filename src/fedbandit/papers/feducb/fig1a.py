"""FedUCB, Fig. 1(A): regret per agent over the number of agents and the privacy budget."""

from functools import partial

from fedbandit import environments
from fedbandit.papers.feducb import DELTA, OFTEN, PLAIN, PRINTED, PUBLISHED, REMARKS
from fedbandit.presets import feducb, linucb
from fedbandit.studies import Below, Curves, Experiment, MakesSystem, Point, Scale, Sweep, Trend

below = partial(Below, measure="per_client_regret", facet="agents")
trend = partial(Trend, measure="per_client_regret", facet="agents")


def _systems(budgets: tuple[float, ...]) -> dict[str, MakesSystem]:
    proven = {f"ε = {e:g}, proven": partial(feducb, epsilon=e, delta=DELTA) for e in budgets}
    published = {"ε = 1, as published": PUBLISHED, "ε = 1, as printed": PRINTED, "ε = 1, published, often": OFTEN}
    return {"learning alone": linucb, "not private": PLAIN, **proven, **published}


def _points(sizes: tuple[int, ...], short: int, long: int, budgets: tuple[float, ...]) -> list[Point]:
    """Over the number of agents for `short` rounds, and ten agents for `long` ones."""
    points = []
    for M in sizes:
        env = environments.feducb(n_clients=M, dim=10)
        systems = _systems(budgets)
        points += [Point(name, system, env, short, value=M, facet="agents") for name, system in systems.items()]
    env = environments.feducb(n_clients=10, dim=10)
    return points + [Point(name, system, env, long, facet="time") for name, system in _systems((1.0, 10.0)).items()]


EXPERIMENT = Experiment(
    title="regret per agent over agents and privacy budget",
    reference="Dubey & Pentland 2020, Fig. 1(A), §4.4: d = 10, K ≤ d², T = 10⁷, δ = 0.1, 100 trials",
    reports="Per-agent regret after T = 10⁷ for varying M and ε; 'competitive even at large privacy budget'. No "
    "numbers are printed.",
    remarks=(
        *REMARKS,
        "Ten agents are run for 10⁶ rounds at the scale paper (on the right), other numbers of agents for 10⁵: by then "
        "whoever learns has learnt. T = 10⁷ was run once: see docs/reproduction.md.",
    ),
    scales={
        "quick": Scale(_points((5, 10, 20, 40), 3_000, 6_000, (1.0, 10.0)), seeds=3),
        "paper": Scale(_points((10, 25, 50, 100), 100_000, 1_000_000, (0.1, 1.0, 10.0)), seeds=3),
    },
    panels=(
        Sweep(y="per_client_regret", x="agents M", facet="agents", log_x=True, log=True),
        Curves(y="per_client_regret", facet="time", title="ten agents", log=True),
    ),
    measures=("per_client_regret", "messages"),
    value_name="M",
    claims=(
        trend("not private", direction="falls", text="Without privacy more agents help."),
        trend("ε = 10, proven", direction="falls", text="At ε = 10 more agents help."),
        below("ε = 10, proven", "ε = 1, proven", text="More budget means less regret."),
        below("not private", "ε = 10, proven", text="Privacy costs regret."),
        below(
            "ε = 1, as published",
            "learning alone",
            text="At ε = 1 the published system is competitive: it beats learning alone.",
            otherwise="Until it synchronises an agent is alone; then noise an order of magnitude larger than needed "
            "makes it explore (random arms have a regret of 0.2 a round). The paper does not compare with learning "
            "alone; the claim is ours.",
        ),
        below(
            "ε = 1, as printed",
            "learning alone",
            text="At ε = 1 Alg. 1 as printed is competitive: it beats learning alone.",
            otherwise="Mρ_min I is larger than what agents gather in this horizon: they explore to its end.",
        ),
        below(
            "ε = 1, proven",
            "ε = 1, as published",
            factor=2.0,
            text="At ε = 1 the proven system has less than half of the regret of the published one.",
            ours=True,
        ),
        below(
            "ε = 1, proven",
            "learning alone",
            factor=0.95,
            text="At ε = 1 the proven system is at worst 5 % above learning alone: collaborating never hurts.",
            ours=True,
        ),
    ),
)
