"""Several systems on the same data: means over seeds with standard errors, and a table of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbandit.errors import FedbanditError
from fedbandit.studies.runner import Run, Trial
from fedbandit.studies.specs import Spec

MEASURES = ("regret", "reward", "uploads", "downloads", "scalars", "bytes", "seconds")


@dataclass(frozen=True)
class Line:
    """One system: its means over seeds, and their standard errors (none for one seed)."""

    label: str
    system: str
    guarantee: str
    runs: int
    means: dict[str, float]
    errors: dict[str, float | None]

    def as_json(self) -> dict[str, Any]:
        """The line under the names of the command line's contract."""
        return {
            "label": self.label,
            "system": self.system,
            "runs": self.runs,
            **{measure: self.means[measure] for measure in MEASURES},
            **{f"{measure}_standard_error": self.errors[measure] for measure in MEASURES},
            "guarantee": self.guarantee,
        }


def trials_of(systems: Sequence[tuple[str, Spec]], env: Spec, horizon: int, seeds: Sequence[int]) -> list[Trial]:
    """Every labelled system with every seed."""
    labels = [label for label, _ in systems]
    for label in labels:
        if labels.count(label) > 1:
            raise FedbanditError(f"{label} is given twice; give each one keywords of its own, as in {label}:ridge=1.")
    return [Trial(label, spec, env, horizon, seed) for seed in seeds for label, spec in systems]


def by_label(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs of one system together, in the order in which systems first appear."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.label, []).append(run)
    return groups


def standard_error(values: Sequence[float]) -> float | None:
    """Standard error of the mean, or None if there is one value only.

    >>> standard_error([1.0, 3.0]), standard_error([1.0])
    (1.0, None)
    """
    return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else None


def aggregate(runs: Sequence[Run]) -> list[Line]:
    """One line for each system."""
    lines = []
    for label, group in by_label(runs).items():
        values = {measure: [float(run.report[measure]) for run in group] for measure in MEASURES}
        first = group[0].report
        lines.append(
            Line(
                label=label,
                system=first["system"],
                guarantee=first["guarantee"],
                runs=len(group),
                means={measure: float(np.mean(numbers)) for measure, numbers in values.items()},
                errors={measure: standard_error(numbers) for measure, numbers in values.items()},
            )
        )
    return lines


COLUMNS = {
    "regret": ("regret", 1, 1),
    "reward": ("reward", 1, 1),
    "uploads": ("uploads", 1, 0),
    "downloads": ("downloads", 1, 0),
    "bytes": ("MB", 1e6, 2),
    "seconds": ("seconds", 1, 2),
}
"""Of the table: title, divisor and digits of each measure."""


def format_table(lines: Sequence[Line]) -> str:
    """The lines as aligned text, with the full guarantees below."""
    columns = [["system", *(line.label for line in lines)]]
    for measure, (title, scale, digits) in COLUMNS.items():
        columns.append([title, *_with_errors(lines, measure, scale, digits)])
    columns.append(["guarantee", *(line.guarantee.partition(":")[0] for line in lines)])
    rows = list(zip(*columns, strict=True))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    text = []
    for first, *numbers, last in rows:
        padded = [number.rjust(width) for number, width in zip(numbers, widths[1:-1], strict=True)]
        text.append("  ".join([first.ljust(widths[0]), *padded, last]))
    guarantees = dict.fromkeys(line.guarantee for line in lines)
    return "\n".join([*text, "", *(f"guarantee {guarantee}" for guarantee in guarantees)])


def _with_errors(lines: Sequence[Line], measure: str, scale: float, digits: int) -> list[str]:
    """One cell a line, ± one below the other."""
    errors = [line.errors[measure] for line in lines]
    texts = ["" if error is None else f"{error / scale:,.{digits}f}" for error in errors]
    widest = max(map(len, texts))
    ends = [f" ± {text:>{widest}}" if text else "" for text in texts]
    return [f"{line.means[measure] / scale:,.{digits}f}{end}" for line, end in zip(lines, ends, strict=True)]
