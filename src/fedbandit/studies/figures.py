"""Pictures of experiments: curves over rounds, fronts of regret against communication, sweeps over a parameter.

A panel says what is drawn; `draw_panels` puts several into one figure, with one look for each series in all of them.
Series differ in colour, line and marker: grey paper suffices, and any eye. Figures are made without pyplot, so they
need no display and leave nothing behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from fedbandit.engine.plot import draw_bound, require_matplotlib
from fedbandit.errors import FedbanditError, unknown
from fedbandit.files import writing
from fedbandit.studies.axes import is_spread, scale_costs, scale_y, thousands
from fedbandit.studies.measured import MEASURES, Measured
from fedbandit.studies.trials import Label, format_value
from fedbandit.tails import students_quantile
from fedbandit.types import Array, Ints

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_COLUMNS = 3
ROOM = np.array((26.0, 9.0))
"""Points across and up that the middles of two notes must be apart in one direction, or the second is left out."""


class Look(NamedTuple):
    """How one system is drawn: three ways to tell it apart, so that none of them has to be seen."""

    colour: str
    line: str | tuple[int, tuple[int, ...]]
    marker: str


Looks: TypeAlias = Mapping[str, Look]

Band: TypeAlias = Literal["error", "interval", "quantiles", "runs"]
BANDS: dict[Band, str] = {
    "error": "mean ± standard error",
    "interval": "mean with 95 % interval",
    "quantiles": "mean with 10 % and 90 % quantiles",
    "runs": "mean and single runs",
}
"""What surrounds a mean over seeds."""

# Okabe and Ito's colours, which colour-blind people can tell apart, without the yellow that paper swallows.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#000000")
_LINES = ("solid", "dashed", "dashdot", "dotted", (0, (8, 2)), (0, (3, 1, 1, 1, 1, 1)))
_MARKERS = ("o", "s", "^", "D", "v")


def look_of(position: int) -> Look:
    """The look of the system at this position; 7, 6 and 5 of each give 210 different ones."""
    return Look(_COLOURS[position % len(_COLOURS)], _LINES[position % len(_LINES)], _MARKERS[position % len(_MARKERS)])


def new_figure(width: float, height: float) -> Figure:
    """An empty figure that pyplot does not know."""
    require_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure in the format of the suffix, whole or not at all."""
    require_image_name(path)
    with writing(path) as partial:
        figure.savefig(partial, format=path.suffix[1:])
    return path


def require_image_name(path: Path) -> None:
    """Refuse a name whose suffix is no known image format."""
    require_matplotlib()
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        raise FedbanditError(f"{str(path)!r} must end in .{', .'.join(sorted(known))}.")


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A picture of one facet: `y` of all series but some.

    log: a logarithmic axis; None: if the best would otherwise lie flat on the bottom.
    """

    y: str = "regret"
    facet: str = ""
    title: str = ""
    log: bool | None = None
    without: tuple[str, ...] = ()

    def draw(self, ax: Axes, measured: Measured, looks: Looks) -> None:
        """Draw it."""
        raise NotImplementedError

    def lines(self, measured: Measured) -> dict[str, list[Label]]:
        """The points of each series that have the measure, series in order of appearance."""
        names = [name for name in measured.series(self.facet) if name not in self.without]
        lines = {name: [at for at in measured.line(name, self.facet) if measured.has(at, self.y)] for name in names}
        return {name: line for name, line in lines.items() if line}


class Overlay(NamedTuple):
    """What a theorem says of a series: how its curve may grow, as a function of rounds such as those of `bounds`.

    It is scaled to meet the mean of the series at the horizon, since theorems hold up to a constant. In a `Sweep` it is
    a function of the values, and meets the series at the last of them.
    """

    series: str
    name: str
    bound: Callable[[Any], Array]


@dataclass(frozen=True, kw_only=True)
class Curves(Panel):
    """A measure over rounds: means with bands, one standard error wide unless `band` says otherwise.

    bounds: theorems to draw beside them, dotted and grey.
    """

    band: Band = "error"
    bounds: tuple[Overlay, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a band that does not exist."""
        if self.band not in BANDS:
            raise unknown("band", self.band, BANDS)

    def draw(self, ax: Axes, measured: Measured, looks: Looks) -> None:
        """One line for each point."""
        labels = [label for label in measured.runs if label.facet == self.facet and label.series not in self.without]
        labels = [label for label in labels if _has_curve(measured, label, self.y)]
        ends = []
        for position, label in enumerate(labels):
            rounds, curves = measured.curve(label, self.y)
            look = looks[label.series] if len(measured.line(label.series, self.facet)) == 1 else look_of(position)
            name = label.series if label.value == "" else f"{label.series}, {format_value(label.value)}"
            draw_band(ax, rounds, curves, look, name, self.band)
            ends.append(float(curves.mean(axis=0)[-1]))
            for k, overlay in enumerate(one for one in self.bounds if one.series == label.series):
                draw_bound(ax, rounds, overlay.bound, ends[-1], overlay.name, k)
        if is_spread(ends, self.log):
            ax.set_yscale("log")
            positive = [end for end in ends if end > 0]
            ax.set_ylim(min(positive) / 4, max(positive) * 1.5)
            ax.yaxis.set_major_formatter(thousands)
        elif self.y != "normalised_reward":
            ax.set_ylim(bottom=0)
        ax.set_xlim(left=0)
        ax.locator_params(axis="x", nbins=6)
        ax.xaxis.set_major_formatter(thousands)
        ax.set(xlabel="round", ylabel=MEASURES[self.y], title=self.title)


