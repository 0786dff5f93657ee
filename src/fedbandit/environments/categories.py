"""Columns of texts as numbers."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit.types import Array

MOST_CATEGORIES = 64
"""More of them are hashed into as many entries."""


def encoded_categories(name: str, values: NDArray[Any]) -> Array:
    """One entry for each category that occurs; or ±1 in one of `MOST_CATEGORIES`, by a hash of name and category.

    >>> encoded_categories("colour", np.array(["red", "blue", "red"])).tolist()
    [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
    """
    categories, which = np.unique(values, return_inverse=True)
    if categories.size <= MOST_CATEGORIES:
        return np.eye(categories.size)[which]
    entries = np.zeros((categories.size, MOST_CATEGORIES))
    for row, category in zip(entries, categories.tolist(), strict=True):
        code = zlib.crc32(f"{name}\0{category}".encode())
        row[(code >> 1) % MOST_CATEGORIES] = 1.0 - 2.0 * (code & 1)
    return entries[which]
