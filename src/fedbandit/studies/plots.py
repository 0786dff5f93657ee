"""Pictures of comparisons. Figures are made without pyplot: they need no display and leave nothing behind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedbandit.engine.plot import require_matplotlib
from fedbandit.errors import FedbanditError
from fedbandit.studies.compare import by_label, standard_error
from fedbandit.studies.runner import Run
from fedbandit.studies.tables import writing
from fedbandit.types import Array, Ints

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedbandit.engine import Result


class Look(NamedTuple):
    """How one system is drawn: three ways to tell it apart, so that none of them has to be seen."""

    colour: str
    line: str | tuple[int, tuple[int, ...]]
    marker: str


# Okabe and Ito's colours, which colour-blind people can tell apart, without the yellow that paper swallows.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#000000")
_LINES = ("solid", "dashed", "dashdot", "dotted", (0, (8, 2)), (0, (3, 1, 1, 1, 1, 1)))
_MARKERS = ("o", "s", "^", "D", "v")


def look_of(position: int) -> Look:
    """The look of the system at this position; 7, 6 and 5 of each give 210 different ones."""
    return Look(_COLOURS[position % len(_COLOURS)], _LINES[position % len(_LINES)], _MARKERS[position % len(_MARKERS)])


def new_figure(width: float, height: float) -> Figure:
    """An empty figure that belongs to nobody else."""
    require_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def draw_comparison(runs: Sequence[Run], title: str) -> Figure:
    """Regret over rounds with bands of one standard error, beside final regret against messages."""
    groups = by_label(runs)
    columns = max(1, min(len(groups), 110 // (max(map(len, groups)) + 9)))
    figure = new_figure(10.5, 4.4 + 0.22 * math.ceil(len(groups) / columns))
    over_rounds, against_messages = figure.subplots(1, 2, sharey=True)
    silent = scale_costs(against_messages, [_messages(run) for run in runs])
    for position, (label, group) in enumerate(groups.items()):
        _draw_curve(over_rounds, label, group, look_of(position))
        _draw_cost(against_messages, group, look_of(position), silent)
    _scale_regret(over_rounds, [np.mean([run.report["regret"] for run in group]) for group in groups.values()])
    over_rounds.set(xlabel="round", ylabel="cumulative regret", title="Regret over rounds")
    over_rounds.set_xlim(0, runs[0].report["horizon"])
    over_rounds.xaxis.set_major_formatter(thousands)
    against_messages.set(xlabel="messages (uploads + downloads)", title="Final regret against communication")
    for ax in (over_rounds, against_messages):
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
    n_seeds = len({run.report["seed"] for run in runs})
    figure.suptitle(f"{title}; " + ("one seed" if n_seeds == 1 else f"mean ± standard error of {n_seeds} seeds"))
    handles, labels = over_rounds.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, handlelength=3.5)
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


def thousands(value: float, _position: object = None) -> str:
    """A tick: 30,000 or 0.5."""
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"


def _power(k: int) -> str:
    """10^k as a tick: 100,000 and 10M, as long ones would run into each other."""
    return thousands(10**k) if k < 6 else f"{10 ** (k - 6):,}M"


def _messages(run: Run) -> int:
    return int(run.report["uploads"] + run.report["downloads"])


def _draw_curve(ax: Axes, label: str, group: Sequence[Run], look: Look) -> None:
    draw_band(ax, group[0].curve.round, np.stack([run.curve.regret for run in group]), look, label)


def draw_band(ax: Axes, rounds: Ints, curves: Array, look: Look, label: str) -> None:
    """The mean of curves (seeds, points) over rounds, with a band of one standard error."""
    mean = curves.mean(axis=0)
    ax.plot(
        rounds,
        mean,
        color=look.colour,
        linestyle=look.line,
        marker=look.marker,
        markevery=(len(rounds) // 16, max(1, len(rounds) // 8)),
        markersize=5,
        linewidth=1.8,
        label=label,
    )
    if len(curves) > 1:
        error = curves.std(axis=0, ddof=1) / math.sqrt(len(curves))
        ax.fill_between(rounds, mean - error, mean + error, color=look.colour, alpha=0.2, linewidth=0)


def _draw_cost(ax: Axes, group: Sequence[Run], look: Look, silent: float) -> None:
    """Every run faintly, and their mean; a run without messages stands at `silent`."""
    messages = [_messages(run) or silent for run in group]
    regret = [run.report["regret"] for run in group]
    ax.scatter(messages, regret, color=look.colour, marker=look.marker, s=22, alpha=0.4, linewidth=0)
    ax.errorbar(
        float(np.mean(messages)),
        float(np.mean(regret)),
        yerr=standard_error(regret),
        color=look.colour,
        marker=look.marker,
        markersize=9,
        markeredgecolor="black",
        markeredgewidth=0.8,
        capsize=3,
        zorder=3,
    )


def scale_costs(ax: Axes, messages: Sequence[float]) -> float:
    """Make the axis logarithmic, with a place of its own for systems that never speak; say where that is."""
    spoken = [count for count in messages if count > 0]
    if not spoken:
        ax.set_xticks([0], ["0"])
        return 0.0
    lowest, highest = math.floor(math.log10(min(spoken))), math.ceil(math.log10(max(spoken)))
    ticks = {float(10**k): _power(k) for k in range(lowest, highest + 1)}
    silent = 10 ** (lowest - 0.7)
    if len(spoken) < len(messages):
        ticks[silent] = "0"
    ax.set_xscale("log")
    ax.set_xticks(list(ticks), list(ticks.values()))
    ax.minorticks_off()
    ax.set_xlim(min(ticks) / 1.6, max(ticks) * 1.6)
    return silent


def _scale_regret(ax: Axes, finals: Sequence[float]) -> None:
    """Make the axis logarithmic if the best would otherwise lie flat on the bottom."""
    if min(finals) > 0 and max(finals) / min(finals) > 8:
        ax.set_yscale("log")
        ax.set_ylim(min(finals) / 4, max(finals) * 1.5)
    else:
        ax.set_ylim(bottom=0)
    ax.yaxis.set_major_formatter(thousands)
