"""What is measured beside totals and curves: clusters, rewards by activity, errors of estimates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np

from fedbandit.engine import Result
from fedbandit.engine.simulation import Simulation
from fedbandit.environments import Environment, LikedItems
from fedbandit.errors import FedbanditError, unknown
from fedbandit.evaluation.likes import by_activity
from fedbandit.types import Array

Extra: TypeAlias = dict[str, Any]
Traces: TypeAlias = dict[str, Array]

TRACE_POINTS = 40


class Watcher(Protocol):
    """Measures something of one simulation."""

    def look(self) -> None:
        """Called whenever the simulation has advanced."""
        ...

    def finish(self, result: Result, /) -> tuple[Extra, Traces]:
        """What was found, and how it went."""
        ...


class AtTheEnd:
    """Measures the result alone."""

    def __init__(self, measure: Callable[[Result, Environment], Extra], env: Environment) -> None:
        self.measure, self.env = measure, env

    def look(self) -> None:
        """Nothing yet."""

    def finish(self, result: Result) -> tuple[Extra, Traces]:
        """What the result shows."""
        return self.measure(result, self.env), {}


def watch(simulation: Simulation, extra: str) -> Watcher:
    """A watcher for what `extra` names."""
    if extra == "estimates":
        return Estimates(simulation)
    if extra not in EXTRAS:
        raise unknown("extra", extra, (*EXTRAS, "estimates"))
    return AtTheEnd(EXTRAS[extra], simulation.env)


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


class Estimates:
    """The mean over users of ‖θ̂ − θ‖, θ being what a user's rewards follow, over time."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        env = simulation.env
        stream: Any = env.open(simulation.seed)
        if not hasattr(stream, "parameters"):
            raise FedbanditError(
                f"The environment {env.name} has no parameters that an estimate could be compared with."
            )
        self.theta = stream.parameters[0][np.resize(stream.taste, env.n_clients)]
        self.rounds: list[int] = []
        self.errors: list[float] = []
        self.due = 0

    def look(self) -> None:
        """Note the error now and then, and at the end."""
        simulation = self.simulation
        if simulation.round >= self.due or simulation.finished:
            self.rounds.append(simulation.round)
            wrong = _estimates(simulation, simulation.env) - self.theta
            self.errors.append(float(np.linalg.norm(wrong, axis=1).mean()))
            self.due = simulation.round + simulation.horizon // TRACE_POINTS

    def finish(self, _result: Result) -> tuple[Extra, Traces]:
        """The last error, and all of them."""
        traces = {"round": np.array(self.rounds, dtype=np.float64), "estimation_error": np.array(self.errors)}
        return {"estimation_error": self.errors[-1]}, traces


def _estimates(simulation: Simulation, env: Environment) -> Array:
    """What arms of each user are scored with; zero for a user that has not acted."""
    learner: Any = simulation.learner
    if hasattr(learner, "parameters"):
        return np.asarray(learner.parameters())
    from fedbandit.engine.fast.rows import RowsLearner  # here: it needs a compiler
    from fedbandit.engine.fast.statistics import theta_of

    several = isinstance(learner, RowsLearner) and learner.row_of is None and learner.seats.seat_of.size > env.n_clients
    if not isinstance(learner, RowsLearner) or several:  # several estimators for each user, used in turn
        raise FedbanditError(f"{simulation.system.name} does not show its estimates.")
    learner.settle()
    seats = learner.seats.seat_of[np.arange(env.n_clients) if learner.row_of is None else learner.row_of]
    return np.array([theta_of(learner.rows[s], env.dim) if s >= 0 else np.zeros(env.dim) for s in seats])


EXTRAS: dict[str, Callable[[Result, Environment], Extra]] = {
    "": lambda _result, _env: {},
    "clusters": found_clusters,
    "activity": rewards_by_activity,
}
