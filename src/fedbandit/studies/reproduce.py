"""Experiments from plan to report: run what is not yet done, keep each run, write each report as it is ready."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from fedbandit._version import __version__
from fedbandit.engine.plot import require_matplotlib
from fedbandit.errors import FedbanditError
from fedbandit.studies.declaration import Experiment
from fedbandit.studies.html_report import index_page, report_page
from fedbandit.studies.markup import tables_of
from fedbandit.studies.measured import MEASURES, Key, Measured, capitalised, rows_of
from fedbandit.studies.panels import draw_experiment
from fedbandit.studies.plan import Plan, make_plan
from fedbandit.studies.plots import save_figure
from fedbandit.studies.ray_engine import on_ray, require_ray
from fedbandit.studies.runner import Refusal, Run, Trial, in_bundles, in_processes
from fedbandit.studies.store import Store, code_version
from fedbandit.studies.tables import make_folder, require_format, write_json, write_table, writing

Summary = dict[str, Any]
LIBRARIES = ("numpy", "scipy", "numba", "matplotlib", "pyarrow")


@dataclass(frozen=True)
class Where:
    """On what trials are run."""

    engine: Literal["processes", "ray"] = "processes"
    jobs: int | None = None
    address: str | None = None

    def run(self, trials: Sequence[Trial], done: Callable[[int, Run | Refusal], object]) -> None:
        """Run all trials; `done` is told the position and the run of each when those that it ran with are ready."""
        if trials:
            crew = partial(on_ray, address=self.address) if self.engine == "ray" else in_processes
            in_bundles(trials, done, self.jobs, crew)


def reproduce(
    experiments: Sequence[Experiment],
    scale: str,
    out: Path,
    *,
    where: Where | None = None,
    strict: bool = False,
    command: str = "",
    begin: Callable[[int, int], object] = lambda _total, _done: None,
    progress: Callable[[int], object] = lambda _interactions: None,
    finished: Callable[[Summary], object] = lambda _summary: None,
) -> list[Summary]:
    """Run experiments and write their reports to `out`, and a page that shows all that are there.

    Runs that `out` has already are not done again. `begin` is told how many interactions there are in all and how many
    are done already, `progress` how many were done since; `finished` gets each summary as its report is written.
    """
    where = where or Where()
    require_matplotlib()
    require_format("parquet")
    if where.engine == "ray":
        require_ray()
    store = Store.open(out)
    plans = [make_plan(experiment, scale, store, strict=strict) for experiment in experiments]
    runs = _kept(plans, store)
    cells = {cell.name: cell for plan in plans for cell in plan.cells}
    due = [cell for name, cell in cells.items() if name not in runs]
    begin(sum(cell.interactions for cell in cells.values()), sum(cells[name].interactions for name in runs))
    waiting = list(plans)
    summaries: list[Summary] = []

    def write_finished() -> None:
        for plan in list(waiting):
            if all(cell.name in runs for cell in plan.cells):
                waiting.remove(plan)
                summaries.append(write_experiment(plan, runs, out, command))
                finished(summaries[-1])

    def keep(position: int, run: Run | Refusal) -> None:
        cell = due[position]
        if isinstance(run, Run):
            store.put(cell.name, run)
        elif strict:
            raise FedbanditError(f"{cell.trial.label}: {run.reason}")
        runs[cell.name] = run
        progress(cell.interactions)
        write_finished()

    write_finished()
    where.run([cell.trial for cell in due], keep)
    write_index(out)
    return summaries


def _kept(plans: Sequence[Plan], store: Store) -> dict[str, Run | Refusal]:
    """Runs that were done before."""
    kept: dict[str, Run | Refusal] = {}
    for cell in (cell for plan in plans for cell in plan.cells):
        run = store.get(cell.name, cell.trial.label)
        if run is not None:
            kept[cell.name] = run
    return kept


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
        write_table(folder / "curves.parquet", _curve_rows(measured))
        tables = tables_of(experiment, measured)
        _write_text(folder / "table.md", "\n".join(table.markdown() for table in tables))
        _write_text(folder / "table.tex", "\n".join(table.latex() for table in tables))
        figure = draw_experiment(experiment.panels, measured, f"{capitalised(experiment.title)} ({_seeds(summary)})")
        save_figure(figure, folder / "figure.pdf")
        picture = save_figure(figure, folder / "figure.png").read_bytes()
    write_json(folder / "summary.json", summary)
    _write_text(folder / "report.html", report_page(summary, tables, picture))
    return summary


def write_index(out: Path) -> Path:
    """The page of all experiments that a folder has, at whatever scale."""
    found = []
    for path in sorted(out.glob("*/*/*/summary.json")):
        try:
            found.append(json.loads(path.read_text(encoding="utf-8")))
        except ValueError:
            continue
    return _write_text(out / "index.html", index_page(found))


def _measured(plan: Plan, runs: dict[str, Run | Refusal]) -> tuple[Measured, dict[Key, str]]:
    by_key: dict[Key, list[Run]] = {}
    skipped, refused = dict(plan.skipped), set()
    for cell in plan.cells:
        run = runs[cell.name]
        if isinstance(run, Refusal):
            skipped[cell.key] = run.reason
            refused.add(cell.key)
        else:
            by_key.setdefault(cell.key, []).append(run)
    kept = {key: group for key, group in by_key.items() if key not in refused}
    return Measured(kept, {cell.key: cell.n_clients for cell in plan.cells}), skipped


def _summary(plan: Plan, measured: Measured, skipped: dict[Key, str], command: str) -> Summary:
    experiment = plan.experiment
    claims = []
    for claim in experiment.claims:
        finding = claim.find(measured, plan.scale)
        claims.append(
            {
                "text": claim.text,
                "holds": finding.holds,
                "numbers": finding.numbers,
                "otherwise": claim.otherwise,
                "ours": claim.ours,
            }
        )
    every = [run for runs in measured.runs.values() for run in runs]
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
        "claims": claims,
        "skipped": {key.text: reason for key, reason in skipped.items()},
        "guarantees": {key.text: runs[0].report["guarantee"] for key, runs in measured.runs.items()},
        "points": [
            {"point": key.text, "system": system, "environment": env, "horizon": horizon}
            for key, (system, env, horizon) in plan.points.items()
            if key in measured.runs
        ],
        "versions": _versions(),
        "code": code_version(),
        "command": command,
    }


def _versions() -> dict[str, str]:
    found = {"fedbandit": __version__, "Python": platform.python_version()}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return found


def _run_rows(plan: Plan, measured: Measured) -> list[dict[str, Any]]:
    """One line for each run. Seconds differ from run to run, so they stand in summary.json only."""
    names = {(cell.key, cell.trial.seed): cell.name for cell in plan.cells}
    measures = [name for name in MEASURES if any(measured.has(key, name) for key in measured.runs)]
    runs = [(key, run) for key, group in measured.runs.items() for run in group]
    return [
        {
            **row,
            "system": plan.points[key][0],
            "environment": plan.points[key][1],
            "horizon": run.report["horizon"],
            "guarantee": run.report["guarantee"],
            "cell": names[key, run.report["seed"]],
        }
        for row, (key, run) in zip(rows_of(measured, measures), runs, strict=True)
    ]


def _curve_rows(measured: Measured) -> list[dict[str, Any]]:
    """One line for each run and each kept round."""
    return [
        {
            **label,
            **{name: number.item() for name, number in zip(run.curve._fields, point, strict=True)},
        }
        for label, run in zip(rows_of(measured, ()), [r for g in measured.runs.values() for r in g], strict=True)
        for point in zip(*run.curve, strict=True)
    ]


def _seeds(summary: Summary) -> str:
    return "one seed" if summary["seeds"] == 1 else f"mean ± standard error of {summary['seeds']} seeds"


def _write_text(path: Path, text: str) -> Path:
    with writing(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return path
