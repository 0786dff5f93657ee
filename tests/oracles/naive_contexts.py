"""Slow, obvious versions of what prepares data sets."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from fedbandit.types import Array


def tf_idf_components(pairs: list[tuple[int, int]], dim: int) -> tuple[list[int], Array]:
    """Item ids, and contexts from (item, tag) pairs: TF-IDF, principal components by a dense SVD, unit norm."""
    items, tags = sorted({item for item, _ in pairs}), sorted({tag for _, tag in pairs})
    counts = Counter(pairs)
    table = np.zeros((len(items), len(tags)))
    for j, tag in enumerate(tags):
        having = sum(counts[item, tag] > 0 for item in items)
        idf = math.log((1 + len(items)) / (1 + having)) + 1
        for i, item in enumerate(items):
            table[i, j] = counts[item, tag] * idf
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    centred = table - table.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    scores = np.empty((len(items), dim))
    for k in range(dim):
        direction = directions[k]
        if direction[np.abs(direction).argmax()] < 0:
            direction = -direction
        scores[:, k] = centred @ direction
    return items, scores / np.linalg.norm(scores, axis=1, keepdims=True)
