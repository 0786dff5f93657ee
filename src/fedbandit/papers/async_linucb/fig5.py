"""Async-LinUCB, Fig. 5: users of Delicious on a map of what they like, by activity."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedbandit.environments import delicious
from fedbandit.presets import uniform
from fedbandit.studies import Claim, Experiment, Finding, Measured, Point, Scale
from fedbandit.studies.figures import Looks, Panel, look_of
from fedbandit.types import Array, Ints

if TYPE_CHECKING:
    from matplotlib.axes import Axes

USERS = "users"
ACTIVE = 80
"""Interactions above which a user belongs to the paper's most active groups, 80 to 100."""


def _map(measured: Measured) -> tuple[Array, Ints]:
    """Where users are, (U, 2), and their interactions."""
    found = measured.runs[measured.at(USERS, None)][0].extra["map"]
    return np.array([found["x"], found["y"]]).T, np.array(found["activity"])


@dataclass(frozen=True, kw_only=True)
class UserMap(Panel):
    """A dot for each user, groups of twenty interactions apart in colour and marker, the most active ones on top."""

    def draw(self, ax: Axes, measured: Measured, looks: Looks) -> None:  # noqa: ARG002 - looks are those of groups
        """All users."""
        at, activity = _map(measured)
        for position, (above, theirs) in enumerate(self.groups(activity)):
            look, name = look_of(position), f"{above + 1} to {above + 20} interactions ({theirs.size} users)"
            x, y = at[theirs].T
            ax.scatter(x, y, s=6 + 3 * position, color=look.colour, marker=look.marker, alpha=0.6, label=name)
        ax.axhline(0, color="0.6", linewidth=0.8, zorder=0)
        ax.axvline(0, color="0.6", linewidth=0.8, zorder=0)
        ax.set_aspect("equal", adjustable="box")
        ax.set(xlabel="first principal component", ylabel="second principal component", title=self.title)

    @staticmethod
    def groups(activity: Ints) -> Iterator[tuple[int, Ints]]:
        """Users in steps of twenty interactions."""
        for above in range(0, int(activity.max()), 20):
            yield above, np.flatnonzero((activity > above) & (activity <= above + 20))


class NearTheMiddle(Claim):
    """The most active users are nearer to the middle than the others."""

    about = ("series",)
    series: ClassVar[str] = USERS

    def usual_text(self) -> str:
        return f"Users above {ACTIVE} interactions are centred near the origin: nearer than the others."

    def check(self, measured: Measured) -> Finding:
        at, activity = _map(measured)
        away = np.linalg.norm(at, axis=1)
        active, others = away[activity > ACTIVE], away[activity <= ACTIVE]
        error = np.hypot(*(part.std(ddof=1) / len(part) ** 0.5 for part in (active, others)))
        gap = others.mean() - active.mean()
        holds = None if abs(gap) < 2 * error else bool(gap > 0)
        middle = np.linalg.norm(at[activity > ACTIVE].mean(axis=0))
        said = f"mean distance {active.mean():.3f} against {others.mean():.3f}, of their middle {middle:.3f}"
        return Finding(holds, f"{said}; difference {gap:.3f} ± {error:.3f}")


class Crossed(Claim):
    """The others lie along two orthogonal directions: little of their spread is off both axes of a cross."""

    about = ("series",)
    series: ClassVar[str] = USERS

    def usual_text(self) -> str:
        return "The others lie along two nearly orthogonal directions: off these is less than half of a Gaussian cloud."

    def check(self, measured: Measured) -> Finding:
        at, activity = _map(measured)
        others = at[activity <= ACTIVE]
        off = min(_off_axes(others, turn) for turn in np.linspace(0, np.pi / 2, 181))
        rng = np.random.default_rng(0)
        cloud = rng.multivariate_normal(np.zeros(2), np.cov(others.T), size=20_000)
        chance = min(_off_axes(cloud, turn) for turn in np.linspace(0, np.pi / 2, 181))
        return Finding(off < chance / 2, f"{off:.2f} of the spread is off the axes, {chance:.2f} of a Gaussian cloud's")


def _off_axes(at: Array, turn: float) -> float:
    """Σ r² sin² 2φ/Σ r² with angles φ from an axis turned so far: 0 on a cross, ½ for a round cloud."""
    squares, angles = (at**2).sum(axis=1), np.arctan2(at[:, 1], at[:, 0])
    return float((squares * np.sin(2 * (angles - turn)) ** 2).sum() / squares.sum())


EXPERIMENT = Experiment(
    title="users of Delicious by what they like",
    reference="Li & Wang 2022, Fig. 5, App. H.3: each user is the mean of its liked items' features, on two axes of a "
    "PCA",
    reports="The most active users (80 to 100 interactions) are centred near the origin, the others along two nearly "
    "orthogonal directions: data of the former help most users, those of the latter only themselves.",
    remarks=(
        "Nothing is learnt for this figure: it shows the data. Our copy of Delicious is partial (1,841 of 1,861 users, "
        "87,210 of 104,799 interactions), and its features are made anew from tags.",
    ),
    scales={scale: Scale([Point(USERS, uniform, delicious, 1, extra="map")], seeds=1) for scale in ("quick", "paper")},
    panels=(UserMap(),),
    measures=(),
    claims=(
        NearTheMiddle(
            otherwise="In our copy users with 40 to 70 interactions are nearest to the middle; those above 80 lie to "
            "one side of it.",
        ),
        Crossed(otherwise="In our copy they are one elongated cloud."),
    ),
)
