"""The envelope of a client's message: it identifies the session, so that a restored or copied client is recognised.

A client's durable state has an **incarnation** (drawn when it was made), an **epoch** (how often it has been opened)
and a **nonce** (drawn at each opening). A copy of a state has the same incarnation; once the original or the copy has
been opened again they differ in epoch or nonce, and only one of them is accepted (`register.py`).

**chain** sums up a client's uploads so far: chain_k = H(chain_{k−1}, bytes of upload k). An upload says on which chain
it stands, so a client whose history differs from what the coordinator applied is recognised at its next upload.

    magic "FE" · version · – · epoch (u32) · incarnation · nonce · sequence · chain      (40 bytes, little endian)
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from fedbandit.errors import FedbanditError

FORMAT = 1
_ENVELOPE = struct.Struct("<2sBxIQQQQ")
SIZE = _ENVELOPE.size


@dataclass(frozen=True, slots=True)
class Envelope:
    """The sender: which opening of which state, after which uploads."""

    incarnation: int
    epoch: int
    nonce: int
    sequence: int
    """The last upload that the client has made."""
    chain: int
    """Of an upload: the chain it stands on. Of any other message: the chain after upload `sequence`."""


def seal(envelope: Envelope, message: bytes) -> bytes:
    """The frame that travels: envelope and encoded message.

    >>> unseal(seal(Envelope(1, 2, 3, 4, 5), b"..."))
    (Envelope(incarnation=1, epoch=2, nonce=3, sequence=4, chain=5), b'...')
    """
    e = envelope
    return _ENVELOPE.pack(b"FE", FORMAT, e.epoch, e.incarnation, e.nonce, e.sequence, e.chain) + message


def unseal(frame: bytes) -> tuple[Envelope, bytes]:
    """The envelope and the encoded message."""
    if len(frame) < SIZE:
        raise FedbanditError(f"The frame has {len(frame)} bytes, but an envelope has {SIZE}.")
    magic, version, epoch, incarnation, nonce, sequence, chain = _ENVELOPE.unpack_from(frame)
    if magic != b"FE" or version != FORMAT:
        raise FedbanditError(f"The frame starts with {magic!r} version {version}, expected b'FE' version {FORMAT}.")
    return Envelope(incarnation, epoch, nonce, sequence, chain), frame[SIZE:]


def extend(chain: int, upload: bytes) -> int:
    """The chain after one more upload."""
    digest = hashlib.blake2b(chain.to_bytes(8, "little") + upload, digest_size=8)
    return int.from_bytes(digest.digest(), "little")
