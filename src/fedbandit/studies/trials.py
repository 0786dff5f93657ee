"""What is run and what comes of it: a point of an experiment, a trial of it with one seed, and the run.

A `Point` is one system on one environment, under a `Label`. A `Trial` is a point with one seed. A `Run` is what is
kept of a finished trial, a `Refusal` the reason why there is none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from fedbandit.engine import Result, fast
from fedbandit.engine.draws import Ahead
from fedbandit.engine.fast import compiling_seconds
from fedbandit.engine.plain import PlainLearner
from fedbandit.engine.plot import thinned
from fedbandit.engine.simulation import Simulation
from fedbandit.environments import Environment, LikedItems
from fedbandit.environments.block import Partitioned, world_of
from fedbandit.environments.synthetic import SyntheticStream
from fedbandit.errors import FedbanditError, shown, unknown
from fedbandit.evaluation.likes import by_activity, user_map
from fedbandit.studies.specs import hyphenated
from fedbandit.system import System
from fedbandit.types import Array, Ints
from fedbandit.world import World

CURVE_POINTS = 200
TRACE_POINTS = 40
WORTH_LOADING = 5_000
"""Interactions of a trial that take the plain engine longer than loading compiled code takes."""

CHECKPOINTS = 10
"""A long run saves its state about this often; the size of a checkpoint grows with the length of the run."""

Value: TypeAlias = float | int | str
MakesSystem: TypeAlias = Callable[[], System]
MakesEnvironment: TypeAlias = Callable[[], Environment]
Extra: TypeAlias = dict[str, Any]
Traces: TypeAlias = dict[str, Array]


def format_value(value: Value) -> str:
    """A value as a label, with few digits.

    >>> [format_value(v) for v in (0.0811, 1.01, 1000.0, 123456789.0, "M = 4")]
    ['0.0811', '1.01', '1,000', '1.23e+08', 'M = 4']
    """
    if isinstance(value, str):
        return value
    if value == int(value) and abs(value) < 1e6:
        return f"{value:,.0f}"
    return f"{value:.3g}"


class Label(NamedTuple):
    """What tells the points of an experiment apart.

    series: the line that a point belongs to; value: where on that line (a threshold, ε, a setting); facet: in which
    picture.
    """

    series: str
    value: Value = ""
    facet: str = ""

    @property
    def text(self) -> str:
        """For people."""
        return ", ".join(format_value(part) for part in (self.facet, self.series, self.value) if part != "")


@dataclass(frozen=True)
class Point:
    """One system on one environment: a curve, a dot or an entry of a table, once for each seed.

    system: a System, or a function without arguments that makes one, such as `partial(async_linucb, gamma_upload=2)`.
    env: an environment, or a function that makes one, as for data sets, which may be missing and take long to read.
        Functions need a name that worker processes can import: a partial, no lambda.
    horizon: rounds, or None for recorded data to their end.
    extra: what else is to be measured: "clusters", "activity", "map", "seen" or "estimates".
    """

    series: str
    system: System | MakesSystem
    env: Environment | MakesEnvironment
    horizon: int | None = None
    value: Value = ""
    facet: str = ""
    extra: str = ""

    @property
    def label(self) -> Label:
        """What tells it apart."""
        return Label(self.series, self.value, self.facet)

    def make_system(self) -> System:
        """The system, made if need be."""
        system = self.system() if callable(self.system) else self.system
        if not isinstance(system, System):
            raise FedbanditError(f"The system of {self.label.text} is {shown(system)}, which is not a System.")
        return system

    def make_environment(self) -> Environment:
        """The environment, made if need be."""
        return made_environment(self.env)


def made_environment(env: Environment | MakesEnvironment) -> Environment:
    """The environment, made if need be; the last few are kept, as many trials run on one data set."""
    if not callable(env):
        return env
    call = env if isinstance(env, partial) else partial(env)
    arguments = call.args, tuple(sorted(call.keywords.items()))
    try:
        hash(arguments)
    except TypeError:
        return call()
    return _kept_environment(call.func, *arguments)


@lru_cache(maxsize=4)
def _kept_environment(
    maker: Callable[..., Environment], args: tuple[Any, ...], keywords: tuple[tuple[str, Any], ...]
) -> Environment:
    return maker(*args, **dict(keywords))


@dataclass(frozen=True)
class Trial:
    """A point with one seed, for so many rounds.

    address: the name under which its run is kept. interactions: how many there are, to show progress. A long run saves
    its state to `checkpoint` now and then, and goes on from there.
    """

    point: Point
    horizon: int
    seed: int
    address: str = ""
    interactions: int = 0
    checkpoint: str | None = None


class Curve(NamedTuple):
    """Cumulative totals after some of the rounds."""

    round: Ints
    regret: Array
    reward: Array
    uploads: Ints
    downloads: Ints


@dataclass(frozen=True)
class Run:
    """A finished trial: its report and a thinned curve, small enough to send between processes."""

    label: Label
    report: dict[str, Any]
    curve: Curve
    n_clients: int
    extra: Extra = field(default_factory=dict)
    traces: Traces = field(default_factory=dict)


class Refusal(NamedTuple):
    """The reason why a trial could not be run."""

    reason: str


def accepted(run: Run | Refusal) -> Run:
    """The run, or its refusal raised."""
    if isinstance(run, Refusal):
        raise FedbanditError(run.reason)
    return run


def run_together(trials: Sequence[Trial]) -> list[Run | Refusal]:
    """Run trials of one environment, horizon and seed in this process. Contexts are drawn once for all of them.

    A trial that is refused does not end the others. Seconds do not include compiling.
    """
    first = trials[0]
    try:
        env = first.point.make_environment()
        end = world_of(env, first.horizon, first.seed).horizon
        blocks = Ahead(env.open(first.seed), end)
    except FedbanditError as error:
        return [Refusal(str(error))] * len(trials)
    if end > WORTH_LOADING and fast.is_installed():
        blocks.kernels = fast.drawing_kernels()
    ended: dict[int, Run | Refusal] = {}
    running = [run_in_steps(trial, env, blocks) for trial in trials]
    done = dict.fromkeys(range(len(trials)), -1)  # interactions; -1 until all have been set up
    while done:
        k = min(done, key=lambda k: done[k])  # they keep step: a block is drawn once and then forgotten
        try:
            done[k] = next(running[k])
            continue
        except StopIteration as end_of:
            ended[k] = end_of.value
        except FedbanditError as error:
            ended[k] = Refusal(str(error))
        del done[k]
    return [ended[k] for k in range(len(trials))]


def run_in_steps(trial: Trial, env: Environment, blocks: Ahead) -> Generator[int, None, Run]:
    """Run a trial block by block, yielding the interactions that are done; contexts are drawn on its clock."""
    point = trial.point
    if point.extra not in EXTRAS:
        raise unknown("extra", point.extra, EXTRAS)
    system, world = point.make_system(), world_of(env, trial.horizon, trial.seed)
    engine = "plain" if point.extra == "estimates" else engine_for(system.told(world), world)
    simulation = Simulation(system, env, trial.horizon, trial.seed, engine=engine, blocks=blocks)
    estimates = (
        EstimateErrors(simulation) if point.extra == "estimates" else None
    )  # the fast engine does not show models
    if trial.checkpoint is not None and estimates is None:  # a checkpoint has no trace of earlier estimates
        simulation.keep(trial.checkpoint, max(100_000, trial.horizon // CHECKPOINTS))
    seconds = 0.0
    yield simulation.done
    while not simulation.finished:
        start = time.perf_counter() - compiling_seconds()
        simulation.advance()
        if estimates is not None:
            estimates.look()
        seconds += time.perf_counter() - compiling_seconds() - start
        yield simulation.done
    result = simulation.result()
    extra, traces = EXTRAS[point.extra](result, env), {} if estimates is None else estimates.traces()
    extra |= {name: float(trace[-1]) for name, trace in traces.items() if name != "round"}
    return Run(point.label, report_of(result, seconds), curve_of(result), env.n_clients, extra, traces)


def engine_for(system: System, world: World) -> Literal["plain", "fast"]:
    """The engine of a trial: a function of the trial alone, since engines differ in the last bits.

    `simulate(…, engine="auto")` also asks what is compiled already.
    """
    known = world.horizon > WORTH_LOADING and fast.is_installed() and fast.unknown_part(system) is None
    return "fast" if known else "plain"


def report_of(result: Result, seconds: float) -> dict[str, Any]:
    """The totals of a run under the names and in the order that scripts rely on."""
    report = {**result.summary(), "system": hyphenated(result.system), "seconds": round(seconds, 4)}
    report["guarantee"] = report.pop("guarantee")  # to the end
    return report


def curve_of(result: Result, most: int = CURVE_POINTS) -> Curve:
    """The curves of a result at no more than `most` rounds."""
    at, talk = thinned(result.horizon, most), result.communication
    return Curve(at + 1, result.regret[at], result.reward[at], talk.upload_curve[at], talk.download_curve[at])


def found_clusters(result: Result, env: Environment) -> Extra:
    """The number of clusters at the end, and their agreement with the true ones; nothing without clusters."""
    if not result.clusters:
        return {}
    extra: Extra = {"clusters": len(result.clusters[-1])}
    if isinstance(env, Partitioned) and env.partition is not None:
        extra["rand_index"] = float(result.rand_index(env.partition)[-1])
    return extra


def rewards_by_activity(result: Result, env: Environment) -> Extra:
    """Clients, interactions, uploads and reward by activity of clients, in steps of ten (Async-LinUCB, Table 2)."""
    if not isinstance(env, LikedItems):
        raise FedbanditError(f"Groups by activity need a data set of likes, which {env.name} is not.")
    return {"groups": [group._asdict() for group in by_activity(result, env, width=10)]}


def users_on_a_map(_result: Result, env: Environment) -> Extra:
    """Where users are by what they liked, and how often each of them acts (Async-LinUCB, Fig. 5)."""
    if not isinstance(env, LikedItems):
        raise FedbanditError(f"A map of users needs a data set of likes, which {env.name} is not.")
    x, y = user_map(env).T.round(6).tolist()
    return {"map": {"x": x, "y": y, "activity": np.bincount(env.users, minlength=len(x)).tolist()}}


def messages_of_seen_clients(result: Result, env: Environment) -> Extra:
    """Messages, if a synchronisation is one of the clients that have acted so far (the code of Async-LinUCB).

    Its paper counts all N.
    """
    asked: Any = env, result.seed, result.horizon
    try:
        hash(asked)
    except TypeError:  # an environment that holds arrays
        seen = _clients_seen.__wrapped__(*asked)
    else:
        seen = _clients_seen(*asked)
    talk = result.communication
    sent, N = talk.per_round_uploads + talk.per_round_downloads, env.n_clients
    everybody = (talk.per_round_uploads > 0) & (talk.per_round_uploads % N == 0)
    return {"messages_seen": int(np.where(everybody, sent // N * seen, sent).sum())}


@lru_cache(maxsize=4)
def _clients_seen(env: Environment, seed: int, horizon: int) -> Ints:
    """How many clients have acted up to each round; kept, as contexts are drawn for it, and many trials ask."""
    stream, step = env.open(seed), 1024
    acting = [stream.block(t, min(t + step, horizon)).clients for t in range(0, horizon, step)]
    _, first = np.unique(np.concatenate(acting), return_index=True)
    return np.searchsorted(np.sort(first), np.arange(horizon), "right")


EXTRAS: dict[str, Callable[[Result, Environment], Extra]] = {
    "": lambda _result, _env: {},
    "clusters": found_clusters,
    "activity": rewards_by_activity,
    "map": users_on_a_map,
    "seen": messages_of_seen_clients,
    "estimates": lambda _result, _env: {},  # measured on the way, see EstimateErrors
}
"""What can be measured beside totals and curves."""


class EstimateErrors:
    """The mean over users of ‖θ̂ − θ‖ over time, θ being the parameter of a user's rewards."""

    def __init__(self, simulation: Simulation) -> None:
        env, stream, learner = simulation.env, simulation.env.open(simulation.seed), simulation.learner
        if not isinstance(stream, SyntheticStream):
            raise FedbanditError(
                f"The environment {env.name} has no parameters that an estimate could be compared with."
            )
        assert isinstance(learner, PlainLearner)
        self.simulation, self.machines = simulation, learner.machines
        self.theta = stream.parameters[0][np.resize(stream.taste, env.n_clients)]
        self.rounds: list[int] = []
        self.errors: list[float] = []
        self.due = 0

    def look(self) -> None:
        """Note the error now and then, and at the end."""
        simulation = self.simulation
        if simulation.round >= self.due or simulation.finished:
            models = (self.machines.model_of(user) for user in range(len(self.theta)))
            unit = np.eye(simulation.env.dim)
            found = [np.zeros(len(unit)) if model is None else model.means(unit) for model in models]
            wrong = np.array(found) - self.theta
            self.rounds.append(simulation.round)
            self.errors.append(float(np.linalg.norm(wrong, axis=1).mean()))
            self.due = simulation.round + simulation.horizon // TRACE_POINTS

    def traces(self) -> Traces:
        """Rounds and errors."""
        return {"round": np.array(self.rounds, dtype=np.float64), "estimation_error": np.array(self.errors)}
