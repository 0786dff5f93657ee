"""Axes of pictures: ticks, and whether they are logarithmic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedbandit.studies.measured import Measured
from fedbandit.studies.trials import Label

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def thousands(value: float, _position: object = None) -> str:
    """A tick: 30,000 or 0.5."""
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"


def _power(k: int) -> str:
    """10^k as a tick: 100,000 and 10M, as long ones would run into each other."""
    return thousands(10**k) if k < 6 else f"{10 ** (k - 6):,}M"


def scale_costs(ax: Axes, messages: Sequence[float]) -> float:
    """Make the axis logarithmic, with a place of its own for systems without messages; return that place."""
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


def is_spread(numbers: Sequence[float], log: bool | None) -> bool:
    """Whether the axis is to be logarithmic."""
    positive = [number for number in numbers if number > 0]
    if log is not None or not positive:
        return bool(log and positive)
    return len(positive) == len(numbers) and max(positive) / min(positive) > 8


def scale_y(ax: Axes, measured: Measured, labels: Sequence[Label], measure: str, log: bool | None) -> None:
    """From zero, or logarithmic, with room for all bars of error."""
    numbers = [measured.mean(label, measure) for label in labels]
    if not numbers or not np.isfinite(numbers).all():
        return
    highest = max(number + (measured.error(at, measure) or 0.0) for number, at in zip(numbers, labels, strict=True))
    if is_spread(numbers, log):
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
