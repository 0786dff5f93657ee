"""Fewer points of a curve than it has rounds."""

from __future__ import annotations

import numpy as np

from fedbandit.types import Ints


def thinned(horizon: int, most: int) -> Ints:
    """At most `most` evenly spaced indices of a curve of length `horizon`, the last one always among them.

    >>> thinned(10, 4).tolist(), thinned(3, 4).tolist()
    ([1, 4, 6, 9], [0, 1, 2])
    """
    points = min(horizon, most)
    return (np.arange(1, points + 1) * horizon) // points - 1
