"""Pictures of comparisons. Figures are made without pyplot, so that they need no display and leave nothing behind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedbandit.engine.plot import require_matplotlib
from fedbandit.errors import FedbanditError
from fedbandit.experiments.compare import by_label
from fedbandit.experiments.runner import Run
from fedbandit.experiments.tables import writing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedbandit.engine import Result


class Look(NamedTuple):
    """How one system is drawn: three ways to tell it apart, so that none of them has to be seen."""

    colour: str
    line: str | tuple[int, tuple[int, ...]]
    marker: str


# Okabe and Ito's colours, which colour-blind people can tell apart, without the yellow that white paper swallows.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#000000")
_LINES = ("solid", "dashed", "dashdot", "dotted", (0, (8, 2)), (0, (3, 1, 1, 1, 1, 1)))
_MARKERS = ("o", "s", "^", "D", "v")


def look_of(position: int) -> Look:
    """The look of the system at this position; 7, 6 and 5 of each give 210 different ones."""
    return Look(
        _COLOURS[position % len(_COLOURS)], _LINES[position % len(_LINES)], _MARKERS[position % len(_MARKERS)]
    )


def new_figure(width: float, height: float) -> Figure:
    """An empty figure that belongs to nobody else."""
    require_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def draw_comparison(runs: Sequence[Run], title: str) -> Figure:
    """Regret over rounds with bands of one standard error, beside final regret against messages."""
    figure = new_figure(10.5, 4.8)
    over_rounds, against_messages = figure.subplots(1, 2, sharey=True)
    for position, (label, group) in enumerate(by_label(runs).items()):
        _draw_curve(over_rounds, label, group, look_of(position))
        _draw_cost(against_messages, group, look_of(position))
    n_seeds = len({run.report["seed"] for run in runs})
    over_rounds.set(xlabel="round", ylabel="cumulative regret", title="Regret over rounds")
    over_rounds.set_xlim(0, runs[0].report["horizon"])
    over_rounds.set_ylim(bottom=0)
    over_rounds.xaxis.set_major_formatter(_thousands)
    over_rounds.yaxis.set_major_formatter(_thousands)
    _scale_messages(against_messages, [_messages(run) for run in runs])
    against_messages.set(xlabel="messages (uploads + downloads)", title="Regret at the end against communication")
    for ax in (over_rounds, against_messages):
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
    spread = "mean ± 1 standard error" if n_seeds > 1 else "one seed"
    figure.suptitle(f"{title} · {n_seeds} seeds, {spread}" if n_seeds > 1 else f"{title} · {spread}")
    handles, labels = over_rounds.get_legend_handles_labels()
    widest = max(map(len, labels))
    figure.legend(
        handles, labels, loc="outside lower center", ncols=max(1, min(len(labels), 120 // (widest + 8))), frameon=False
    )
    return figure


def draw_result(result: Result) -> Figure:
    """One run: regret and messages over rounds."""
    figure = new_figure(7, 4.2)
    result.plot(figure.subplots())
    return figure


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure in the format that the name ends in, whole or not at all."""
    require_image_name(path)
    with writing(path) as partial:
        figure.savefig(partial, format=path.suffix[1:])
    return path


def require_image_name(path: Path) -> None:
    """Refuse a name that ends in no known image format."""
    require_matplotlib()
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        raise FedbanditError(f"{str(path)!r} must end in .{', .'.join(sorted(known))}.")


def _thousands(value: float, _position: object) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"


def _messages(run: Run) -> int:
    return int(run.report["uploads"] + run.report["downloads"])


def _draw_curve(ax: Axes, label: str, group: Sequence[Run], look: Look) -> None:
    rounds = group[0].curve.round
    regret = np.stack([run.curve.regret for run in group])  # (seeds, points)
    mean = regret.mean(axis=0)
    ax.plot(
        rounds,
        mean,
        color=look.colour,
        linestyle=look.line,
        marker=look.marker,
        markevery=max(1, len(rounds) // 8),
        markersize=5,
        linewidth=1.8,
        label=label,
    )
    if len(group) > 1:
        error = regret.std(axis=0, ddof=1) / np.sqrt(len(group))
        ax.fill_between(rounds, mean - error, mean + error, color=look.colour, alpha=0.2, linewidth=0)


def _draw_cost(ax: Axes, group: Sequence[Run], look: Look) -> None:
    """Every run faintly, and their mean."""
    messages = [_messages(run) for run in group]
    regret = [run.report["regret"] for run in group]
    ax.scatter(messages, regret, color=look.colour, marker=look.marker, s=22, alpha=0.35, linewidth=0)
    ax.scatter(
        float(np.mean(messages)),
        float(np.mean(regret)),
        color=look.colour,
        marker=look.marker,
        s=80,
        edgecolor="black",
        linewidth=0.8,
        zorder=3,
    )


def _scale_messages(ax: Axes, messages: Sequence[int]) -> None:
    """Logarithmic, with room for systems that never speak."""
    spoken = [count for count in messages if count > 0]
    if spoken:
        smallest = 10 ** np.floor(np.log10(min(spoken)))
        ax.set_xscale("symlog", linthresh=float(smallest), linscale=0.5)
    ax.set_xlim(left=0 if spoken and len(spoken) == len(messages) else None)
