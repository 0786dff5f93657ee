"""Async-LinUCB with privacy: what a budget costs, and what communication buys under it."""

from __future__ import annotations

from collections.abc import Callable

from fedbandit.presets import async_linucb
from fedbandit.privacy import NoisyRewards, PrivateStatistics
from fedbandit.studies.claims import below, trend
from fedbandit.studies.declaration import Experiment, Point, Scale
from fedbandit.studies.panels import Sweep, Tradeoff
from fedbandit.system import System

DELTA = 1e-5


def _statistics(epsilon: float, gamma: float) -> Callable[[], System]:
    private = PrivateStatistics(epsilon, DELTA)
    return lambda: async_linucb(gamma_upload=gamma, gamma_download=gamma, warm_join=True, privacy=private)


def _rewards(epsilon: float, gamma: float) -> Callable[[], System]:
    private = NoisyRewards(epsilon)
    return lambda: async_linucb(gamma_upload=gamma, gamma_download=gamma, warm_join=True, privacy=private)


def _points(n_clients: int, horizon: int, budgets: tuple[float, ...], gammas: tuple[float, ...]) -> list[Point]:
    env = f"homogeneous:n_clients={n_clients},dim=10,n_arms=10,rewards=bernoulli"
    points = []
    for epsilon in budgets:
        system = _statistics(epsilon, 1.5)
        points.append(Point("contexts and rewards private", system, env, horizon, value=epsilon, facet="budget"))
        points.append(Point("rewards private", _rewards(epsilon, 1.5), env, horizon, value=epsilon, facet="budget"))
    points.append(Point("learning alone", "linucb", env, horizon, facet="budget"))
    plain = "async-linucb:gamma_upload=1.5,gamma_download=1.5,warm_join=true"
    points.append(Point("not private", plain, env, horizon, facet="budget"))
    for gamma in gammas:
        text = f"async-linucb:gamma_upload={gamma:g},gamma_download={gamma:g},warm_join=true"
        points.append(Point("not private", text, env, horizon, value=gamma, facet="thresholds"))
        points.append(Point("rewards private", _rewards(4.0, gamma), env, horizon, value=gamma, facet="thresholds"))
        system = _statistics(4.0, gamma)
        points.append(Point("contexts and rewards private", system, env, horizon, value=gamma, facet="thresholds"))
    return points


EXPERIMENT = Experiment(
    title="asynchronous federation with privacy",
    reference="no paper: Async-LinUCB's protocol with FedUCB's kind of privacy, and with noisy rewards",
    remarks=(
        "With private statistics thresholds are factors of numbers of observations: timing then reveals nothing. A "
        "client keeps its own data exact, and weighs what others released by how much that is worth.",
        "Rewards are 0 or 1. Budgets are for one interaction; on the right ε = 4, at several thresholds γ.",
    ),
    scales={
        "quick": Scale(_points(50, 50_000, (0.5, 2.0, 8.0, 32.0), (1.2, 2.0, 5.0)), seeds=2),
        "paper": Scale(_points(200, 1_000_000, (0.25, 0.5, 1, 2, 4, 8, 16, 32), (1.1, 1.2, 1.5, 2, 3, 5, 10)), seeds=5),
    },
    panels=(
        Sweep(x="ε", facet="budget", log_x=True, log=True, title="what a budget costs"),
        Tradeoff(facet="thresholds", title="what communication buys (ε = 4)"),
    ),
    value_name="ε or γ",
    claims=(
        trend(
            "contexts and rewards private",
            facet="budget",
            direction="falls",
            text="More budget, less regret (contexts and rewards).",
            ours=True,
        ),
        trend(
            "rewards private", facet="budget", direction="falls", text="More budget, less regret (rewards).", ours=True
        ),
        below(
            "contexts and rewards private",
            "learning alone",
            facet="budget",
            factor=0.9,
            text="Protecting contexts and rewards is at any budget at most a tenth above learning alone.",
            ours=True,
        ),
        below("not private", "contexts and rewards private", facet="budget", text="Privacy costs regret.", ours=True),
    ),
)
