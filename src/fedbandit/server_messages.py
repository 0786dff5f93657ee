"""What a local server and its coordinator say to each other: messages of many models on one connection.

A local server has a number in the federation, its models have others: those of local clusters, or of its users. What a
model says travels inside a message of its server, which has a number of its own, so that server and coordinator have
one conversation, one history and one chain, as a client has (docs/protocol.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

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
