"""What a log tells about systems, as a picture: over time, how much of it was of use, and by segment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedbandit.environments.logged import LoggedDecisions
from fedbandit.evaluation.comparison import LogComparison
from fedbandit.evaluation.estimators import Estimate, within
from fedbandit.evaluation.logs import LogEvaluation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MOST_SEGMENTS = 12


def draw(found: LogComparison, log: LoggedDecisions, figure: Figure) -> None:
    """Three panels: estimated mean reward so far, effective sample size so far, and estimates by segment."""
    over_time, effective, by_segment = figure.subplots(1, 3)
    for evaluation, colour in zip(found.evaluations, COLOURS * len(found.evaluations), strict=False):
        _over_time(over_time, evaluation, colour)
        _effective(effective, evaluation, colour)
    _by_segment(by_segment, found, log)
    over_time.axhline(found.evaluations[0].logged.value, color="grey", linestyle=":", label="the log's own policy")
    over_time.set(xlabel="decisions", ylabel="estimated mean reward so far")
    effective.set(xlabel="decisions", ylabel="effective sample size")
    over_time.legend(fontsize=8)


def segments_of(log: LoggedDecisions, evaluation: LogEvaluation) -> tuple[str, NDArray[np.str_]]:
    """What the decisions are broken down by, and the label of each: a column that was named, or who decided."""
    labels = log.segments if log.segments.size else np.array([str(name) for name in log.client_names])[log.clients]
    what = "segment" if log.segments.size else "client"
    return what, labels[evaluation.first : evaluation.first + evaluation.decisions].astype(np.str_)


def part_of(evaluation: LogEvaluation, decisions: NDArray[np.bool_]) -> Estimate | None:
    """The first estimate on some decisions, with an interval as it is told of all; None if fewer than 2 are of use."""
    estimate = evaluation.estimates[0]
    if decisions.all():
        return estimate
    of_use = evaluation.weights > 0 if evaluation.method == "replay" else np.ones_like(decisions)
    return within(estimate, decisions) if np.count_nonzero(decisions & of_use) >= 2 else None


def _over_time(ax: Axes, evaluation: LogEvaluation, colour: str) -> None:
    n = evaluation.decisions
    shown = [int(k) for k in np.unique(np.linspace(max(n // 20, 2), n, 60).astype(int))]
    found = [(k, part) for k in shown if (part := part_of(evaluation, np.arange(n) < k)) is not None]
    at, parts = [k for k, _ in found], [part for _, part in found]
    ax.plot(at, [part.value for part in parts], color=colour, label=evaluation.system.replace("_", "-"))
    low, high = ([part.interval[end] for part in parts] for end in (0, 1))
    ax.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)


def _effective(ax: Axes, evaluation: LogEvaluation, colour: str) -> None:
    total, squares = np.cumsum(evaluation.weights), np.cumsum(evaluation.weights**2)
    ax.plot(np.divide(total**2, squares, out=np.zeros_like(total), where=squares > 0), color=colour)


def _by_segment(ax: Axes, found: LogComparison, log: LoggedDecisions) -> None:
    what, labels = segments_of(log, found.evaluations[0])
    names, counts = np.unique(labels, return_counts=True)
    largest = names[np.argsort(-counts, kind="stable")][:MOST_SEGMENTS]
    height = 0.8 / len(found.evaluations)
    for k, (evaluation, colour) in enumerate(zip(found.evaluations, COLOURS * len(found.evaluations), strict=False)):
        for i, name in enumerate(largest):
            part = part_of(evaluation, labels == name)
            if part is not None:
                ax.plot(part.interval, [i + k * height] * 2, color=colour, linewidth=1.2)
                ax.plot(part.value, i + k * height, "o", color=colour, markersize=4)
    ax.set_yticks(np.arange(largest.size) + 0.4 - height / 2, [str(name) for name in largest])
    ax.invert_yaxis()
    ax.set(xlabel="estimated mean reward", title=f"the largest {largest.size} of {names.size} {what}s")
