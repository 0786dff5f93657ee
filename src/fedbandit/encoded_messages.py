"""Encoded messages, looked at or changed without decoding them."""

from __future__ import annotations

import struct

from fedbandit.messages import DATED, FACTORED, IN_BLOCKS, Download, Message


def readdressed(data: bytes, message: Download) -> bytes:
    """The encoded download `data` for another member who is sent the same statistics, without encoding them again.

    >>> from fedbandit.messages import encode
    >>> from fedbandit.sums import zero_sums
    >>> one, two = (Download(i, 7, 2 * i, zero_sums(2)) for i in (3, 4))
    >>> readdressed(encode(one), two) == encode(two)
    True
    """
    numbers = struct.pack("<QQQ", message.member, message.version, message.acknowledged)
    return b"".join((data[:8], numbers, data[8 + len(numbers) :]))


def is_a(kind: type[Message], data: bytes) -> bool:
    """Whether the header of an encoded message says that it is of this kind.

    >>> from fedbandit.messages import Join, Receipt, encode
    >>> is_a(Join, encode(Join(3))), is_a(Join, encode(Receipt(3, 1)))
    (True, False)
    """
    return len(data) > 3 and data[3] & ~(IN_BLOCKS | DATED | FACTORED) == kind.kind
