"""Secure sums on a network: what both sides need to know.

A client's part of a sum never travels unmasked. The steps of `machines.sums` go over POST /v1/{federation}/sums: a
client sends the step that it has to send, or nothing, and gets those that wait for it. Everything else, the call that
begins a sum (Collect) and the total that follows (Download), goes the way of all messages.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedbandit.errors import FedbanditError
from fedbandit.machines.sums.server import OpenedSum
from fedbandit.machines.sums.terms import MaskTerms
from fedbandit.network.invitation import Agreement
from fedbandit.privacy import PrivateStatistics
from fedbandit.system import System

STEP_SECONDS = 20.0
"""How long a coordinator waits for the answers of a step before it goes on without whoever is late."""


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
