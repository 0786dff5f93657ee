"""A picture of one run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbandit.engine.thinning import thinned
from fedbandit.errors import FedbanditError, needs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

    from fedbandit.engine.result import Result

REGRET_COLOUR = "#0072B2"
MESSAGES_COLOUR = "#D55E00"
MOST_POINTS = 2000  # more than a screen is wide


def require_matplotlib() -> None:
    """Say how to get matplotlib if it is missing."""
    needs("matplotlib", "plots", "A plot")


def plot_result(result: Result, ax: Axes | None = None) -> Axes:
    """Draw cumulative regret over rounds, and messages so far on a second axis if there were any.

    Without `ax` a new pyplot figure is made, which a notebook shows by itself.
    """
    ax = ax or _new_axes()
    at = thinned(result.horizon, MOST_POINTS)
    name = result.system.replace("_", "-")
    ax.plot(at + 1, result.regret[at], color=REGRET_COLOUR, linewidth=1.8, label="regret")
    ax.set(
        xlabel="round",
        ylabel="cumulative regret",
        title=f"{name} on {result.environment}, seed {result.seed}",
    )
    ax.set_xlim(0, result.horizon)
    ax.set_ylim(bottom=0)
    ax.grid(alpha=0.25)
    if result.communication.messages:
        messages = ax.twinx()
        curve = result.communication.message_curve[at]
        messages.plot(at + 1, curve, color=MESSAGES_COLOUR, linestyle="--", linewidth=1.5, label="messages")
        messages.set_ylabel("messages so far (dashed)", color=MESSAGES_COLOUR)
        messages.tick_params(axis="y", colors=MESSAGES_COLOUR)
        messages.set_ylim(bottom=0)
        ax.yaxis.label.set_color(REGRET_COLOUR)
        ax.tick_params(axis="y", colors=REGRET_COLOUR)
    return ax


def plot_clusters(result: Result, partition: ArrayLike | None = None, ax: Axes | None = None) -> Axes:
    """Draw the number of clusters over rounds, and their adjusted Rand index with the true `partition` if given."""
    if not result.clusters:
        raise FedbanditError(f"{result.system.replace('_', '-')} finds no clusters, so there are none to draw.")
    ax = ax or _new_axes()
    rounds = [*result.cluster_rounds, result.horizon]
    counts = [len(clusters) for clusters in result.clusters]
    ax.step(rounds, [*counts, counts[-1]], where="post", color=REGRET_COLOUR, linewidth=1.8)
    name = result.system.replace("_", "-")
    ax.set(xlabel="round", ylabel="clusters", title=f"{name} on {result.environment}, seed {result.seed}")
    ax.set_xlim(0, result.horizon)
    ax.set_ylim(bottom=0)
    ax.grid(alpha=0.25)
    if partition is not None:
        agreement = ax.twinx()
        index = result.rand_index(partition)
        agreement.step(rounds, [*index, index[-1]], where="post", color=MESSAGES_COLOUR, linestyle="--", linewidth=1.5)
        agreement.set_ylabel("adjusted Rand index (dashed)", color=MESSAGES_COLOUR)
        agreement.tick_params(axis="y", colors=MESSAGES_COLOUR)
        agreement.set_ylim(min(0.0, *index), 1.05)
        ax.yaxis.label.set_color(REGRET_COLOUR)
        ax.tick_params(axis="y", colors=REGRET_COLOUR)
    return ax


def _new_axes() -> Axes:
    _, ax = needs("matplotlib.pyplot", "plots", "A plot").subplots(layout="constrained")
    return ax
