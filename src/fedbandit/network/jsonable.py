"""Values as standard JSON has them. It has no infinities and no NaN: these travel as the texts inf, -inf and nan."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from fedbandit.errors import shown

MOST_NESTED = 50
"""Lists and objects in each other."""


class NotTaken(ValueError):
    """JSON that readers do not agree about, or that is nested too deep; the sentence says which."""


def read_json(text: bytes | str) -> Any:
    """What somebody else wrote, if all readers take it for the same.

    So it is UTF-8, with no key twice, no number that JSON has not, no half of a character, and not nested too deep.
    Anything else is a ValueError.

    >>> read_json(b'{"client": "a", "gamma": 1.5}')
    {'client': 'a', 'gamma': 1.5}
    >>> read_json('{"client": "a", "client": "b"}')
    Traceback (most recent call last):
        ...
    fedbandit.network.jsonable.NotTaken: The key 'client' is there twice.
    """
    try:
        text = text if isinstance(text, str) else text.decode()
        value = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number, parse_float=_finite)
    except RecursionError:
        raise NotTaken(_TOO_DEEP) from None
    level, depth = [value], 0
    while level:
        below: list[Any] = []
        for inner in level:
            if isinstance(inner, str):
                inner.encode()  # a UnicodeEncodeError is a ValueError
            elif isinstance(inner, dict | list):
                if depth == MOST_NESTED:
                    raise NotTaken(_TOO_DEEP)
                below += inner
                if isinstance(inner, dict):
                    below += inner.values()
        level, depth = below, depth + 1
    return value


_TOO_DEEP = f"Lists and objects are nested more than {MOST_NESTED} deep."


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise NotTaken(f"The key {shown(twice)} is there twice.")
    return found


def _no_number(text: str) -> NoReturn:
    raise NotTaken(f"{text} is no number in JSON.")


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        _no_number(text)
    return number


def to_json(value: Any) -> Any:
    """What JSON can hold: dicts, lists, texts, numbers. Half of a character, which UTF-8 has not, is shown escaped.

    >>> to_json({"epsilon": math.inf, "graph": np.eye(1), "servers": (0, 1)})
    {'epsilon': 'inf', 'graph': [[1.0]], 'servers': [0, 1]}
    """
    if isinstance(value, Mapping):
        return {_text(str(key)): to_json(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray):
        return to_json(value.tolist())
    if isinstance(value, list | tuple):
        return [to_json(inner) for inner in value]
    if isinstance(value, str):
        return _text(value)
    return repr(float(value)) if isinstance(value, float) and not math.isfinite(value) else value


def _text(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


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
