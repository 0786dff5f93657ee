"""From an experiment to trials: every point with every seed, and reasons for what cannot be run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from fedbandit.environments.block import actions_per_round, world_of
from fedbandit.errors import FedbanditError
from fedbandit.studies.declaration import Experiment, Point
from fedbandit.studies.measured import Key
from fedbandit.studies.runner import Trial
from fedbandit.studies.specs import Spec, build_environment, build_system
from fedbandit.studies.store import Store, address
from fedbandit.system import System

LONG = 5_000_000
"""Interactions from which on a run saves its state as it goes."""


@dataclass(frozen=True)
class Cell:
    """A trial of an experiment, and the name under which its run is kept."""

    key: Key
    trial: Trial
    name: str
    interactions: int
    n_clients: int


@dataclass
class Plan:
    """All cells of an experiment at a scale; `skipped` says why points are missing."""

    experiment: Experiment
    scale: str
    cells: list[Cell] = field(default_factory=list)
    skipped: dict[Key, str] = field(default_factory=dict)
    points: dict[Key, tuple[str, str, int]] = field(default_factory=dict)  # system, environment, rounds


def make_plan(experiment: Experiment, scale: str, store: Store, *, strict: bool = False) -> Plan:
    """Build what can be built; what cannot is skipped with the reason, or refused if `strict`."""
    plan = Plan(experiment, scale)
    chosen = experiment.scale(scale)
    for point in chosen.points:
        try:
            _add(plan, point, chosen.seeds, store, strict)
        except FedbanditError as error:
            if strict:
                raise
            plan.skipped[point.key] = str(error)
    return plan


def _add(plan: Plan, point: Point, seeds: int, store: Store, strict: bool) -> None:
    env_spec = Spec.parse(point.env)
    system, spec = made_system(point.system)
    env = build_environment(env_spec)
    horizon = point.horizon if env.longest is None else min(point.horizon or env.longest, env.longest)
    if horizon is None:
        raise FedbanditError(f"{point.key.text} needs a horizon: {point.env} has no end of its own.")
    world = world_of(env, horizon)
    if strict:
        system.told(world)  # whatever is wrong is said before anything is run
    for seed in range(seeds):
        trial = Trial(point.key.text, spec, env_spec, horizon, seed, point.extra)
        name = address(trial, system, env)
        interactions = horizon * actions_per_round(env)
        if interactions >= LONG:
            trial = replace(trial, checkpoint=str(store.checkpoint(name)))
        plan.cells.append(Cell(point.key, trial, name, interactions, env.n_clients))
    plan.points[point.key] = (spec.label if isinstance(spec, Spec) else described(system), env_spec.label, horizon)


def made_system(given: str | Callable[[], System]) -> tuple[System, System | Spec]:
    """The system, and what a worker is told: text if there is one."""
    if isinstance(given, str):
        spec = Spec.parse(given)
        return build_system(spec), spec
    system = given()
    return system, system


def described(system: System) -> str:
    """A system that was made by hand, in a line."""
    parts = (system.policy, system.protocol, system.structure, system.privacy)
    return f"{system.name}: {', '.join(map(repr, parts))}, ridge={system.ridge:g}"
