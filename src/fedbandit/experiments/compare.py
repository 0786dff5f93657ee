"""Several systems on the same data: means over seeds with standard errors, and a table of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbandit.errors import FedbanditError
from fedbandit.experiments.runner import Run, Trial
from fedbandit.experiments.specs import Spec

MEASURES = ("regret", "reward", "uploads", "downloads", "scalars", "bytes", "seconds")


@dataclass(frozen=True)
class Line:
    """One system: its means over seeds, and the standard error of its regret (None for one seed)."""

    label: str
    system: str
    guarantee: str
    runs: int
    means: dict[str, float]
    regret_error: float | None

    def as_json(self) -> dict[str, Any]:
        """The line under the names of the command line's contract."""
        return {
            "label": self.label,
            "system": self.system,
            "runs": self.runs,
            "regret": self.means["regret"],
            "regret_standard_error": self.regret_error,
            **{measure: self.means[measure] for measure in MEASURES[1:]},
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
                regret_error=standard_error(values["regret"]),
            )
        )
    return lines


def format_table(lines: Sequence[Line]) -> str:
    """The lines as aligned text, with the full guarantees below."""
    header = ("system", "regret", "reward", "uploads", "downloads", "MB", "seconds", "guarantee")
    errors = ["" if line.regret_error is None else f"{line.regret_error:,.1f}" for line in lines]
    widest = max(map(len, errors))
    rows = [
        header,
        *(_cells(line, f" ± {e:>{widest}}" if e else "") for line, e in zip(lines, errors, strict=True)),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    text = []
    for first, *numbers, last in rows:
        padded = [number.rjust(width) for number, width in zip(numbers, widths[1:-1], strict=True)]
        text.append("  ".join([first.ljust(widths[0]), *padded, last]))
    guarantees = dict.fromkeys(line.guarantee for line in lines)
    return "\n".join([*text, "", *(f"guarantee {guarantee}" for guarantee in guarantees)])


def _cells(line: Line, error: str) -> tuple[str, ...]:
    means = line.means
    return (
        line.label,
        f"{means['regret']:,.1f}{error}",
        f"{means['reward']:,.1f}",
        f"{means['uploads']:,.0f}",
        f"{means['downloads']:,.0f}",
        f"{means['bytes'] / 1e6:,.2f}",
        f"{means['seconds']:,.2f}",
        line.guarantee.partition(":")[0],
    )
