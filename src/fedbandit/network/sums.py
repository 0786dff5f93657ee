"""Secure sums on a network: what both sides need to know.

A client's part of a sum never travels unmasked. The steps of `machines.sums` go over POST /v1/{federation}/sums: a
client sends the step that it has to send, or nothing, and gets those that wait for it. Everything else, the call that
begins a sum (Collect) and the total that follows (Download), goes the way of all messages.

A relay sends those of its clients together, to POST /v1/{federation}/sums/many. Most of what clients are told is the
same for all of them but for the member's number, and is in the answer once.

| bytes   | what                                                                                                       |
|---------|------------------------------------------------------------------------------------------------------------|
| bundle  | how many (u32); of each entry Authorization, name, session and step, each after its length (u32)           |
| answer  | how many distinct steps (u32); of each format and step (u8), epoch (u64), length (u32), body;              |
|         | then of each entry the member (u64), a status (u16), how many steps (u32), and which (u32 each);           |
|         | a refusal's JSON, after its length (u32)                                                                   |
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fedbandit.errors import FedbanditError
from fedbandit.machines.sums.messages import Step, SumMessage, encode_step
from fedbandit.machines.sums.server import OpenedSum
from fedbandit.machines.sums.terms import MaskTerms
from fedbandit.network.invitation import Agreement
from fedbandit.network.jsonable import read_json
from fedbandit.privacy import PrivateStatistics
from fedbandit.system import System

STEP_SECONDS = 20.0
"""How long a coordinator waits for the answers of a step before it goes on without whoever is late."""
MOST_IN_BUNDLE = 4 * 2**20
"""Bytes of steps that a relay sends at once, before the last of them."""
MOST_STEPS = 1024
"""Steps in a bundle: a coordinator looks up who sends each of them."""
MOST_SAID = 1024
"""Characters in which a client says who it is: one must not make a bundle too long for all."""
_LENGTH, _SAID, _HEAD = struct.Struct("<I"), struct.Struct("<QHI"), struct.Struct("<BBQI")

SESSION_HEADER = "Fedbandit-Session"
"""Which opening of which state sends a step: of two copies only one takes part."""


def session_of(incarnation: int, epoch: int, nonce: int) -> str:
    """The value of that header."""
    return f"{incarnation:x}.{epoch}.{nonce:x}"


def mask_terms(system: System, agreement: Agreement) -> MaskTerms:
    """What members of this federation agree on for their sums; every key in them is bound to the federation's terms."""
    privacy = system.privacy
    if not isinstance(privacy, PrivateStatistics) or not privacy.pooled or privacy.trust != "sums":
        raise FedbanditError("This federation has no secure sums.")
    assert privacy.colluding is not None
    terms = privacy.sum_terms
    N = agreement.world.n_clients
    return MaskTerms(agreement.digest, terms.words, N, terms.quorum, privacy.colluding, terms.levels)


def numbers_of(opened: OpenedSum) -> list[int]:
    """An opened sum as the journal has it.

    0, how many members took excess noise back, and which; the epoch, how many members are in the sum, each with its
    count, and the words. Before noise was taken back an entry began with the epoch, which is never 0.
    """
    members = [number for entry in opened.counts.items() for number in entry]
    returned = [0, len(opened.returned), *opened.returned]
    return [*returned, opened.epoch, len(opened.counts), *members, *opened.words.tolist()]


def opened_of(numbers: Sequence[int]) -> OpenedSum:
    """What `numbers_of` gave, now or before noise was taken back.

    >>> numbers_of(opened_of([3, 2, 0, 10, 4, 12, 99, 98]))
    [0, 0, 3, 2, 0, 10, 4, 12, 99, 98]
    >>> opened_of([0, 1, 4, 3, 2, 0, 10, 4, 12, 99, 98]).returned
    (4,)
    """
    returned: tuple[int, ...] = ()
    if numbers[0] == 0:
        returned, numbers = tuple(numbers[2 : 2 + numbers[1]]), numbers[2 + numbers[1] :]
    epoch, count, *rest = numbers
    counts = dict(zip(rest[: 2 * count : 2], rest[1 : 2 * count : 2], strict=True))
    return OpenedSum(epoch, np.array(rest[2 * count :], dtype=np.uint64), counts, returned)


def most_in_bundle(step: int) -> int:
    """The bytes of the longest bundle, of steps that are no longer than this."""
    return MOST_IN_BUNDLE + step + 4 * MOST_SAID


