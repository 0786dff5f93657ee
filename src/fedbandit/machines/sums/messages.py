"""The messages of one secure sum, and their binary form.

magic "FS" · format version · step · member · epoch                                        (20 bytes, little endian)
then what the step says; members are numbers of eight bytes, lists have their length before them

In format 1 a client's last step had shares only. In format 2, of that step alone, the noise that it takes back stands
before them. A coordinator takes both.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from fedbandit.errors import FedbanditError

FORMAT, RETURNING = 1, 2
_HEADER = struct.Struct("<2sBBQQ")
_COUNT = struct.Struct("<I")
_MEMBER = struct.Struct("<Q")
_ENTRY = struct.Struct("<QH")


class Step(IntEnum):
    """What a message is; clients send the odd ones, the coordinator the even ones."""

    KEYS = 1
    ROSTER = 2
    SHARES = 3
    DELIVERY = 4
    MASKED = 5
    SURVIVORS = 6
    AGREE = 7
    AGREED = 8
    UNMASK = 9


@dataclass(frozen=True, slots=True)
class SumMessage:
    """One step of the sum of an epoch, from a member or to it."""

    member: int
    epoch: int
    step: Step
    body: bytes
    format: int = FORMAT


def encode_step(message: SumMessage) -> bytes:
    """The message as bytes."""
    return _HEADER.pack(b"FS", message.format, message.step, message.member, message.epoch) + message.body


def decode_step(data: bytes) -> SumMessage:
    """The message that `data` encodes; anything else is refused with a sentence.

    >>> decode_step(encode_step(SumMessage(3, 7, Step.AGREE, b"signature")))
    SumMessage(member=3, epoch=7, step=<Step.AGREE: 7>, body=b'signature', format=1)
    """
    if len(data) < _HEADER.size:
        raise FedbanditError(f"The message has {len(data)} bytes, but a header of a secure sum has {_HEADER.size}.")
    magic, version, step, member, epoch = _HEADER.unpack_from(data)
    newest = RETURNING if step == Step.UNMASK else FORMAT
    if magic != b"FS" or not FORMAT <= version <= newest:
        raise FedbanditError(f"The message starts with {magic!r} format {version}, expected b'FS' format {newest}.")
    if step not in list(Step):
        raise FedbanditError(f"The message is step {step} of a secure sum, expected 1 to {max(Step)}.")
    return SumMessage(member, epoch, Step(step), data[_HEADER.size :], version)


def pack_members(members: Sequence[int]) -> bytes:
    """A list of members."""
    return _COUNT.pack(len(members)) + b"".join(map(_MEMBER.pack, members))


def unpack_members(body: bytes) -> list[int]:
    """What `pack_members` gave."""
    (count,) = _COUNT.unpack_from(body) if len(body) >= _COUNT.size else (-1,)
    if len(body) != _COUNT.size + count * _MEMBER.size:
        raise FedbanditError("A list of members does not have the length that it says.")
    return [member for (member,) in _MEMBER.iter_unpack(body[_COUNT.size :])]


def pack_entries(entries: Mapping[int, bytes]) -> bytes:
    """Bytes for each of several members."""
    return _COUNT.pack(len(entries)) + b"".join(
        _ENTRY.pack(member, len(value)) + value for member, value in sorted(entries.items())
    )


def unpack_entries(body: bytes, size: int | None = None) -> dict[int, bytes]:
    """What `pack_entries` gave, of entries of this size each."""
    entries: dict[int, bytes] = {}
    try:
        (count,), at = _COUNT.unpack_from(body), _COUNT.size
        for _ in range(count):
            member, length = _ENTRY.unpack_from(body, at)
            value = body[at + _ENTRY.size : at + _ENTRY.size + length]
            if member in entries or len(value) != length or (size is not None and length != size):
                raise FedbanditError(f"The entry of member {member} has {len(value)} bytes, or there are two.")
            entries[member] = value
            at += _ENTRY.size + length
    except struct.error:
        raise FedbanditError("A list of entries is shorter than it says.") from None
    if at != len(body):
        raise FedbanditError("A list of entries is longer than it says.")
    return entries
