"""The vocabulary that crosses the network, and its binary form.

Machines (client and coordinator) take messages and return messages; they do no I/O. Every message has a fixed size for
a given dimension d, so that a simulation can count the bytes it did not send:

    magic "FB" · format version · kind · d · member · two whole numbers · one float     (40 bytes, little endian)
    then, for messages that carry statistics: n, b and the lower triangle of V (`encoded_sums`), and in downloads the
    six numbers of `Slack`; in contributions n and d(d+3)/2 whole numbers modulo 2⁶⁴

With `IN_BLOCKS` added to the kind, statistics are those of some actions, each with a θ of its own, and as long as there
are blocks that are not zero; with `DATED`, the round in whose units they are (u64) stands before them. Of a relay whose
clients noise what leaves them (`RELAYED`), two numbers that say how much noise there is (f64, u64) stand before them.

Messages of a local server (`server_messages`) carry messages of its users' models, each after its length.

Statistics are counted as the papers do (one upload = 1, one download = 1), as scalars (b and the triangle of V), and as
encoded bytes. Joining and receipts are not counted.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedbandit.encoded_sums import (
    COUNT,
    SLACK,
    all_blocks,
    blocks_in,
    decode_blocks,
    decode_factor,
    decode_slack,
    decode_sums,
    dim_of,
    encode_factor,
    encode_sums,
    factor_size,
    on_grid,
    statistics_scalars,
    sums_size,
)
from fedbandit.errors import FedbanditError
from fedbandit.server_messages import FromServer, ToServer, joined_parts, parts_inside
from fedbandit.sums import EXACT, FactoredSums, Relayed, Slack, Sums

FORMAT = 3
READABLE = (2, 3)
"""Formats that are read: 2 has the same layout, and uploads of that format stand on another hash chain (`envelope`)."""
_HEADER = struct.Struct("<2sBBIQQQd")
IN_BLOCKS, DATED, FACTORED = 32, 64, 128
"""Added to the kind of a message: what its statistics look like."""
_RELAYED = struct.Struct("<dQ")
RELAYED_SIZE = _RELAYED.size


@dataclass(frozen=True, slots=True)
class Join:
    """Client → coordinator: I am here; the last download I have is `version`, the last call `epoch` (0: none).

    The first one makes a member of the client; any other asks for what has been missed, and changes nothing else,
    unless the coordinator was restored from a backup and does not know that version or call any more.
    """

    kind: ClassVar[int] = 1
    member: int
    version: int = 0
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Upload:
    """Client → coordinator: what I have observed since my last upload (ΔV, Δb).

    `sequence` numbers a client's uploads 1, 2, …; a repeated number is a retry and is applied once. `known` measures
    what client and coordinator will have in common once this is applied (log det or log count, as the protocol's
    downloads need), so that the coordinator keeps no matrix per client.

    actions: how many actions have a θ of their own, 0 if all arms share one. round: where models forget, the round in
    whose units the statistics are. relayed: of a relay whose clients noise what leaves them, how much noise that is.
    """

    kind: ClassVar[int] = 2
    member: int
    sequence: int
    sums: Sums
    known: float
    actions: int = 0
    round: int | None = None
    relayed: Relayed | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """Coordinator → client: your uploads up to `sequence` have been applied."""

    kind: ClassVar[int] = 3
    member: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Download:
    """Coordinator → client: all that I have for you; I have your uploads up to `acknowledged`.

    They are part of the statistics if `own`; if not, these are the others' alone, and you know your own better.

    The whole rather than the difference: it has the same size, and a lost, repeated or overtaken one does no harm.
    """

    kind: ClassVar[int] = 4
    member: int
    version: int
    acknowledged: int
    sums: Sums
    slack: Slack = EXACT
    own: bool = True
    actions: int = 0
    round: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """Client → coordinator: let everyone synchronise; `growth` is by how much my trigger is exceeded, for queues."""

    kind: ClassVar[int] = 5
    member: int
    growth: float = 0.0


@dataclass(frozen=True, slots=True)
class Collect:
    """Coordinator → client: send what you have, even if it is nothing.

    In secure sums `included` is the last epoch whose sum your contribution is in (0: none).
    """

    kind: ClassVar[int] = 6
    member: int
    epoch: int
    included: int = 0


@dataclass(frozen=True, slots=True)
class Ask:
    """Peer → peers: tell your statistics of this estimator, and pass this on while it has hops left."""

    kind: ClassVar[int] = 7
    member: int
    estimator: int
    epoch: int
    hops: int


@dataclass(frozen=True, slots=True)
class Tell:
    """Peer → peer: all that I have released for this estimator, in `sequence` releases; pass it on likewise.

    `member` is where it comes from, not who passes it on. The whole rather than the difference: one that is lost or
    overtaken does no harm.
    """

    kind: ClassVar[int] = 8
    member: int
    estimator: int
    sequence: int
    hops: int
    sums: Sums


@dataclass(frozen=True, slots=True)
class Threshold:
    """Coordinator → client: from now on, send when your trigger exceeds this threshold."""

    kind: ClassVar[int] = 9
    member: int
    threshold: float


@dataclass(frozen=True, slots=True, eq=False)
class Contribution:
    """Client → coordinator: my part of the secure sum of this epoch; of `n` interactions, counting all before.

    On a network `words` are masked, so that nothing but the sum over many clients can be read (`machines.sums`), and of
    `excess`, portions of the noise in `words`, that is told which is too much for the sum as it turned out.
    """

    kind: ClassVar[int] = 10
    member: int
    epoch: int
    n: int
    words: NDArray[np.uint64]
    excess: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Recall:
    """Coordinator → client: I have your uploads up to `sequence` only, although I may have acknowledged more."""

    kind: ClassVar[int] = 20
    member: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Restate:
    """Client → coordinator: all that I have uploaded up to `sequence`, in so many releases; the answer to a Recall.

    It is the sum of what was uploaded, as it was: with the same noise, and at no further cost to privacy.
    """

    kind: ClassVar[int] = 21
    member: int
    sequence: int
    releases: int
    sums: Sums
    known: float
    actions: int = 0
    round: int | None = None
    relayed: Relayed | None = None


Plain: TypeAlias = (
    Join | Upload | Receipt | Download | Request | Collect | Ask | Tell | Threshold | Contribution | Recall | Restate
)
Message: TypeAlias = Plain | FromServer | ToServer
KINDS: dict[int, type[Message]] = {
    k.kind: k
    for k in (
        *(Join, Upload, Receipt, Download, Request, Collect, Ask, Tell, Threshold),
        *(Contribution, Recall, Restate, FromServer, ToServer),
    )
}


_MARKED = (Upload, Download, Restate)
RELAYED: dict[type[Message], int] = {Upload: 24, Restate: 25}
"""Kinds of what a relay sends whose clients noise what leaves them; before the statistics, the amount of noise."""


def encoded_size(kind: type[Message], dim: int, blocks: int | None = None, *, dated: bool = False) -> int:
    """Bytes of an encoded message of this kind; with one θ for each action, and so many blocks in it; with a round.

    >>> encoded_size(Request, 25), encoded_size(Upload, 25)
    (40, 2848)
    """
    if kind in (Upload, Download, Tell, Contribution, Restate):
        slack = SLACK.size if kind is Download else 0
        return _HEADER.size + COUNT.size * dated + sums_size(dim, blocks) + slack
    return _HEADER.size


def encode(message: Message) -> bytes:
    """The message as bytes."""
    match message:
        case Upload(member, sequence, sums, known):
            rank = sums.c.size if isinstance(sums, FactoredSums) else 0
            return _header(message, member, sequence, rank, on_grid(known), sums.b.shape[-1]) + _statistics(message)
        case Download(member, version, acknowledged, sums, slack, own):
            header = _header(message, member, version, acknowledged, float(own), sums.b.shape[-1])
            return header + _statistics(message) + SLACK.pack(*slack)
        case Receipt(member, sequence):
            return _header(message, member, sequence)
        case Collect(member, epoch, included):
            return _header(message, member, epoch, included)
        case Contribution(member, epoch, n, words, excess):
            header = _header(message, member, epoch, len(excess), dim=dim_of(words.size))
            return header + COUNT.pack(n) + words.astype("<u8").tobytes() + excess.astype("<u8").tobytes()
        case Ask(member, estimator, epoch, hops):
            return _header(message, member, epoch, estimator, float(hops))
        case Tell(member, estimator, sequence, hops, sums):
            header = _header(message, member, sequence, estimator, float(hops), sums.b.size)
            return header + encode_sums(sums)
        case Join(member, version, epoch):
            return _header(message, member, version, epoch)
        case Recall(member, sequence):
            return _header(message, member, sequence)
        case Restate(member, sequence, releases, sums, known):
            header = _header(message, member, sequence, releases, on_grid(known), sums.b.shape[-1])
            return header + _statistics(message)
        case Threshold(member, threshold):
            return _header(message, member, real=threshold)
        case Request(member, growth):
            return _header(message, member, real=growth)
        case FromServer(member, sequence, phase, messages, report):
            return _header(message, member, sequence, phase, float(report)) + joined_parts(map(encode, messages))
        case ToServer(member, phase, messages, renewal):
            return _header(message, member, phase, 0, float(renewal)) + joined_parts(map(encode, messages))


def decode(data: bytes) -> Message:
    """The message that `data` encodes; anything else is refused with a sentence.

    >>> decode(encode(Receipt(member=3, sequence=7)))
    Receipt(member=3, sequence=7)
    """
    if len(data) < _HEADER.size:
        raise FedbanditError(f"The message has {len(data)} bytes, but a header has {_HEADER.size}.")
    magic, version, kind, dim, member, first, second, real = _HEADER.unpack_from(data)
    if magic != b"FB" or version not in READABLE:
        raise FedbanditError(f"The message starts with {magic!r} format {version}, expected b'FB' format {FORMAT}.")
    if not math.isfinite(real):
        raise FedbanditError(f"The message carries the number {real}, which is not finite.")
    if kind == FromServer.kind:
        kinds = {Upload.kind, Upload.kind + FACTORED, Join.kind, Request.kind}
        inside = map(decode, parts_inside(data[_HEADER.size :], kinds))
        return FromServer(member, first, second, tuple(inside), real == 1.0)  # type: ignore[arg-type]
    if kind == ToServer.kind:
        inside = map(decode, parts_inside(data[_HEADER.size :], {Download.kind, Collect.kind, Threshold.kind}))
        return ToServer(member, first, tuple(inside), real == 1.0)  # type: ignore[arg-type]
    if kind == Upload.kind + FACTORED:
        return _decode_factored(data, dim, member, first, second, real)
    if kind in RELAYED.values() and len(data) >= _HEADER.size + _RELAYED.size:
        return _decode_relayed(data)
    in_blocks, dated, marked = bool(kind & IN_BLOCKS), bool(kind & DATED), kind
    kind &= ~(IN_BLOCKS | DATED)
    if kind not in KINDS or (marked != kind and KINDS[kind] not in _MARKED):
        raise FedbanditError(f"The message is of kind {marked}, expected one of {sorted(KINDS)}.")
    start = _HEADER.size + COUNT.size * dated
    size = encoded_size(KINDS[kind], dim, blocks_in(data, start) if in_blocks else None, dated=dated)
    if kind == Contribution.kind:
        size += 8 * second * statistics_scalars(dim)
    if len(data) != size:
        raise FedbanditError(f"A {KINDS[kind].__name__} of dimension {dim} has {size} bytes, got {len(data)}.")
    actions, at = 0, COUNT.unpack_from(data, _HEADER.size)[0] if dated else None
    if in_blocks:
        some, actions = decode_blocks(data, dim, start)
        sums = all_blocks(some, actions) if kind == Download.kind else some
    elif KINDS[kind] in (*_MARKED, Tell):
        sums = decode_sums(data, dim, start)
    if kind in (Ask.kind, Tell.kind) and not (real.is_integer() and 0 < real < 2**16):
        raise FedbanditError(f"The message has {real:g} hops left, expected a whole number from 1 to 65535.")
    if kind == Ask.kind:
        return Ask(member, second, first, int(real))
    if kind == Tell.kind:
        return Tell(member, second, first, int(real), sums)
    if kind == Upload.kind:
        return Upload(member, first, sums, real, actions, at)
    if kind == Download.kind:
        return Download(member, first, second, sums, decode_slack(data), real == 1.0, actions, at)
    if kind == Contribution.kind:
        (n,) = COUNT.unpack_from(data, _HEADER.size)
        rows = np.frombuffer(data, "<u8", offset=_HEADER.size + COUNT.size).reshape(1 + second, -1).astype(np.uint64)
        return Contribution(member, first, n, rows[0], rows[1:])
    if kind == Restate.kind:
        return Restate(member, first, second, sums, real, actions, at)
    if kind in (Join.kind, Collect.kind):
        return (Join if kind == Join.kind else Collect)(member, first, second)
    if kind in (Receipt.kind, Recall.kind):
        return (Receipt if kind == Receipt.kind else Recall)(member, first)
    return (Threshold if kind == Threshold.kind else Request)(member, real)


def _header(message: Message, member: int, first: int = 0, second: int = 0, real: float = 0.0, dim: int = 0) -> bytes:
    relayed = isinstance(message, Upload | Restate) and message.relayed is not None
    kind = RELAYED[type(message)] if relayed else message.kind + _marks(message)
    return _HEADER.pack(b"FB", FORMAT, kind, dim, member, first, second, real)


def _marks(message: Message) -> int:
    """What the kind says beside what kind it is."""
    if not isinstance(message, _MARKED):
        return 0
    factored = FACTORED * (isinstance(message, Upload) and isinstance(message.sums, FactoredSums))
    return IN_BLOCKS * (message.actions > 0) + DATED * (message.round is not None) + factored


def _statistics(message: Upload | Download | Restate) -> bytes:
    if isinstance(message, Upload) and isinstance(message.sums, FactoredSums):
        return encode_factor(message.sums)
    date = b"" if message.round is None else COUNT.pack(message.round)
    if not isinstance(message, Download) and message.relayed is not None:
        date = _RELAYED.pack(*message.relayed)
    return date + encode_sums(message.sums, message.actions)


def _decode_factored(data: bytes, dim: int, member: int, sequence: int, rank: int, known: float) -> Upload:
    if not 0 < rank <= dim or len(data) != _HEADER.size + factor_size(dim, rank):
        raise FedbanditError(f"An Upload of dimension {dim} and rank {rank} cannot have {len(data)} bytes.")
    return Upload(member, sequence, decode_factor(data, dim, rank, _HEADER.size), known)


def _decode_relayed(data: bytes) -> Upload | Restate:
    """The message without the amount of noise, and that."""
    kind, start = next(k.kind for k, number in RELAYED.items() if number == data[3]), _HEADER.size
    message = decode(data[:3] + bytes([kind]) + data[4:start] + data[start + _RELAYED.size :])
    relayed = Relayed(*_RELAYED.unpack_from(data, start))
    assert isinstance(message, Upload | Restate)
    if not 0 <= relayed.variance < math.inf or relayed.releases > message.sums.n:
        raise FedbanditError(f"The message has noise of variance {relayed.variance} in {relayed.releases} releases.")
    return replace(message, relayed=relayed)
