"""Async-LinUCB with privacy: what a budget costs, and what communication buys under it."""

from __future__ import annotations

from functools import partial

from fedbandit.environments import homogeneous
from fedbandit.presets import async_linucb, linucb
from fedbandit.privacy import NoisyRewards, PrivateStatistics
from fedbandit.studies import Below, Experiment, Point, Scale, Sweep, Tradeoff, Trend
from fedbandit.system import System

below = partial(Below, facet="budget", ours=True)
trend = partial(Trend, facet="budget", ours=True)

DELTA = 1e-5
BOTH, REWARDS = "contexts and rewards private", "rewards private"


def _async(gamma: float, privacy: PrivateStatistics | NoisyRewards | None = None) -> partial[System]:
    return partial(async_linucb, gamma_upload=gamma, gamma_download=gamma, warm_join=True, privacy=privacy)


def _points(n_clients: int, horizon: int, budgets: tuple[float, ...], gammas: tuple[float, ...]) -> list[Point]:
    env = homogeneous(n_clients=n_clients, dim=10, n_arms=10, rewards="bernoulli")
    points = []
    for epsilon in budgets:
        statistics, rewards = _async(1.5, PrivateStatistics(epsilon, DELTA)), _async(1.5, NoisyRewards(epsilon))
        points.append(Point(BOTH, statistics, env, horizon, value=epsilon, facet="budget"))
        points.append(Point(REWARDS, rewards, env, horizon, value=epsilon, facet="budget"))
    points.append(Point("learning alone", linucb, env, horizon, facet="budget"))
    points.append(Point("not private", _async(1.5), env, horizon, facet="budget"))
    for gamma in gammas:
        statistics, rewards = _async(gamma, PrivateStatistics(4.0, DELTA)), _async(gamma, NoisyRewards(4.0))
        points.append(Point("not private", _async(gamma), env, horizon, value=gamma, facet="thresholds"))
        points.append(Point(REWARDS, rewards, env, horizon, value=gamma, facet="thresholds"))
        points.append(Point(BOTH, statistics, env, horizon, value=gamma, facet="thresholds"))
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
        trend(BOTH, direction="falls", text="More budget, less regret (contexts and rewards)."),
        trend(REWARDS, direction="falls", text="More budget, less regret (rewards)."),
        below(
            BOTH,
            "learning alone",
            factor=0.9,
            text="Protecting contexts and rewards is at any budget at most a tenth above learning alone.",
        ),
        below(
            "not private",
            BOTH,
            text="Privacy costs regret.",
            otherwise="Not where the budget is large: under privacy clients speak by how their own observations have "
            "grown, without by the determinant of all that they know, which one client of many seldom moves.",
        ),
    ),
)
