"""What a local server and its coordinator say to each other: messages of many models on one connection.

A local server has a number in the federation, its models have others: those of local clusters, or of its users. What a
model says travels inside a message of its server, which has a number of its own, so that server and coordinator have
one conversation, one history and one chain, as a client has (docs/protocol.md).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedbandit.errors import FedbanditError

if TYPE_CHECKING:
    from fedbandit.messages import Collect, Download, Join, Request, Threshold, Upload


@dataclass(frozen=True, slots=True)
class FromServer:
    """Local server → coordinator: what models of its users say; `member` is the server, theirs are in the messages.

    An upload travels alone and is number `sequence` of what the server says, applied once; with 0 it is what may be
    lost, Joins and Requests. `phase` is the one in which it was made. A `report` answers the call of `phase`: all that
    was observed in each local cluster, as uploads.
    """

    kind: ClassVar[int] = 22
    member: int
    sequence: int
    phase: int
    messages: tuple[Upload | Join | Request, ...]
    report: bool = False


@dataclass(frozen=True, slots=True)
class ToServer:
    """Coordinator → local server: messages for models of its users, made in `phase`.

    A `renewal` says that the phase has begun: local clusters begin anew with these downloads, or go on if there are
    none.
    """

    kind: ClassVar[int] = 23
    member: int
    phase: int
    messages: tuple[Download | Collect | Threshold, ...]
    renewal: bool = False


_LENGTH = struct.Struct("<I")


def joined_parts(parts: Iterable[bytes]) -> bytes:
    """Encoded messages, each after its length (u32).

    >>> list(parts_inside(joined_parts([b"...2", b"...1"]), {49, 50}))
    [b'...2', b'...1']
    """
    return b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def parts_inside(data: bytes, kinds: set[int]) -> Iterator[bytes]:
    """The encoded messages that `joined_parts` put there; those of other kinds, and what is left over, are refused."""
    at = 0
    while at < len(data):
        (length,) = _LENGTH.unpack(data[at : at + _LENGTH.size].ljust(_LENGTH.size, b"\xff"))
        part = data[at + _LENGTH.size : at + _LENGTH.size + length]
        if len(part) != length or part[3:4] not in map(_byte, kinds):
            raise FedbanditError(f"A local server's message has a part of {len(part)} bytes that cannot be in it.")
        yield part
        at += _LENGTH.size + length


def _byte(number: int) -> bytes:
    return bytes([number])
