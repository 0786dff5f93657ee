"""The envelope of a client's message: it identifies the session, so that a restored or copied client is recognised.

A client's durable state has an **incarnation** (drawn when it was made), an **epoch** (how often it has been opened)
and a **nonce** (drawn at each opening). A copy of a state has the same incarnation; once the original or the copy has
been opened again they differ in epoch or nonce, and only one of them is accepted (`register.py`).

**chain** sums up a client's uploads so far: chain_k = H(chain_{k−1} ‖ bytes of upload k), chain_0 = 0, H the first 16
bytes of SHA-256. An upload says on which chain it stands, so a client whose history differs from what the coordinator
applied is recognised at its next upload. **terms** is the digest that the invitation gave of what the federation has
agreed on: a client that was invited under other terms is recognised when it joins.

    magic "FE" · format 2 · 0 · epoch (u32) · incarnation (u64) · nonce (u64) · sequence (u64) · chain (16) · terms (16)

64 bytes, little endian; docs/protocol.md. Format 1, of 40 bytes, had no terms and a chain of 8 bytes: coordinators'
journals have whole frames, and uploads that were made then are sent unchanged, so it is still read.
"""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple

from fedbandit.errors import FedbanditError

FORMAT = 2
ACCEPTS = "x-fedbandit-accepts"
"""The header in which a coordinator that opens a stream says what it takes beyond version 1: `factors`."""
_ENVELOPE = struct.Struct("<2sBxIQQQ16s16s")
_FIRST = struct.Struct("<2sBxIQQQQ")  # format 1
SIZE = _ENVELOPE.size
UNSAID = bytes(16)
"""Terms that were not said: frames of format 1."""


class Envelope(NamedTuple):
    """The sender: which opening of which state, after which uploads, under which terms."""

    incarnation: int
    epoch: int
    nonce: int
    sequence: int
    """The last upload that the client has made."""
    chain: int
    """Of an upload: the chain it stands on. Of any other message: the chain after upload `sequence`."""
    terms: bytes = UNSAID


class Frame(NamedTuple):
    """A frame to send, and the upload whose receipt is awaited then: 0 for a greeting, None if no answer is due."""

    data: bytes
    awaits: int | None


def seal(envelope: Envelope, message: bytes) -> bytes:
    """The frame that travels: envelope and encoded message.

    >>> unseal(seal(Envelope(1, 2, 3, 4, 5), b"..."))[0].chain
    5
    """
    e = envelope
    chain = e.chain.to_bytes(16, "little")
    return _ENVELOPE.pack(b"FE", FORMAT, e.epoch, e.incarnation, e.nonce, e.sequence, chain, e.terms) + message


def unseal(frame: bytes) -> tuple[Envelope, bytes]:
    """The envelope and the encoded message."""
    if frame[:3] == b"FE\x01" and len(frame) >= _FIRST.size:
        _, _, epoch, incarnation, nonce, sequence, chain = _FIRST.unpack_from(frame)
        return Envelope(incarnation, epoch, nonce, sequence, chain), frame[_FIRST.size :]
    if len(frame) < SIZE:
        raise FedbanditError(f"The frame has {len(frame)} bytes, but an envelope has {SIZE}.")
    magic, version, epoch, incarnation, nonce, sequence, link, terms = _ENVELOPE.unpack_from(frame)
    if magic != b"FE" or version != FORMAT:
        raise FedbanditError(f"The frame starts with {magic!r} version {version}, expected b'FE' version {FORMAT}.")
    return Envelope(incarnation, epoch, nonce, sequence, int.from_bytes(link, "little"), terms), frame[SIZE:]


def extend(chain: int, upload: bytes) -> int:
    """The chain after one more upload; of uploads in message format 2, as it was then."""
    if upload[2:3] == b"\x02":
        digest = hashlib.blake2b(chain.to_bytes(16, "little")[:8] + upload, digest_size=8).digest()
    else:
        digest = hashlib.sha256(chain.to_bytes(16, "little") + upload).digest()[:16]
    return int.from_bytes(digest, "little")
