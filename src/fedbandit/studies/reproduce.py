"""Experiments from plan to report: run what is not yet done, keep each run, write each report as it is ready."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from fedbandit._version import __version__
from fedbandit.engine.plot import require_matplotlib
from fedbandit.environments.block import actions_per_round, world_of
from fedbandit.errors import FedbanditError
from fedbandit.files import make_folder, require_format, write_json, write_table, write_text
from fedbandit.studies.experiment import Experiment
from fedbandit.studies.figures import draw_panels, save_figure
from fedbandit.studies.measured import MEASURES, Measured, capitalised, curve_rows
from fedbandit.studies.report import index_page, report_page, tables_of
from fedbandit.studies.specs import Spec, described
from fedbandit.studies.store import Store, address_of, code_version, versions_of
from fedbandit.studies.trials import Label, Point, Refusal, Run, Trial
from fedbandit.studies.workers import Workers, bundled

Summary = dict[str, Any]
LIBRARIES = ("numpy", "scipy", "numba", "matplotlib", "pyarrow")

LONG = 5_000_000
"""Interactions from which on a run saves its state as it goes."""


class Shard(NamedTuple):
    """One of so many shares of the trials, for a batch system in which each job has a number."""

    number: int
    shares: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """The second of eight is 2/8.

        >>> Shard.parse("2/8")
        Shard(number=2, shares=8)
        """
        number, _, shares = text.partition("/")
        if not (number.isdecimal() and shares.isdecimal() and 1 <= int(number) <= int(shares)):
            raise FedbanditError(f"The shard is {text!r}, but must be of the form 2/8: the second of eight.")
        return cls(int(number), int(shares))

    def of(self, trials: Sequence[Trial]) -> list[Trial]:
        """Its trials; those that share contexts stay together, and every trial is in one shard."""
        bundles = bundled(trials, 1)
        return [trials[place] for bundle in bundles[self.number - 1 :: self.shares] for place in bundle]


@dataclass
class Plan:
    """All trials of an experiment at a scale; `skipped` says why points are missing."""

    experiment: Experiment
    scale: str
    trials: list[Trial] = field(default_factory=list)
    skipped: dict[Label, str] = field(default_factory=dict)
    points: dict[Label, Summary] = field(default_factory=dict)  # described for the report


def make_plan(experiment: Experiment, scale: str, store: Store, *, strict: bool = False) -> Plan:
    """Make systems and environments; what cannot be made is skipped with the reason, or refused if `strict`."""
    plan = Plan(experiment, scale)
    chosen = experiment.scale(scale)
    for point in chosen.points:
        try:
            _add(plan, point, range(chosen.first_seed, chosen.first_seed + chosen.seeds), store, strict)
        except FedbanditError as error:
            if strict:
                raise
            plan.skipped[point.label] = str(error)
    return plan


def _add(plan: Plan, point: Point, seeds: range, store: Store, strict: bool) -> None:
    system, env = point.make_system(), point.make_environment()
    horizon = point.horizon if env.longest is None else min(point.horizon or env.longest, env.longest)
    if horizon is None:
        raise FedbanditError(f"{point.label.text} needs a horizon: {env.name} has no end of its own.")
    world = world_of(env, horizon)
    if strict:
        system.told(world)  # whatever is wrong is said before anything is run
    names = {"system": described(point.system), "environment": described(point.env)}
    plan.points[point.label] = {"point": point.label.text, **names, "horizon": horizon}
    if not isinstance(point.system, Spec):
        point = replace(point, system=system)  # a worker need not be able to import the function that made it
    for seed in seeds:
        trial = Trial(point, horizon, seed, interactions=horizon * actions_per_round(env))
        trial = replace(trial, address=address_of(trial, system, env))
        if trial.interactions >= LONG:
            trial = replace(trial, checkpoint=str(store.checkpoint(trial.address)))
        plan.trials.append(trial)


def reproduce(
    experiments: Sequence[Experiment],
    scale: str,
    out: Path,
    *,
    workers: Workers | None = None,
    shard: Shard | None = None,
    strict: bool = False,
    command: str = "",
    begin: Callable[[int, int], object] = lambda _total, _done: None,
    progress: Callable[[int], object] = lambda _interactions: None,
    finished: Callable[[Summary], object] = lambda _summary: None,
) -> list[Summary]:
    """Run experiments and write their reports to `out`, and a page that shows all that are there.

    Runs that `out` has already are not repeated. With a `shard` only its trials are run: give the others to other
    machines that see the same folder; reports are written by whoever finds all runs there. `begin` is told how many
    interactions there are in all and how many are done already, `progress` how many were done since; `finished` gets
    each summary as its report is written.
    """
    workers = workers or Workers()
    require_matplotlib()
    require_format("parquet")
    store = Store.open(out)
    plans = [make_plan(experiment, scale, store, strict=strict) for experiment in experiments]
    trials = {trial.address: trial for plan in plans for trial in plan.trials}
    kept = {address: store.get(address, trial.point.label) for address, trial in trials.items()}
    runs: dict[str, Run | Refusal] = {address: run for address, run in kept.items() if run is not None}
    mine = trials if shard is None else {trial.address: trial for trial in shard.of(list(trials.values()))}
    due = [trial for address, trial in mine.items() if address not in runs]
    total = sum(trial.interactions for trial in mine.values())
    begin(total, total - sum(trial.interactions for trial in due))
    waiting = list(plans)
    summaries: list[Summary] = []

    def write_finished() -> None:
        for plan in list(waiting):
            if all(trial.address in runs for trial in plan.trials):
                waiting.remove(plan)
                summaries.append(write_experiment(plan, runs, out, command))
                finished(summaries[-1])

    def keep(position: int, run: Run | Refusal) -> None:
        trial = due[position]
        if isinstance(run, Run):
            store.put(trial.address, run)
        elif strict:
            raise FedbanditError(f"{trial.point.label.text}: {run.reason}")
        runs[trial.address] = run
        progress(trial.interactions)
        write_finished()

    write_finished()
    workers.run(due, keep)
    if shard is not None:  # others may have done theirs meanwhile
        for address in trials.keys() - runs.keys():
            run = store.get(address, trials[address].point.label)
            if run is not None:
                runs[address] = run
        write_finished()
    write_index(out)
    return summaries


def write_experiment(plan: Plan, runs: dict[str, Run | Refusal], out: Path, command: str) -> Summary:
    """Write tables, figures and the report of an experiment whose runs are all there."""
    experiment = plan.experiment
    folder = out / experiment.name / plan.scale
    make_folder(folder)
    measured, skipped = _measured(plan, runs)
    summary = _summary(plan, measured, skipped, command)
    picture, tables = None, []
    if measured.runs:
        write_table(folder / "runs.parquet", _run_rows(plan, measured))
        write_table(folder / "curves.parquet", curve_rows(measured.rows(), measured.every()))
        tables = tables_of(experiment, measured)
        write_text(folder / "table.md", "\n".join(table.markdown() for table in tables))
        write_text(folder / "table.tex", "\n".join(table.latex() for table in tables))
        figure = draw_panels(experiment.panels, measured, capitalised(experiment.title))
        save_figure(figure, folder / "figure.pdf")
        picture = save_figure(figure, folder / "figure.png").read_bytes()
    write_json(folder / "summary.json", summary)
    write_text(folder / "report.html", report_page(summary, tables, picture))
    return summary


def write_index(out: Path) -> Path:
    """The page of all experiments that a folder has, at whatever scale."""
    found = []
    for path in sorted(out.glob("*/*/*/summary.json")):
        try:
            found.append(json.loads(path.read_text(encoding="utf-8")))
        except ValueError:
            continue
    return write_text(out / "index.html", index_page(found))


def _measured(plan: Plan, runs: dict[str, Run | Refusal]) -> tuple[Measured, dict[Label, str]]:
    """The runs of a plan, each under the label that it has there, and the reasons for what is missing."""
    found, skipped = [], dict(plan.skipped)
    for trial in plan.trials:
        run, label = runs[trial.address], trial.point.label
        if isinstance(run, Refusal):
            skipped[label] = run.reason
        else:
            found.append(replace(run, label=label))
    return Measured.of(run for run in found if run.label not in skipped), skipped


def _summary(plan: Plan, measured: Measured, skipped: dict[Label, str], command: str) -> Summary:
    experiment, every = plan.experiment, measured.every()
    findings = [claim.find(measured, plan.scale) for claim in experiment.claims]
    return {
        "name": experiment.name,
        "title": experiment.title,
        "scale": plan.scale,
        "seeds": experiment.scale(plan.scale).seeds,
        "runs": len(every),
        "seconds": round(sum(run.report["seconds"] for run in every), 3),
        "reference": experiment.reference,
        "reports": experiment.reports,
        "remarks": list(experiment.remarks),
        "claims": [
            {"text": claim.text, **finding._asdict(), "otherwise": claim.otherwise, "ours": claim.ours}
            for claim, finding in zip(experiment.claims, findings, strict=True)
        ],
        "skipped": {label.text: reason for label, reason in skipped.items()},
        "guarantees": {label.text: runs[0].report["guarantee"] for label, runs in measured.runs.items()},
        "points": [point for label, point in plan.points.items() if label in measured.runs],
        "versions": {"fedbandit": __version__, "Python": platform.python_version(), **versions_of(*LIBRARIES)},
        "code": code_version(),
        "command": command,
    }


def _run_rows(plan: Plan, measured: Measured) -> list[dict[str, Any]]:
    """One row for each run. Seconds differ from run to run, so they stand in summary.json only."""
    addresses = {(trial.point.label, trial.seed): trial.address for trial in plan.trials}
    found = (name for name in MEASURES if any(measured.has(label, name) for label in measured.runs))
    measures = [name for name in found if name != "seconds"]
    return [
        {
            **row,
            "system": plan.points[run.label]["system"],
            "environment": plan.points[run.label]["environment"],
            "horizon": run.report["horizon"],
            "guarantee": run.report["guarantee"],
            "address": addresses[run.label, run.report["seed"]],
        }
        for row, run in zip(measured.rows(measures), measured.every(), strict=True)
    ]
