"""FedUCB, Fig. 1(C): regret per agent over the dimension."""

from functools import partial

from fedbandit import environments
from fedbandit.papers.feducb import DELTA, OFTEN, PLAIN, PUBLISHED, REMARKS
from fedbandit.presets import feducb
from fedbandit.studies import Experiment, Point, Scale, ScalesLike, Sweep, Trend


def _points(M: int, dims: tuple[int, ...], horizon: int) -> list[Point]:
    points = []
    for d in dims:
        env = environments.feducb(n_clients=M, dim=d)
        points.append(Point("not private", PLAIN, env, horizon, value=d))
        points.append(Point("ε = 1, proven", partial(feducb, epsilon=1.0, delta=DELTA), env, horizon, value=d))
        points.append(Point("ε = 1, as published", PUBLISHED, env, horizon, value=d))
        points.append(Point("ε = 1, published, often", OFTEN, env, horizon, value=d))
    return points


EXPERIMENT = Experiment(
    title="regret per agent over the dimension",
    reference="Dubey & Pentland 2020, Fig. 1(C), §4.4: M = 100, n = O(M log T), ε = 1, δ = 0.1",
    reports="'We observe essentially a quadratic dependence' of the per-agent regret on d.",
    remarks=(
        *REMARKS,
        "T = 10⁵, since a system that has not learnt by the horizon says nothing about d: with ten agents the exponent "
        "of 'published, often' is 0.95, 1.17, 1.31, 1.32 after T = 10³, 10⁴, 3·10⁴, 10⁵ rounds.",
    ),
    scales={
        "quick": Scale(_points(10, (3, 4, 6, 9), 5_000), seeds=3),
        "paper": Scale(_points(100, (3, 4, 6, 9), 100_000), seeds=3),
    },
    panels=(Sweep(y="per_client_regret", x="dimension d", log=True, log_x=True),),
    measures=("per_client_regret", "messages"),
    value_name="d",
    claims=(
        Trend("ε = 1, proven", measure="per_client_regret", direction="rises"),
        ScalesLike(
            "ε = 1, proven",
            measure="per_client_regret",
            least=1.0,
            most=3.0,
            text="Regret is like d² (a power between 1 and 3 over this range).",
        ),
        *(
            ScalesLike(
                series,
                measure="per_client_regret",
                least=1.0,
                most=3.0,
                text=f"{series.removeprefix('ε = 1, ').capitalize()}: regret is like d² (a power between 1 and 3).",
                otherwise="It still explores at this horizon: its regret is that of nearly random arms, which depends "
                "on d only through the number of arms.",
            )
            for series in ("ε = 1, as published", "ε = 1, published, often")
        ),
    ),
)
