"""Runs of a comparison as runs of MLflow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedbandit.errors import FedbanditError, needs, whole_number
from fedbandit.studies.trials import Run

BATCH = 1000  # metrics that MLflow takes at once


def write_runs(runs: Sequence[Run], experiment: str, points: int = 200) -> list[str]:
    """One MLflow run for each, with `points` of each curve; their ids."""
    whole_number("points", points)
    mlflow = needs("mlflow", "mlflow", "Writing to MLflow")
    try:
        client = mlflow.MlflowClient()
        found = client.get_experiment_by_name(experiment)
        place = client.create_experiment(experiment) if found is None else found.experiment_id
        return [_write(client, mlflow.entities, place, run, points) for run in runs]
    except mlflow.exceptions.MlflowException as error:
        raise FedbanditError(f"MLflow refuses: {' '.join(str(error).split())}") from error


def _write(client: Any, entities: Any, experiment: str, run: Run, points: int) -> str:
    """Totals at the last round, curves at theirs."""
    rounds = run.curve[0]
    kept = np.unique(np.linspace(0, len(rounds) - 1, points).astype(int))
    totals = {k: float(v) for k, v in run.report.items() if isinstance(v, int | float) and k not in ("horizon", "seed")}
    metrics = [entities.Metric(name, value, 0, int(rounds[-1])) for name, value in totals.items()]
    for name, curve in zip(run.curve._fields[1:], run.curve[1:], strict=True):
        metrics += [entities.Metric(f"curve.{name}", float(curve[k]), 0, int(rounds[k])) for k in kept]
    params = [entities.Param(k, str(v)) for k, v in run.report.items() if k not in totals and k != "privacy"]
    name = f"{run.label.text}, seed {run.report['seed']}"
    identity: str = client.create_run(experiment, run_name=name).info.run_id
    client.log_batch(identity, params=params)
    for start in range(0, len(metrics), BATCH):
        client.log_batch(identity, metrics=metrics[start : start + BATCH])
    client.set_terminated(identity)
    return identity
