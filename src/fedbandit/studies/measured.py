"""What was measured in an experiment: numbers and curves by facet, series and value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from fedbandit.errors import FedbanditError, unknown
from fedbandit.studies.compare import standard_error
from fedbandit.studies.runner import Curve, Run
from fedbandit.types import Array, Ints

Value: TypeAlias = float | int | str

MEASURES = {
    "regret": "cumulative regret",
    "per_client_regret": "regret per client",
    "reward": "cumulative reward",
    "normalised_reward": "reward over that of random arms",
    "uploads": "uploads",
    "downloads": "downloads",
    "messages": "messages (uploads + downloads)",
    "scalars": "numbers transferred",
    "bytes": "bytes transferred",
    "estimation_error": "mean ‖θ̂ − θ‖ of users",
    "clusters": "clusters found",
    "rand_index": "adjusted Rand index of the clusters",
}
"""Names of what can be measured, and how an axis calls it."""

RANDOM = "uniform"
"""The system over whose reward `normalised_reward` is."""


class Key(NamedTuple):
    """What tells the points of an experiment apart."""

    facet: str
    series: str
    value: Value

    @property
    def text(self) -> str:
        """For people."""
        return ", ".join(format_value(part) for part in (self.facet, self.series, self.value) if part != "")


def format_value(value: Value) -> str:
    """A value as a label, with few digits.

    >>> [format_value(v) for v in (0.0811, 1.01, 1000.0, 123456789.0, "M = 4")]
    ['0.0811', '1.01', '1,000', '1.23e+08', 'M = 4']
    """
    if isinstance(value, str):
        return value
    if value == int(value) and abs(value) < 1e6:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def capitalised(text: str) -> str:
    """The text as a sentence begins: only its first letter changes, as `str.capitalize` would spoil names."""
    return text[:1].upper() + text[1:]


def check_measure(name: str) -> None:
    """Refuse a measure that does not exist."""
    if name not in MEASURES:
        raise unknown("measure", name, MEASURES)


@dataclass(frozen=True)
class Measured:
    """All runs of an experiment that were done, and how many clients each point has."""

    runs: Mapping[Key, list[Run]]
    n_clients: Mapping[Key, int]

    def numbers(self, key: Key, measure: str = "regret") -> Array:
        """A measure of each run, in the order of seeds."""
        return np.array([self.number(run, key, measure) for run in self.runs[key]], dtype=np.float64)

    def mean(self, key: Key, measure: str = "regret") -> float:
        """Its mean over seeds."""
        return float(self.numbers(key, measure).mean())

    def error(self, key: Key, measure: str = "regret") -> float | None:
        """The standard error of that mean."""
        return standard_error(self.numbers(key, measure).tolist())

    def has(self, key: Key, measure: str) -> bool:
        """Whether the point was run, and has this measure."""
        if key not in self.runs:
            return False
        try:
            self.numbers(key, measure)
        except FedbanditError:
            return False
        return True

    def facets(self) -> list[str]:
        """In order of appearance."""
        return list(dict.fromkeys(key.facet for key in self.runs))

    def series(self, facet: str | None = None) -> list[str]:
        """In order of appearance."""
        return list(dict.fromkeys(key.series for key in self.runs if facet is None or key.facet == facet))

    def line(self, series: str, facet: str = "") -> list[Key]:
        """The points of a series in order of appearance."""
        return [key for key in self.runs if key.series == series and key.facet == facet]

    def curve(self, key: Key, measure: str = "regret") -> tuple[Ints, Array]:
        """Rounds, and the measure after each of them: (seeds, points)."""
        runs = self.runs[key]
        if measure in runs[0].traces:
            return runs[0].traces["round"].astype(np.int64), np.stack([run.traces[measure] for run in runs])
        return runs[0].curve.round, np.stack([self._curve(run.curve, key, run, measure) for run in runs])

    def _curve(self, curve: Curve, key: Key, run: Run, measure: str) -> Array:
        if measure == "messages":
            return np.asarray(curve.uploads + curve.downloads, dtype=np.float64)
        if measure == "per_client_regret":
            return curve.regret / self.n_clients[key]
        if measure == "normalised_reward":
            random = self._random(key, run).curve.reward
            return np.divide(curve.reward, random, out=np.full(random.shape, np.nan), where=random > 0)
        if measure in curve._fields:
            return np.asarray(getattr(curve, measure), dtype=np.float64)
        raise FedbanditError(f"There is no curve of {measure}.")

    def number(self, run: Run, key: Key, measure: str) -> float:
        """A measure of one run."""
        if measure == "messages":
            return float(run.report["uploads"] + run.report["downloads"])
        if measure == "per_client_regret":
            return float(run.report["regret"]) / self.n_clients[key]
        if measure == "normalised_reward":
            random = float(self._random(key, run).report["reward"])
            return float(run.report["reward"]) / random if random > 0 else float("nan")
        if measure in run.report:
            return float(run.report[measure])
        if measure in run.extra:
            return float(run.extra[measure])
        raise FedbanditError(f"{key.text} has no {measure}.")

    def _random(self, key: Key, run: Run) -> Run:
        """The run of random arms on the same stream."""
        same = ("environment", "horizon", "seed")
        for other, runs in self.runs.items():
            for candidate in runs if other.facet == key.facet else ():
                if candidate.report["system"] == RANDOM and all(candidate.report[k] == run.report[k] for k in same):
                    return candidate
        raise FedbanditError(f"{key.text} has no normalised reward, as random arms were not run beside it.")


def rows_of(measured: Measured, names: Iterable[str]) -> list[dict[str, object]]:
    """One line for each run: what it is, and these measures (none where a system has no such thing)."""
    return [
        {
            "facet": key.facet,
            "series": key.series,
            "value": format_value(key.value),
            "seed": run.report["seed"],
            **{name: _or_none(measured, run, key, name) for name in names},
        }
        for key, runs in measured.runs.items()
        for run in runs
    ]


def _or_none(measured: Measured, run: Run, key: Key, name: str) -> float | None:
    try:
        return measured.number(run, key, name)
    except FedbanditError:
        return None
