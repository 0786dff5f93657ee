"""A picture of one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbandit.errors import FedbanditError, needs, require
from fedbandit.types import Array, Ints

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

    from fedbandit.engine.result import Result


def thinned(horizon: int, most: int) -> Ints:
    """At most `most` evenly spaced indices of a curve of length `horizon`, the last one always among them.

    >>> thinned(10, 4).tolist(), thinned(3, 4).tolist()
    ([1, 4, 6, 9], [0, 1, 2])
    """
    points = min(horizon, most)
    return (np.arange(1, points + 1) * horizon) // points - 1


REGRET_COLOUR = "#0072B2"
MESSAGES_COLOUR = "#D55E00"
GREY = "0.35"
MOST_POINTS = 2000  # more than a screen is wide


def require_matplotlib() -> None:
    """Say how to get matplotlib if it is missing."""
    needs("matplotlib", "plots", "A plot")


def plot_result(
    result: Result,
    ax: Axes | None = None,
    bounds: Mapping[str, Callable[[Ints], Array]] | None = None,
    message_bounds: Mapping[str, Callable[[Ints], Array]] | None = None,
) -> Axes:
    """Draw cumulative regret over rounds, and messages so far on a second axis if there were any.

    `bounds` are drawn dotted, scaled to meet the regret at the horizon, and `message_bounds` on the second axis, scaled
    to meet the messages. Without `ax` a new pyplot figure is made, which a notebook shows by itself.
    """
    spoken = bool(result.communication.messages)
    require(spoken or not message_bounds, "message_bounds", list(message_bounds or ()), "left out: nothing was sent")
    ax = _axes(result, ax, "cumulative regret")
    at = thinned(result.horizon, MOST_POINTS)
    ax.plot(at + 1, result.regret[at], color=REGRET_COLOUR, linewidth=1.8, label="regret")
    for k, (name, bound) in enumerate((bounds or {}).items()):
        draw_bound(ax, at + 1, bound, float(result.regret[-1]), name, k)
    if spoken:
        messages = _second_axis(ax, "messages so far (dashed)")
        curve = result.communication.message_curve[at]
        messages.plot(at + 1, curve, color=MESSAGES_COLOUR, linestyle="--", linewidth=1.5, label="messages")
        for k, (name, bound) in enumerate((message_bounds or {}).items()):
            draw_bound(messages, at + 1, bound, float(curve[-1]), name, k, MESSAGES_COLOUR)
        if message_bounds:
            messages.legend(loc="upper left", frameon=False)
        messages.set_ylim(bottom=0)
    if bounds:
        ax.legend(loc="lower right", frameon=False)
    ax.set_ylim(bottom=0)
    return ax


def draw_bound(
    ax: Axes, rounds: Ints | Array, bound: Callable[[Any], Array], end: float, name: str, k: int = 0, colour: str = GREY
) -> None:
    """Draw the k-th bound of a picture dotted, scaled to be `end` after the last of the rounds, or at another last."""
    require(callable(bound), f"the bound {name!r}", bound, "a function of rounds, as those of fb.bounds")
    grown = np.asarray(bound(rounds), dtype=np.float64)
    require(
        grown.shape == rounds.shape, f"the shape of the bound {name!r}", grown.shape, f"{rounds.shape}, one a round"
    )
    require(0 < grown[-1] < np.inf, f"the end of the bound {name!r}", float(grown[-1]), "positive, to be scaled")
    ax.plot(
        rounds, grown * (end / grown[-1]), color=colour, linestyle=(0, (1, 1 + k)), linewidth=1.4, label=f"∝ {name}"
    )


def plot_clusters(result: Result, partition: ArrayLike | None = None, ax: Axes | None = None) -> Axes:
    """Draw the number of clusters over rounds, and their adjusted Rand index with the true `partition` if given."""
    if not result.clusters:
        raise FedbanditError(f"{result.system.replace('_', '-')} finds no clusters, so there are none to draw.")
    ax = _axes(result, ax, "clusters")
    rounds = [*result.cluster_rounds, result.horizon]
    counts = [len(clusters) for clusters in result.clusters]
    ax.step(rounds, [*counts, counts[-1]], where="post", color=REGRET_COLOUR, linewidth=1.8)
    if partition is not None:
        agreement = _second_axis(ax, "adjusted Rand index (dashed)")
        index = result.rand_index(partition)
        agreement.step(rounds, [*index, index[-1]], where="post", color=MESSAGES_COLOUR, linestyle="--", linewidth=1.5)
        agreement.set_ylim(min(0.0, *index), 1.05)
    ax.set_ylim(bottom=0)
    return ax


def _axes(result: Result, ax: Axes | None, ylabel: str) -> Axes:
    """Axes over rounds, new ones if need be."""
    if ax is None:
        _, ax = needs("matplotlib.pyplot", "plots", "A plot").subplots(layout="constrained")
    name = result.system.replace("_", "-")
    ax.set(xlabel="round", ylabel=ylabel, title=f"{name} on {result.environment}, seed {result.seed}")
    ax.set_xlim(0, result.horizon)
    ax.grid(alpha=0.25)
    return ax


def _second_axis(ax: Axes, label: str) -> Axes:
    """An axis on the right; both get the colours of their curves."""
    second = ax.twinx()
    second.set_ylabel(label, color=MESSAGES_COLOUR)
    second.tick_params(axis="y", colors=MESSAGES_COLOUR)
    ax.yaxis.label.set_color(REGRET_COLOUR)
    ax.tick_params(axis="y", colors=REGRET_COLOUR)
    return second
