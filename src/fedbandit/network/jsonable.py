"""Values as standard JSON has them. It has no infinities and no NaN: these travel as the texts inf, -inf and nan."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def to_json(value: Any) -> Any:
    """What JSON can hold: dicts, lists, texts, numbers.

    >>> to_json({"epsilon": math.inf, "graph": np.eye(1), "servers": (0, 1)})
    {'epsilon': 'inf', 'graph': [[1.0]], 'servers': [0, 1]}
    """
    if isinstance(value, Mapping):
        return {str(key): to_json(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray):
        return to_json(value.tolist())
    if isinstance(value, list | tuple):
        return [to_json(inner) for inner in value]
    return repr(float(value)) if isinstance(value, float) and not math.isfinite(value) else value


def from_json(value: Any) -> Any:
    """With infinities and NaN as numbers again.

    >>> from_json({"epsilon": "inf", "names": ["a"]})
    {'epsilon': inf, 'names': ['a']}
    """
    if isinstance(value, Mapping):
        return {key: from_json(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [from_json(inner) for inner in value]
    return float(value) if isinstance(value, str) and value in ("inf", "-inf", "nan") else value