@dataclass(frozen=True, kw_only=True)
class Tradeoff(Panel):
    """A measure against communication: a dot for each value, labelled with it, as in Async-LinUCB, Fig. 2.

    levels: series for which communication means nothing, such as one model that has all data; drawn as lines.
    """

    x: str = "messages"
    levels: tuple[str, ...] = ()

    def draw(self, ax: Axes, measured: Measured, looks: Looks) -> None:
        """Lines join the dots of a series; one that never communicates has a place of its own."""
        lines = self.lines(measured)
        labels = [label for line in lines.values() for label in line]
        if not labels:
            return
        silent = scale_costs(ax, [measured.mean(at, self.x) for at in labels if at.series not in self.levels])
        names = [name for name in measured.series(self.facet) if name not in self.without]
        notes = []
        for name, line in lines.items():
            y = [measured.mean(label, self.y) for label in line]
            if name in self.levels:
                _level(ax, y[0], looks[name], name)
                continue
            x = [measured.mean(label, self.x) or silent for label in line]
            _dots(ax, x, y, [measured.error(label, self.y) for label in line], looks[name], name)
            for place, (label, across, up) in enumerate(zip(line, x, y, strict=True)):
                if label.value != "":
                    inner = 0 < place < len(line) - 1
                    notes.append((inner, format_value(label.value), across, up, name))
        scale_y(ax, measured, labels, self.y, self.log)
        taken: list[Array] = []
        for _, text, across, up, name in sorted(notes, key=lambda note: note[0]):  # ends of fronts come first
            at = ax.transData.transform((across, up)) * 72 / ax.figure.dpi
            below = names.index(name) % 2 == 1
            spot = at + (-1 if below else 1) * np.array((2.5 * len(text), 7.0))
            if all((np.abs(spot - other) > ROOM).any() for other in taken):
                taken.append(spot)
                _annotate(ax, text, across, up, looks[name].colour, below=below)
        ax.set(xlabel=MEASURES[self.x], ylabel=MEASURES[self.y], title=self.title)


@dataclass(frozen=True, kw_only=True)
class Sweep(Panel):
    """A measure over the values of each series: numbers on an axis, or settings side by side.

    Where no series has values, the series stand side by side.
    """

    x: str = ""
    log_x: bool = False
    bounds: tuple[Overlay, ...] = ()

    def draw(self, ax: Axes, measured: Measured, looks: Looks) -> None:
        """One line for each series; one without values is a level beside those that have some."""
        lines = self.lines(measured)
        labels = [label for line in lines.values() for label in line]
        values = list(dict.fromkeys(label.value for label in labels if label.value != ""))
        numeric = bool(values) and all(not isinstance(value, str) and math.isfinite(value) for value in values)
        at = {value: float(value) if numeric else float(place) for place, value in enumerate(values)}
        ticks = {format_value(value): at[value] for value in values}
        if labels and not values:
            ticks = {label.series: float(place) for place, label in enumerate(labels)}
            ax.set_xlim(-0.6, len(labels) - 0.4)
        for name, line in lines.items():
            y, errors = [measured.mean(at, self.y) for at in line], [measured.error(at, self.y) for at in line]
            if not values:
                _dots(ax, [ticks[name]], y, errors, looks[name], name)
            elif [label.value for label in line] == [""]:
                _level(ax, y[0], looks[name], name)
            else:
                _dots(ax, [at[label.value] for label in line], y, errors, looks[name], name)
                for k, overlay in enumerate(one for one in self.bounds if one.series == name):
                    draw_bound(ax, np.array([at[label.value] for label in line]), overlay.bound, y[-1], overlay.name, k)
        if self.log_x and numeric:
            ax.set_xscale("log")
        if ticks:
            ax.set_xticks(list(ticks.values()), list(ticks))
            ax.minorticks_off()
        scale_y(ax, measured, labels, self.y, self.log)
        ax.set(xlabel=self.x, ylabel=MEASURES[self.y], title=self.title)


PANELS: dict[str, Callable[..., Panel]] = {"curves": Curves, "tradeoff": Tradeoff, "sweep": Sweep}
"""Those that a YAML file can ask for."""


