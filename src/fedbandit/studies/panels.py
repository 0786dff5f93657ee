"""Pictures of experiments: curves over rounds, fronts of regret against communication, sweeps over a parameter.

A panel says what is drawn; `draw_experiment` puts the panels of an experiment into one figure, with one look for each
series in all of them. Series differ in colour, in line and in marker, so that grey paper and any eye will do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from fedbandit.errors import FedbanditError
from fedbandit.studies.measured import MEASURES, Key, Measured, format_value
from fedbandit.studies.plots import Look, draw_band, look_of, new_figure, scale_costs, thousands

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Looks: TypeAlias = Mapping[str, Look]
MOST_COLUMNS = 3


@dataclass(frozen=True)
class Curves:
    """A measure over rounds: means with bands of one standard error."""

    y: str = "regret"
    facet: str = ""
    title: str = ""
    log: bool | None = None  # None: if the best would otherwise lie flat on the bottom
    without: tuple[str, ...] = ()

    def draw(self, ax: Axes, measured: Measured, looks: Looks) -> None:
        """One line for each point."""
        keys = [key for key in measured.runs if key.facet == self.facet and key.series not in self.without]
        keys = [key for key in keys if _has_curve(measured, key, self.y)]
        ends = []
        for position, key in enumerate(keys):
            rounds, curves = measured.curve(key, self.y)
            look = looks[key.series] if len(measured.line(key.series, self.facet)) == 1 else look_of(position)
            label = key.series if key.value == "" else f"{key.series}, {format_value(key.value)}"
            draw_band(ax, rounds, curves, look, label)
            ends.append(float(curves.mean(axis=0)[-1]))
        if _spread(ends, self.log):
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


@dataclass(frozen=True)
class Tradeoff:
    """A measure against communication: a dot for each value, labelled with it, as in Async-LinUCB, Fig. 2.

    `levels` are series for which communication means nothing, such as one model that has all data: they are lines.
    """

    y: str = "regret"
    x: str = "messages"
    facet: str = ""
    title: str = ""
    log: bool | None = None
    without: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()

    def draw(self, ax: Axes, measured: Measured, looks: Looks) -> None:
        """Lines join the dots of a series; one that never speaks has a place of its own."""
        names = [name for name in measured.series(self.facet) if name not in self.without]
        keys = [key for name in names for key in measured.line(name, self.facet) if measured.has(key, self.y)]
        if not keys:
            return
        silent = scale_costs(ax, [measured.mean(key, self.x) for key in keys if key.series not in self.levels])
        for position, name in enumerate(names):
            line = [key for key in keys if key.series == name]
            if not line:
                continue
            if name in self.levels:
                _level(ax, measured.mean(line[0], self.y), looks[name], name)
                continue
            x = [measured.mean(key, self.x) or silent for key in line]
            y = [measured.mean(key, self.y) for key in line]
            _dots(ax, x, y, [measured.error(key, self.y) for key in line], looks[name], name)
            for key, across, up in zip(line, x, y, strict=True):
                if key.value != "":
                    _label(ax, format_value(key.value), across, up, looks[name].colour, below=position % 2 == 1)
        _scale_y(ax, measured, keys, self.y, self.log)
        ax.set(xlabel=MEASURES[self.x], ylabel=MEASURES[self.y], title=self.title)


@dataclass(frozen=True)
class Sweep:
    """A measure over the values of each series: numbers on an axis, or settings side by side.

    Where no series has values, the series stand side by side.
    """

    y: str = "regret"
    x: str = ""
    facet: str = ""
    title: str = ""
    log: bool | None = None
    log_x: bool = False
    without: tuple[str, ...] = ()

    def draw(self, ax: Axes, measured: Measured, looks: Looks) -> None:
        """One line for each series; one without values is a level beside those that have some."""
        names = [name for name in measured.series(self.facet) if name not in self.without]
        keys = [key for name in names for key in measured.line(name, self.facet) if measured.has(key, self.y)]
        values = list(dict.fromkeys(key.value for key in keys if key.value != ""))
        numeric = bool(values) and all(not isinstance(value, str) and math.isfinite(value) for value in values)
        at = {value: float(value) if numeric else float(place) for place, value in enumerate(values)}
        ticks = {format_value(value): at[value] for value in values}
        if keys and not values:
            ticks = {key.series: float(place) for place, key in enumerate(keys)}
            ax.set_xlim(-0.6, len(keys) - 0.4)
        for name in names:
            line = [key for key in keys if key.series == name]
            y, errors = [measured.mean(key, self.y) for key in line], [measured.error(key, self.y) for key in line]
            if line and not values:
                _dots(ax, [ticks[name]], y, errors, looks[name], name)
            elif [key.value for key in line] == [""]:
                _level(ax, y[0], looks[name], name)
            elif line:
                _dots(ax, [at[key.value] for key in line], y, errors, looks[name], name)
        if self.log_x and numeric:
            ax.set_xscale("log")
        if ticks:
            ax.set_xticks(list(ticks.values()), list(ticks))
            ax.minorticks_off()
        _scale_y(ax, measured, keys, self.y, self.log)
        ax.set(xlabel=self.x, ylabel=MEASURES[self.y], title=self.title)


Panel: TypeAlias = Curves | Tradeoff | Sweep
PANELS: dict[str, Callable[..., Panel]] = {"curves": Curves, "tradeoff": Tradeoff, "sweep": Sweep}
"""Those that a YAML file can ask for."""


def draw_experiment(panels: Sequence[Panel], measured: Measured, title: str) -> Figure:
    """All panels of an experiment side by side, with one legend below."""
    columns = min(MOST_COLUMNS, len(panels))
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
    figure.suptitle(title, fontsize="medium")
    return figure


def _has_curve(measured: Measured, key: Key, measure: str) -> bool:
    try:
        measured.curve(key, measure)
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


def _label(ax: Axes, text: str, x: float, y: float, colour: str, *, below: bool) -> None:
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


def _spread(numbers: Sequence[float], log: bool | None) -> bool:
    positive = [number for number in numbers if number > 0]
    if log is not None or not positive:
        return bool(log and positive)
    return len(positive) == len(numbers) and max(positive) / min(positive) > 8


def _scale_y(ax: Axes, measured: Measured, keys: Sequence[Key], measure: str, log: bool | None) -> None:
    """From zero, or logarithmic, with room for all bars of error."""
    numbers = [measured.mean(key, measure) for key in keys]
    if not numbers or not np.isfinite(numbers).all():
        return
    highest = max(number + (measured.error(key, measure) or 0.0) for number, key in zip(numbers, keys, strict=True))
    if _spread(numbers, log):
        ax.set_yscale("log")
        lowest = min(number for number in numbers if number > 0)
        ax.set_ylim(lowest / 1.6, highest * 1.6)
        if highest / lowest < 30:
            ticks = [base * 10**k for k in range(-4, 10) for base in (1, 2, 5)]
            ax.set_yticks([t for t in ticks if lowest / 1.6 <= t <= highest * 1.6])
        ax.minorticks_off()
    elif min(numbers) >= 0:
        ax.set_ylim(0, highest * 1.08 or 1)
    ax.yaxis.set_major_formatter(thousands)
