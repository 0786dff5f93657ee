"""Columns of texts as numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit.features import Hashed
from fedbandit.types import Array

MOST_CATEGORIES = 64
"""More of them are hashed into as many entries."""


def encoded_categories(name: str, values: NDArray[Any]) -> Array:
    """One entry for each category that occurs; or ±1 in one of `MOST_CATEGORIES`, as `fb.Features` hashes.

    >>> encoded_categories("colour", np.array(["red", "blue", "red"])).tolist()
    [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
    """
    categories, which = np.unique(values, return_inverse=True)
    if categories.size <= MOST_CATEGORIES:
        return np.eye(categories.size)[which]
    hashed = Hashed(MOST_CATEGORIES)
    return np.stack([hashed.encode(name, category) for category in categories.tolist()])[which]