def draw_panels(panels: Sequence[Panel], measured: Measured, title: str) -> Figure:
    """Panels side by side, with one legend below; the title is completed by the number of seeds."""
    columns = 2 if len(panels) == 4 else min(MOST_COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    width = 7.6 if columns == 1 else 5.4 * columns
    figure = new_figure(width, 4.3 * rows + 0.8)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    looks = {name: look_of(position) for position, name in enumerate(measured.series())}
    handles: dict[str, Artist] = {}
    for ax, panel in zip(axes, panels, strict=False):
        panel.draw(ax, measured, looks)
        if not ax.has_data():
            ax.text(0.5, 0.5, "not run", transform=ax.transAxes, ha="center", color="#555555")
            ax.set(xticks=[], yticks=[])
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    if handles:
        widest = max(map(len, handles))
        figure.legend(
            list(handles.values()),
            list(handles),
            loc="outside lower center",
            ncols=max(1, min(len(handles), int(11 * width) // (widest + 9))),
            frameon=False,
            handlelength=3.5,
        )
    seeds = len({run.report["seed"] for run in measured.every()})
    bands = dict.fromkeys(panel.band if isinstance(panel, Curves) else "error" for panel in panels)
    said = "one seed" if seeds == 1 else f"{' and '.join(BANDS[band] for band in bands)} of {seeds} seeds"
    figure.suptitle(f"{title} ({said})", fontsize="medium")
    return figure


def draw_comparison(
    measured: Measured,
    title: str,
    *,
    log: bool | None = None,
    band: Band = "error",
    bounds: Sequence[Overlay] = (),
    message_bounds: Sequence[Overlay] = (),
) -> Figure:
    """Regret over rounds, beside final regret against messages with a faint dot for each run; messages if bounded."""
    panels: list[Panel] = [
        Curves(title="Regret over rounds", log=log, band=band, bounds=tuple(bounds)),
        Tradeoff(title="Final regret against communication", log=log),
    ]
    if message_bounds:
        title_of_messages = "Messages over rounds"
        panels.append(Curves(y="messages", title=title_of_messages, log=log, band=band, bounds=tuple(message_bounds)))
    figure = draw_panels(panels, measured, title)
    over, against = figure.axes[:2]
    against.set_ylim(over.get_ylim())
    silent = min(against.get_xticks())
    for position, runs in enumerate(measured.runs.values()):
        costs = [measured.number(run, "messages") or silent for run in runs]
        look, regrets = look_of(position), [measured.number(run, "regret") for run in runs]
        against.scatter(costs, regrets, color=look.colour, marker=look.marker, s=22, alpha=0.4, linewidth=0)
    return figure


def draw_band(ax: Axes, rounds: Ints, curves: Array, look: Look, label: str, band: Band = "error") -> None:
    """The mean of curves (seeds, points) over rounds, with a band."""
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
    if len(curves) == 1:
        return
    if band == "runs":
        ax.plot(rounds, curves.T, color=look.colour, linewidth=0.6, alpha=0.5)
        return
    if band == "quantiles":
        low, high = np.quantile(curves, (0.1, 0.9), axis=0)
    else:
        wide = 1.0 if band == "error" else students_quantile(0.025, len(curves) - 1)
        error = wide * curves.std(axis=0, ddof=1) / math.sqrt(len(curves))
        low, high = mean - error, mean + error
    ax.fill_between(rounds, low, high, color=look.colour, alpha=0.2, linewidth=0)


def _has_curve(measured: Measured, label: Label, measure: str) -> bool:
    try:
        measured.curve(label, measure)
    except FedbanditError:
        return False
    return True


def _dots(
    ax: Axes, x: Sequence[float], y: Sequence[float], errors: Sequence[float | None], look: Look, label: str
) -> None:
    known = [0.0 if error is None else error for error in errors]
    ax.errorbar(
        x,
        y,
        yerr=known if any(known) else None,
        color=look.colour,
        linestyle=look.line,
        marker=look.marker,
        markersize=6,
        markeredgecolor="black",
        markeredgewidth=0.6,
        linewidth=1.4,
        capsize=2.5,
        label=label,
    )


def _level(ax: Axes, y: float, look: Look, label: str) -> None:
    ax.axhline(y, color=look.colour, linestyle=look.line, linewidth=1.4, label=label)


def _annotate(ax: Axes, text: str, x: float, y: float, colour: str, *, below: bool) -> None:
    """Above right or below left of a dot, where fronts, which fall to the right, leave room."""
    from matplotlib.patheffects import withStroke

    ax.annotate(
        text,
        (x, y),
        xytext=(-5, -4) if below else (4, 4),
        textcoords="offset points",
        ha="right" if below else "left",
        va="top" if below else "bottom",
        fontsize=7,
        color=colour,
        zorder=5,
        path_effects=[withStroke(linewidth=2, foreground="white")],
    )
