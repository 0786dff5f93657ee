"""What peers say in JSON when they meet: the greeting, and the answer to it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from fedbandit.errors import FedbanditError, shown
from fedbandit.network.jsonable import read_json

LONGEST = 2**14
"""Bytes of a greeting: of whoever has not said who it is no more is read."""
_HEXADECIMAL = re.compile("[0-9a-fA-F]{1,16}")


class Greeting(NamedTuple):
    """Who connects: its number, which life of its state it is, and the terms that it knows."""

    member: int
    incarnation: int
    agreement: Mapping[str, Any]

    def as_json(self) -> str:
        """As it is sent."""
        return json.dumps({**self._asdict(), "incarnation": f"{self.incarnation:016x}"})

    @classmethod
    def of_json(cls, text: str | bytes) -> Greeting:
        """What `as_json` gave.

        >>> Greeting.of_json(Greeting(1, 255, {"peers": 2}).as_json())
        Greeting(member=1, incarnation=255, agreement={'peers': 2})
        >>> Greeting.of_json('{"member": 1.5, "incarnation": "ff", "agreement": {}}')
        Traceback (most recent call last):
        fedbandit.errors.FedbanditError: A greeting's member is 1.5, but must be a number of a peer.
        """
        said = _object(text, "greeting")
        member, incarnation, agreement = (said.get(name) for name in cls._fields)
        if type(member) is not int or not 0 <= member < 2**63:
            raise _wrong("member", member, "a number of a peer")
        if not isinstance(incarnation, str) or not _HEXADECIMAL.fullmatch(incarnation):
            raise _wrong("incarnation", incarnation, "up to 16 hexadecimal digits")
        if not isinstance(agreement, dict):
            raise _wrong("agreement", agreement, "an object")
        return cls(member, int(incarnation, 16), agreement)


def taken(text: str | bytes) -> int:
    """The last bundle that a neighbour has taken, as it answers a greeting; its refusal is raised.

    >>> taken('{"taken": 7}')
    7
    >>> taken('{"error": "Peer 1 is not a neighbour here.", "kind": "malformed"}')
    Traceback (most recent call last):
    fedbandit.errors.FedbanditError: Peer 1 is not a neighbour here.
    """
    said = _object(text, "answer")
    if "error" in said:
        raise FedbanditError(" ".join(str(said["error"]).split())[:500])
    number = said.get("taken")
    if type(number) is not int or not 0 <= number < 2**64:
        raise FedbanditError(f"The number taken is {shown(number)}, but must be a whole number ≥ 0.")
    return number


def _object(text: str | bytes, what: str) -> dict[str, Any]:
    try:
        said = read_json(text)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise FedbanditError(f"A peer's {what} is malformed: it is no object in JSON.")
    return said


def _wrong(field: str, value: object, expected: str) -> FedbanditError:
    return FedbanditError(f"A greeting's {field} is {shown(value)}, but must be {expected}.")
