"""Comparisons in MLflow: what was measured is what it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedbandit as fb

pytest.importorskip("mlflow", reason="MLflow is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A file store of its own."""
    import mlflow

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setattr("mlflow.tracking._tracking_service.utils._tracking_uri", None)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tmp_path.as_uri())
    return mlflow.MlflowClient()


def test_runs_have_parameters_totals_and_curves(client: Any) -> None:
    env = fb.environments.homogeneous(n_clients=5, dim=3, n_arms=4)
    comparison = fb.compare([fb.linucb(), fb.async_linucb()], env, 400, seeds=2)
    for identity, run in zip(comparison.to_mlflow("mine", points=300), comparison.runs, strict=True):
        kept = client.get_run(identity)
        assert kept.info.status == "FINISHED"
        assert kept.data.params["system"] == run.report["system"]
        assert kept.data.params["seed"] == str(run.report["seed"])
        assert kept.data.metrics["regret"] == run.report["regret"]
        curve = client.get_metric_history(identity, "curve.regret")
        assert curve[-1].step == 400
        assert curve[-1].value == pytest.approx(run.report["regret"])
        assert len(curve) == min(300, len(run.curve[0]))
    assert client.get_experiment_by_name("mine") is not None


@pytest.mark.usefixtures("client")
def test_where_mlflow_refuses_it_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "false")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "another").as_uri())
    env = fb.environments.homogeneous(n_clients=2, dim=2, n_arms=2)
    with pytest.raises(fb.FedbanditError, match="MLflow refuses"):
        fb.compare([fb.linucb()], env, 10, seeds=1).to_mlflow()
