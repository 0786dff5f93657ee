"""What applications send: read, or refused with one sentence. Whatever is no good is found here, before it is kept."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedbandit.errors import FedbanditError, require, shown, unknown
from fedbandit.network.jsonable import NotTaken, read_json
from fedbandit.types import Array

MOST_ACTIONS = 10_000
MOST_ID = 200
"""Characters of an event's id, and of an action's."""
LEAST_PROPENSITY = 1e-9
"""Of an application's own choice: what is rarer does not happen, and one event of such weight would be the report."""
STATUS = {"malformed": 400, "unknown": 404, "conflict": 409, "expired": 410}


class EventRefusal(FedbanditError):
    """A request about an event that was refused; nothing has changed."""

    def __init__(self, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind, self.status = kind, STATUS[kind]


def parsed(body: bytes) -> Any:
    """The JSON of a body, if all readers take it for the same.

    >>> parsed(b'{"reward": 0, "reward": 1}')
    Traceback (most recent call last):
    fedbandit.gateway.requests.EventRefusal: The body is not JSON as it is taken here: The key 'reward' is there twice.
    """
    try:
        return read_json(body)
    except NotTaken as reason:
        raise EventRefusal("malformed", f"The body is not JSON as it is taken here: {reason}") from None
    except ValueError:
        raise EventRefusal("malformed", "The body is not JSON.") from None


def an_object(value: Any, known: tuple[str, ...], what: str = "the request") -> dict[str, Any]:
    """An object with some of these keys and no others."""
    if not isinstance(value, dict):
        raise EventRefusal("malformed", f"{what} is {shown(value)}, but must be an object with {', '.join(known)}.")
    for key in value:
        if key not in known:
            raise EventRefusal("malformed", str(unknown(f"key of {what}", str(key), known)))
    return value


def an_id(what: str, value: Any) -> str:
    r"""An id: a text, or a whole number as a text.

    >>> an_id("event_id", 7)
    '7'
    >>> an_id("event_id", "\ud800")
    Traceback (most recent call last):
    fedbandit.gateway.requests.EventRefusal: event_id is '\ud800', but must be a text that UTF-8 has.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not 0 < len(value) <= MOST_ID:
        raise EventRefusal("malformed", f"{what} is {shown(value)}, but must be a text of 1 to {MOST_ID} characters.")
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair: neither a file nor an answer can have it
        raise EventRefusal("malformed", f"{what} is {shown(value)}, but must be a text that UTF-8 has.") from None
    return value


def own_choice(said: Mapping[str, Any], ids: list[str], *, shadow: bool) -> tuple[int | None, float | None]:
    """The caller's own choice, in shadow mode, and its propensity if that is known."""
    if not shadow:
        for name in ("choice", "propensity"):
            if said.get(name) is not None:
                raise EventRefusal("malformed", f"{name} is for shadow mode, and this gateway is online.")
        return None, None
    if said.get("choice") is None:
        raise EventRefusal("malformed", "In shadow mode an event needs choice, the id of the action you take.")
    choice, p = an_id("choice", said["choice"]), said.get("propensity")
    if choice not in ids:
        raise EventRefusal("malformed", str(unknown("action", choice, ids[:50])))
    if p is not None and (isinstance(p, bool) or not isinstance(p, int | float) or not LEAST_PROPENSITY <= p <= 1):
        wanted = f"a number in (0, 1], of at least {LEAST_PROPENSITY:g}"
        raise EventRefusal("malformed", f"propensity is {shown(p)}, but must be {wanted}.")
    return ids.index(choice), None if p is None else float(p)


def vectors(ids: list[str], rows: list[Any], context: Any, d: int) -> Array:
    """Features as d numbers for each action: those of the context first, then the action's."""
    shared = [] if context is None else context
    require(_is_vector(shared), "context", shared, "a list of finite numbers")
    for id, row in zip(ids, rows, strict=True):
        require(_is_vector(row), f"the features of action {id!r}", row, "a list of finite numbers")
        length = len(shared) + len(row)
        require(length == d, f"the number of features of action {id!r}", length, f"{d}, with the context's")
    return np.array([[*shared, *row] for row in rows], dtype=np.float64)


def _is_vector(value: Any) -> bool:
    try:
        return isinstance(value, list) and all(type(x) in (int, float) and math.isfinite(x) for x in value)
    except OverflowError:  # a whole number beyond every float
        return False
