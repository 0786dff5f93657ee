"""A comparison on disk: runs, curves, a summary and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedbandit.environments import Environment
from fedbandit.studies.plots import draw_comparison, save_figure
from fedbandit.studies.runner import Run
from fedbandit.studies.tables import curve_rows, run_rows, write_json, write_table


def write_comparison(
    folder: Path, form: str, runs: Sequence[Run], summary: dict[str, Any], env: Environment
) -> list[Path]:
    """Write runs and curves ("csv" or "parquet"), the summary, and the picture if there is matplotlib."""
    written = [
        write_table(folder / f"runs.{form}", run_rows(runs)),
        write_table(folder / f"curves.{form}", curve_rows(runs)),
        write_json(folder / "summary.json", summary),
    ]
    if find_spec("matplotlib") is not None:
        title = f"{env.name}: N = {env.n_clients:,}, d = {env.dim}, K = {env.n_arms}"
        written.append(save_figure(draw_comparison(runs, title), folder / "regret.png"))
    return written
