"""What a client says on one connection, and when; no I/O, no clock.

| it has                                   | it sends                                       | and waits for        |
|------------------------------------------|------------------------------------------------|----------------------|
| just connected                           | its greeting, a Join                           | any Receipt          |
| uploads that were not acknowledged       | the first of them (`DurableNode.outgoing`)   | its Receipt          |
| none of them, and greeted with some open | the greeting again: what was missed comes then | any Receipt          |
| a request                                | it                                             | nothing              |

One thing at a time: while an answer is awaited nothing else is sent. An answer that does not come ends the connection,
and a new one begins with a new greeting. Messages may come at any time.
"""

from __future__ import annotations

from typing import Any

from fedbandit.errors import FedbanditError
from fedbandit.messages import Receipt, decode
from fedbandit.network.client.node import DurableNode
from fedbandit.network.jsonable import read_json
from fedbandit.network.refusal import TRANSIENT

PROTOCOL = "fedbandit.v1"
"""The WebSocket subprotocol that a client offers: version 1 of docs/protocol.md."""


class Refused(FedbanditError):
    """The coordinator has refused something: a sentence, and whether trying again may help."""

    def __init__(self, sentence: str, kind: str, owner: str = "") -> None:
        super().__init__(sentence)
        self.kind = kind
        self.owner = owner
        """Elsewhere: the coordinator to go to."""
        self.transient = kind in TRANSIENT


class Conversation:
    """One connection of a client."""

    def __init__(self, client: DurableNode[Any]) -> None:
        self.client = client
        self.awaits: int | None = None
        """The upload whose receipt is awaited; 0: any receipt; None: nothing is."""

    def begin(self) -> list[bytes]:
        """The frames to begin with; none if nothing is ever exchanged."""
        greeting = self.client.greeting()
        if greeting is None:
            return []
        self.awaits = 0
        return [greeting]

    def next(self) -> list[bytes]:
        """The frames to send now. A StoreError says that there are some that may not be sent yet."""
        frames: list[bytes] = []
        while self.awaits is None:
            following = self.client.outgoing()
            if not following:
                break
            frames.append(following[0].data)
            self.awaits = following[0].awaits
        return frames

    def take(self, data: bytes | str) -> None:
        """Take what came: a message, or in text a refusal, which ends the conversation."""
        if isinstance(data, str):
            raise _refusal(data)
        message = decode(data)
        self.client.receive(message)
        if self.awaits is not None and isinstance(message, Receipt) and message.sequence >= self.awaits:
            self.awaits = None


def _refusal(text: str) -> Refused:
    try:
        said: Any = read_json(text)
        return Refused(str(said["error"]), str(said["kind"]), str(said.get("owner", "")))
    except (ValueError, KeyError, TypeError):
        return Refused("The coordinator sent a text that is no refusal.", "malformed")
