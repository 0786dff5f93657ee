"""What was measured in an experiment: numbers and curves by label."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbandit.errors import FedbanditError, unknown
from fedbandit.studies.trials import Label, Run, Value, format_value
from fedbandit.types import Array, Ints

MEASURES = {
    "regret": "cumulative regret",
    "per_client_regret": "regret per client",
    "reward": "cumulative reward",
    "normalised_reward": "reward over that of random arms",
    "uploads": "uploads",
    "downloads": "downloads",
    "messages": "messages (uploads + downloads)",
    "messages_seen": "messages (of clients seen so far)",
    "scalars": "numbers transferred",
    "bytes": "bytes transferred",
    "seconds": "seconds",
    "estimation_error": "mean ‖θ̂ − θ‖ of users",
    "clusters": "clusters found",
    "rand_index": "adjusted Rand index of the clusters",
}
"""Names of what can be measured, and the title of an axis."""

RANDOM = "uniform"
"""The system that `normalised_reward` is relative to."""


def capitalised(text: str) -> str:
    """The text with a capital first letter; `str.capitalize` would spoil names in it."""
    return text[:1].upper() + text[1:]


def check_measure(name: str) -> None:
    """Refuse a measure that does not exist."""
    if name not in MEASURES:
        raise unknown("measure", name, MEASURES)


def standard_error(values: Sequence[float]) -> float | None:
    """Standard error of the mean, or None if there is one value only.

    >>> standard_error([1.0, 3.0]), standard_error([1.0])
    (1.0, None)
    """
    return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else None


@dataclass(frozen=True)
class Measured:
    """All finished runs of an experiment by label, each list in the order of seeds."""

    runs: Mapping[Label, list[Run]]

    @classmethod
    def of(cls, runs: Iterable[Run]) -> Measured:
        """Runs by their labels, in order of appearance."""
        groups: dict[Label, list[Run]] = {}
        for run in runs:
            groups.setdefault(run.label, []).append(run)
        return cls(groups)

    def every(self) -> list[Run]:
        """All runs, label by label."""
        return [run for runs in self.runs.values() for run in runs]

    def numbers(self, label: Label, measure: str = "regret") -> Array:
        """A measure of each run, in the order of seeds."""
        return np.array([self.number(run, measure) for run in self.runs[label]], dtype=np.float64)

    def mean(self, label: Label, measure: str = "regret") -> float:
        """Its mean over seeds."""
        return float(self.numbers(label, measure).mean())

    def error(self, label: Label, measure: str = "regret") -> float | None:
        """The standard error of that mean."""
        return standard_error(self.numbers(label, measure).tolist())

    def has(self, label: Label, measure: str) -> bool:
        """Whether the point was run, and has this measure."""
        if label not in self.runs:
            return False
        try:
            self.numbers(label, measure)
        except FedbanditError:
            return False
        return True

    def facets(self) -> list[str]:
        """In order of appearance."""
        return list(dict.fromkeys(label.facet for label in self.runs))

    def series(self, facet: str | None = None) -> list[str]:
        """In order of appearance."""
        return list(dict.fromkeys(label.series for label in self.runs if facet is None or label.facet == facet))

    def line(self, series: str, facet: str = "") -> list[Label]:
        """The points of a series in order of appearance."""
        return [label for label in self.runs if label.series == series and label.facet == facet]

    def at(self, series: str, value: Value | None, facet: str = "") -> Label:
        """The point of a series at a value; its only one, or its last, where no value is asked for."""
        line = self.line(series, facet)
        labels = line if value is None or len(line) == 1 else [label for label in line if label.value == value]
        if not labels:
            raise FedbanditError(f"{Label(series, '' if value is None else value, facet).text} was not run")
        return labels[-1]

    def curve(self, label: Label, measure: str = "regret") -> tuple[Ints, Array]:
        """Rounds, and the measure after each of them: (seeds, points)."""
        runs = self.runs[label]
        if measure in runs[0].traces:
            return runs[0].traces["round"].astype(np.int64), np.stack([run.traces[measure] for run in runs])
        return runs[0].curve.round, np.stack([self._curve(run, measure) for run in runs])

    def _curve(self, run: Run, measure: str) -> Array:
        curve = run.curve
        if measure == "messages":
            return np.asarray(curve.uploads + curve.downloads, dtype=np.float64)
        if measure == "per_client_regret":
            return curve.regret / run.n_clients
        if measure == "normalised_reward":
            random = self._random(run).curve.reward
            return np.divide(curve.reward, random, out=np.full(random.shape, np.nan), where=random > 0)
        if measure in curve._fields:
            return np.asarray(getattr(curve, measure), dtype=np.float64)
        raise FedbanditError(f"There is no curve of {measure}.")

    def number(self, run: Run, measure: str) -> float:
        """A measure of one run."""
        if measure == "messages":
            return float(run.report["uploads"] + run.report["downloads"])
        if measure == "per_client_regret":
            return float(run.report["regret"]) / run.n_clients
        if measure == "normalised_reward":
            random = float(self._random(run).report["reward"])
            return float(run.report["reward"]) / random if random > 0 else float("nan")
        for numbers in (run.report, run.extra):
            if measure in numbers:
                return float(numbers[measure])
        raise FedbanditError(f"{run.label.text} has no {measure}.")

    def _random(self, run: Run) -> Run:
        """The run of random arms on the same stream."""
        same = ("environment", "horizon", "seed")
        for other in self.every():
            fits = other.label.facet == run.label.facet and other.report["system"] == RANDOM
            if fits and all(other.report[key] == run.report[key] for key in same):
                return other
        raise FedbanditError(f"{run.label.text} has no normalised reward, as random arms were not run beside it.")

    def rows(self, names: Iterable[str] = ()) -> list[dict[str, Any]]:
        """One row for each run: what it is, and these measures (none where a system has no such thing)."""
        return [
            {
                "facet": run.label.facet,
                "series": run.label.series,
                "value": format_value(run.label.value),
                "seed": run.report["seed"],
                **{name: self._or_none(run, name) for name in names},
            }
            for run in self.every()
        ]

    def _or_none(self, run: Run, name: str) -> float | None:
        try:
            return self.number(run, name)
        except FedbanditError:
            return None


def curve_rows(labels: Sequence[dict[str, Any]], runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One row for each run and each kept round, with what labels the run before the numbers."""
    return [
        {**label, **{name: number.item() for name, number in zip(run.curve._fields, point, strict=True)}}
        for label, run in zip(labels, runs, strict=True)
        for point in zip(*run.curve, strict=True)
    ]
