"""Several systems on the same data: means over seeds with standard errors, as text, JSON, files and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedbandit.environments import Environment, LikedItems
from fedbandit.errors import FedbanditError
from fedbandit.files import write_json, write_table
from fedbandit.presets import uniform
from fedbandit.studies.figures import draw_comparison, save_figure
from fedbandit.studies.measured import Measured, curve_rows
from fedbandit.studies.specs import EnvironmentSpec, SystemSpec
from fedbandit.studies.trials import Label, Point, Run, Trial

MEASURES = ("regret", "reward", "uploads", "downloads", "scalars", "bytes", "seconds")
RANDOM_ARMS = Label("random arms on the same stream")

Line = dict[str, Any]
"""One system, under the names of the command line's contract: means over seeds, and their standard errors."""

COLUMNS = {
    "regret": ("regret", 1, 1),
    "reward": ("reward", 1, 1),
    "uploads": ("uploads", 1, 0),
    "downloads": ("downloads", 1, 0),
    "bytes": ("MB", 1e6, 2),
    "seconds": ("seconds", 1, 2),
}
"""Of the table: title, divisor and digits of each measure."""


def trials_of(
    systems: Sequence[tuple[str, SystemSpec]], env: EnvironmentSpec, horizon: int, seeds: Sequence[int]
) -> list[Trial]:
    """Every labelled system with every seed; on data sets of likes also random arms, to normalise rewards by."""
    labels = [label for label, _ in systems]
    for label in labels:
        if labels.count(label) > 1:
            raise FedbanditError(f"{label} is given twice; give each one keywords of its own, as in {label}:ridge=1.")
    points = [Point(label, spec, env) for label, spec in systems]
    trials = [Trial(point, horizon, seed) for seed in seeds for point in points]
    if isinstance(points[0].make_environment(), LikedItems):
        trials += [Trial(Point(RANDOM_ARMS.series, uniform, env), horizon, seed) for seed in seeds]
    return trials


def compared(runs: Sequence[Run]) -> list[Run]:
    """The runs of the systems that were named, without those of random arms."""
    return [run for run in runs if run.label != RANDOM_ARMS]


def lines_of(runs: Sequence[Run]) -> list[Line]:
    """One line for each system."""
    measured, lines = Measured.of(runs), []
    for label, group in Measured.of(compared(runs)).runs.items():
        first = group[0].report
        line: Line = {"label": label.text, "system": first["system"], "runs": len(group)}
        line |= {measure: measured.mean(label, measure) for measure in MEASURES}
        line |= {f"{measure}_standard_error": measured.error(label, measure) for measure in MEASURES}
        line["guarantee"] = first["guarantee"]
        if RANDOM_ARMS in measured.runs and measured.numbers(RANDOM_ARMS, "reward").min() > 0:
            line["normalised_reward"] = measured.mean(label, "normalised_reward")
            line["normalised_reward_standard_error"] = measured.error(label, "normalised_reward")
        lines.append(line)
    return lines


def format_table(lines: Sequence[Line]) -> str:
    """The lines as aligned text, with the full guarantees and normalised rewards below."""
    columns = [["system", *(line["label"] for line in lines)]]
    for measure, (title, scale, digits) in COLUMNS.items():
        columns.append([title, *_with_errors(lines, measure, scale, digits)])
    columns.append(["guarantee", *(line["guarantee"].partition(":")[0] for line in lines)])
    rows = list(zip(*columns, strict=True))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    text = []
    for first, *numbers, last in rows:
        padded = [number.rjust(width) for number, width in zip(numbers, widths[1:-1], strict=True)]
        text.append("  ".join([first.ljust(widths[0]), *padded, last]))
    guarantees = dict.fromkeys(line["guarantee"] for line in lines)
    text += ["", *(f"guarantee {guarantee}" for guarantee in guarantees)]
    if "normalised_reward" in lines[0]:
        text += ["", f"reward over that of {RANDOM_ARMS.text}:"]
        for line in lines:
            error = line["normalised_reward_standard_error"]
            number = f"{line['normalised_reward']:7.3f}" + ("" if error is None else f" ± {error:.3f}")
            text.append(f"  {line['label'].ljust(widths[0])}  {number}")
    return "\n".join(text)


def _with_errors(lines: Sequence[Line], measure: str, scale: float, digits: int) -> list[str]:
    """One entry a line, ± one below the other."""
    errors = [line[f"{measure}_standard_error"] for line in lines]
    texts = ["" if error is None else f"{error / scale:,.{digits}f}" for error in errors]
    widest = max(map(len, texts))
    ends = [f" ± {text:>{widest}}" if text else "" for text in texts]
    return [f"{line[measure] / scale:,.{digits}f}{end}" for line, end in zip(lines, ends, strict=True)]


def write_comparison(
    folder: Path, form: str, runs: Sequence[Run], summary: dict[str, Any], env: Environment
) -> list[Path]:
    """Write runs and curves ("csv" or "parquet"), the summary, and the picture if matplotlib is there."""
    runs = compared(runs)
    labels = [{"label": run.label.text, "system": run.report["system"], "seed": run.report["seed"]} for run in runs]
    # Ledgers, which only private systems have, are left to summaries.
    rows = [{"label": run.label.text} | {k: v for k, v in run.report.items() if k != "privacy"} for run in runs]
    written = [
        write_table(folder / f"runs.{form}", rows),
        write_table(folder / f"curves.{form}", curve_rows(labels, runs)),
        write_json(folder / "summary.json", summary),
    ]
    if find_spec("matplotlib") is not None:
        title = f"{env.name}: N = {env.n_clients:,}, d = {env.dim}, K = {env.n_arms}"
        written.append(save_figure(draw_comparison(Measured.of(runs), title), folder / "regret.png"))
    return written
