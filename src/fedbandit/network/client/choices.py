"""Choices as an application holds them: an id that nobody else gives, and a signed token that any process takes.

An **id** is 16 hexadecimal digits, unique across workers, restarts and members; only the client that made the choice
can take its reward. A **token** carries the context, so that any client of the federation that has the same key can
learn the reward: with several workers, a click may come to another one than the choice was made by.

    magic "FC" · format 2 · 0 · meaning (16) · number (u64) · context (d floats) · HMAC-SHA-256 of all before (32)

little endian, in base64url without padding. It is signed, not encrypted: whoever holds it can read the features. Its
meaning is that of contexts in one federation (`Agreement.meaning`): another federation refuses it, and the same one
takes it also after its terms have changed. (Format 1 had the digest of all terms, and no name of a federation.)
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import math
import re
import struct
from typing import NamedTuple

import numpy as np

from fedbandit.errors import FedbanditError, shown
from fedbandit.policies import Policy
from fedbandit.types import Array

_HEAD = struct.Struct("<2sBx16sQ")
_FORMAT = 2
_SIGNATURE = 32


class Arm(int):
    """The index of the arm that was chosen; its `id` names the choice when the reward comes.

    `propensity` is the probability with which it was chosen: what evaluating other policies on a log needs.
    """

    id: str
    propensity: float

    def __new__(cls, index: int, id: str, propensity: float = math.nan) -> Arm:
        """An index with an id."""
        arm = super().__new__(cls, index)
        arm.id, arm.propensity = id, propensity
        return arm


class Ranking(NamedTuple):
    """A choice, and of every arm how probable it was and which reward is expected; the policy that chose."""

    arm: Arm
    propensities: Array
    means: Array
    policy: Policy


class Exported(NamedTuple):
    """What a token says: which choice, and its context."""

    number: int
    x: Array


def id_of(number: int) -> str:
    """The id of a choice.

    >>> id_of(255)
    '00000000000000ff'
    """
    return f"{number:016x}"


LARGEST = 2**63
"""Numbers of choices are below this: states keep them as signed ones."""
_ID = re.compile("[0-9a-f]{1,16}")


def number_of(choice: Arm | str | int) -> int:
    """The number of a choice that is named by its arm, by its id, or as ids were before: by a number.

    >>> number_of(Arm(3, "00000000000000ff")), number_of("ff")
    (255, 255)
    """
    name = choice.id if isinstance(choice, Arm) else choice
    if isinstance(name, str) and _ID.fullmatch(name):
        name = int(name, 16)
    if isinstance(name, int) and not isinstance(name, bool) and 0 <= name < LARGEST:
        return name
    raise FedbanditError(f"The choice is {shown(choice)}, but must be what select returned, its id, or a token.")


_INDEX = 10_000
"""Choices have numbers of 62 random bits: one below this is the index of an arm."""


def not_waiting(number: int) -> FedbanditError:
    """The error for a reward that nobody waits for."""
    if number < _INDEX:
        return FedbanditError(f"Choice {number} is not waiting for a reward: pass what select returned, or its id.")
    return FedbanditError(
        f"Choice {id_of(number)} is not waiting for a reward here: it was made by another client, has its reward, "
        "was forgotten, or was exported as a token."
    )


def sign(key: bytes, meaning: bytes, exported: Exported) -> str:
    """The token of a choice."""
    data = _HEAD.pack(b"FC", _FORMAT, meaning, exported.number) + exported.x.astype("<f8").tobytes()
    token = base64.urlsafe_b64encode(data + hmac.digest(key, data, hashlib.sha256))
    return token.rstrip(b"=").decode()


def is_token(choice: object) -> bool:
    """Whether this looks like a token rather than an id."""
    return isinstance(choice, str) and len(choice) > 16


def verify(key: bytes, meaning: bytes, token: str, dim: int) -> Exported:
    """What a token says, if it was signed with this key where contexts mean the same."""
    try:
        data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise FedbanditError(f"The token {shown(token)} is not one that export made.") from None
    signed, signature = data[:-_SIGNATURE], data[-_SIGNATURE:]
    if not hmac.compare_digest(hmac.digest(key, signed, hashlib.sha256), signature):
        raise FedbanditError("The token was signed with another key, or was changed: all workers need one choice_key.")
    if signed[:2] != b"FC" or len(signed) < _HEAD.size:
        raise FedbanditError("What was signed with choice_key is no token.")
    _, version, theirs, number = _HEAD.unpack_from(signed)
    if version != _FORMAT:
        raise FedbanditError(f"The token has format {version}, of another version of fedbandit; this one is {_FORMAT}.")
    if len(signed) != _HEAD.size + 8 * dim:
        raise FedbanditError(f"The token is not one of a federation with contexts of length {dim}.")
    if theirs != meaning:
        raise FedbanditError("The token is of another federation, or of one whose contexts meant something else.")
    if number >= LARGEST:
        raise FedbanditError(f"The token says that its choice is {id_of(number)}, which no client makes.")
    return Exported(number, np.frombuffer(signed, dtype="<f8", offset=_HEAD.size).astype(np.float64))
