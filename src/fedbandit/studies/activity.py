"""A picture of users by activity."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedbandit.environments import LikedItems
from fedbandit.studies.plots import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_activity(env: LikedItems) -> Figure:
    """How many users have how many interactions, beside the share of all interactions that the most active have."""
    counts = np.bincount(env.users, minlength=len(env.user_ids))
    figure = new_figure(10.5, 4.2)
    histogram, share = figure.subplots(1, 2)
    edges = np.unique(np.round(np.geomspace(counts.min(), counts.max() + 1, 31)).astype(np.int64))
    histogram.hist(counts, bins=edges, color="#0072B2", edgecolor="white", linewidth=0.5)
    histogram.set_xscale("log")
    histogram.set(xlabel="interactions of a user", ylabel="users", title="Users by activity")
    ordered = np.sort(counts)[::-1]
    users = np.arange(1, counts.size + 1) / counts.size
    share.plot(100 * users, 100 * np.cumsum(ordered) / ordered.sum(), color="#D55E00", linewidth=1.8)
    share.plot([0, 100], [0, 100], color="black", linestyle="dotted", linewidth=1)
    share.set(
        xlabel="most active users (%)",
        ylabel="of all interactions (%)",
        title="Who makes the data (dotted: if all were equal)",
        xlim=(0, 100),
        ylim=(0, 101),
    )
    for ax in (histogram, share):
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"{env.name}: {counts.size:,} users, {counts.sum():,} interactions, {len(env.X):,} items with contexts"
    )
    return figure
