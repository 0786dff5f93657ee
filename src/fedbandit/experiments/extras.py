"""What is measured beside totals and curves: clusters, rewards by activity, errors of estimates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from fedbandit.algebra import Array
from fedbandit.engine import Result, simulate
from fedbandit.engine.rows import RowsLearner
from fedbandit.engine.simulation import Simulation
from fedbandit.environments import Environment, LikedItems
from fedbandit.errors import FedbanditError, unknown
from fedbandit.evaluation.likes import by_activity
from fedbandit.statistics import theta_of
from fedbandit.system import System

Extra: TypeAlias = dict[str, Any]
Traces: TypeAlias = dict[str, Array]

TRACE_POINTS = 40
CHECKPOINTS = 10
"""A long run saves its state about this often; what it saves grows with its length."""


def measure(
    system: System, env: Environment, horizon: int, seed: int, extra: str, checkpoint: str | None
) -> tuple[Result, Extra, Traces]:
    """Simulate, and measure what `extra` names."""
    if extra == "estimates":
        return _with_estimates(system, env, horizon, seed)
    if extra not in EXTRAS:
        raise unknown("extra", extra, (*EXTRAS, "estimates"))
    every = max(100_000, horizon // CHECKPOINTS)
    result = simulate(system, env, horizon, seed, checkpoint=checkpoint, checkpoint_every=every)
    return result, EXTRAS[extra](result, env), {}


def found_clusters(result: Result, env: Environment) -> Extra:
    """How many clusters there are in the end, and how well they agree with the true ones; nothing without clusters."""
    clusters = getattr(result, "clusters", [])
    if not clusters:
        return {}
    extra: Extra = {"clusters": len(clusters[-1])}
    if hasattr(env, "partition") and hasattr(result, "rand_index"):
        extra["rand_index"] = float(result.rand_index(env.partition)[-1])
    return extra


def rewards_by_activity(result: Result, env: Environment) -> Extra:
    """Clients, interactions, uploads and reward by how active clients are, in steps of ten (Async-LinUCB, Table 2)."""
    if not isinstance(env, LikedItems):
        raise FedbanditError(f"Groups by activity need a data set of likes, which {env.name} is not.")
    return {"groups": [group._asdict() for group in by_activity(result, env, width=10)]}


def _with_estimates(system: System, env: Environment, horizon: int, seed: int) -> tuple[Result, Extra, Traces]:
    """The mean over users of ‖θ̂ − θ‖, θ being what a user's rewards follow, over time."""
    simulation = Simulation(system, env, horizon, seed)
    stream: Any = env.open(seed)
    if not hasattr(stream, "parameters"):
        raise FedbanditError(f"The environment {env.name} has no parameters that an estimate could be compared with.")
    theta = stream.parameters[0][np.resize(stream.taste, env.n_clients)]
    rounds, errors, due = [], [], 0
    while not simulation.finished:
        simulation.advance()
        if simulation.round >= due:
            rounds.append(simulation.round)
            errors.append(float(np.linalg.norm(_estimates(simulation, env) - theta, axis=1).mean()))
            due = simulation.round + horizon // TRACE_POINTS
    if rounds[-1] < simulation.round:
        rounds.append(simulation.round)
        errors.append(float(np.linalg.norm(_estimates(simulation, env) - theta, axis=1).mean()))
    traces = {"round": np.array(rounds, dtype=np.float64), "estimation_error": np.array(errors)}
    return simulation.result(), {"estimation_error": errors[-1]}, traces


def _estimates(simulation: Simulation, env: Environment) -> Array:
    """What arms of each user are scored with; zero for a user that has not acted."""
    learner: Any = simulation.learner
    if hasattr(learner, "parameters"):
        return np.asarray(learner.parameters())
    if not isinstance(learner, RowsLearner) or learner.seats.row_of.size not in (0, env.n_clients):
        raise FedbanditError(f"{simulation.system.name} does not show its estimates.")
    learner.settle()
    rows = learner.seats.row_of if learner.seats.row_of.size else np.arange(env.n_clients)
    seats = learner.seats.seat_of[rows]
    return np.array([theta_of(learner.rows[s], env.dim) if s >= 0 else np.zeros(env.dim) for s in seats])


EXTRAS: dict[str, Callable[[Result, Environment], Extra]] = {
    "": lambda _result, _env: {},
    "clusters": found_clusters,
    "activity": rewards_by_activity,
}