class SentStep(NamedTuple):
    """What a client sends to a relay: who it says it is, and a step of a sum, or nothing."""

    authorization: str
    name: str
    session: str
    body: bytes


@dataclass
class Outcome:
    """What became of it: a status, and the steps that wait for the client or the refusal."""

    status: int
    steps: list[SumMessage] = field(default_factory=list)
    refusal: dict[str, str] = field(default_factory=dict)


def steps_as_bytes(steps: Sequence[SumMessage]) -> bytes:
    """Each after its length."""
    return b"".join(_with_length(encode_step(step)) for step in steps)


def pack_steps(steps: Sequence[SentStep]) -> bytes:
    """A bundle.

    >>> unpack_steps(pack_steps([SentStep("", "c0", "1.2.3", b"step")]))
    [SentStep(authorization='', name='c0', session='1.2.3', body=b'step')]
    """
    texts = [[*(text.encode() for text in step[:3]), step.body] for step in steps]
    return _LENGTH.pack(len(steps)) + b"".join(_with_length(part) for parts in texts for part in parts)


def unpack_steps(data: bytes) -> list[SentStep]:
    """What `pack_steps` gave; anything else is refused with a sentence."""
    reader = _Reader(data)
    found = []
    count = reader.count()
    if count > MOST_STEPS:
        raise FedbanditError(f"A bundle has {count} steps, but {MOST_STEPS} are the most.")
    for _ in range(count):
        authorization, name, session, body = (reader.part() for _ in range(4))
        try:
            found.append(SentStep(authorization.decode(), name.decode(), session.decode(), body))
        except UnicodeDecodeError:
            raise FedbanditError("A bundle of steps has a name that is no text.") from None
    reader.end()
    return found


def pack_outcomes(outcomes: Sequence[Outcome]) -> bytes:
    """The answer to a bundle, in which what several are told is once.

    >>> told = [Outcome(200, [SumMessage(i, 7, Step.ROSTER, b"all keys")]) for i in range(3)]
    >>> pack_outcomes(told).count(b"all keys"), unpack_outcomes(pack_outcomes(told)) == told
    (1, True)
    """
    numbers: dict[tuple[int, int, int, bytes], int] = {}
    said = []
    for outcome in outcomes:
        which = [numbers.setdefault((s.format, s.step, s.epoch, s.body), len(numbers)) for s in outcome.steps]
        member = outcome.steps[0].member if outcome.steps else 0
        said.append(_SAID.pack(member, outcome.status, len(which)) + struct.pack(f"<{len(which)}I", *which))
        if outcome.status != 200:
            said.append(_with_length(json.dumps(outcome.refusal).encode()))
    table = b"".join(_HEAD.pack(*head, len(body)) + body for *head, body in numbers)
    return _LENGTH.pack(len(numbers)) + table + b"".join(said)


def unpack_outcomes(data: bytes) -> list[Outcome]:
    """What `pack_outcomes` gave; anything else is refused with a sentence."""
    reader, found = _Reader(data), []
    table = []
    for _ in range(reader.count()):
        version, step, epoch, length = reader.numbers(_HEAD)
        table.append((epoch, step, reader.take(length), version))
    try:
        while not reader.ended:
            member, status, count = reader.numbers(_SAID)
            steps = [table[reader.count()] for _ in range(count)]
            refusal = {} if status == 200 else read_json(reader.part())
            if not (status == 200 or (400 <= status < 600 and isinstance(refusal, dict))):
                raise FedbanditError(f"An answer to a bundle of steps has status {status}, or no refusal with it.")
            messages = [SumMessage(member, epoch, Step(step), body, version) for epoch, step, body, version in steps]
            found.append(Outcome(status, messages, refusal))
    except (ValueError, IndexError) as error:
        raise FedbanditError(f"An answer to a bundle of steps cannot be read: {error}.") from None
    return found


class _Reader:
    """Bytes from front to back, never beyond their end."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def ended(self) -> bool:
        return self._at == len(self._data)

    def take(self, length: int) -> bytes:
        part = self._data[self._at : self._at + length]
        if len(part) != length:
            raise FedbanditError("A bundle of steps is shorter than it says.")
        self._at += length
        return part

    def numbers(self, form: struct.Struct) -> tuple[int, ...]:
        return form.unpack(self.take(form.size))

    def count(self) -> int:
        return self.numbers(_LENGTH)[0]

    def part(self) -> bytes:
        return self.take(self.count())

    def end(self) -> None:
        if not self.ended:
            raise FedbanditError("A bundle of steps is longer than it says.")


def _with_length(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data
