"""What waits to be sent on one connection."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from typing import Any

from fedbandit.messages import Download, Message, encode

MOST_UNSENT = 1000
"""Messages that may wait on one connection: a client that does not read is disconnected, and asks when it is back."""
log = logging.getLogger("fedbandit.coordinator")


def same_statistics(one: Download, other: Download) -> bool:
    """Whether two downloads differ in nothing but to whom they go, and what they acknowledge."""
    return one.sums is other.sums and (one.slack, one.own) == (other.slack, other.own)


class SendQueue:
    """The messages that wait to be sent on one connection; a newer download replaces an older one."""

    def __init__(self) -> None:
        self.waiting: deque[bytes | str] = deque()
        self.download: bytes | None = None
        self.closing: str | None = None
        self._event = asyncio.Event()

    def put(self, message: Message, data: bytes | None = None) -> None:
        """Send a message, perhaps encoded already, as soon as possible.

        One that cannot be encoded ends this connection, and nobody else's.
        """
        try:
            data = encode(message) if data is None else data
        except Exception:
            log.exception("a message cannot be encoded", extra={"kind": type(message).__name__})
            self.close("the coordinator has a fault")
            return
        if isinstance(message, Download):
            self.download = data
        else:
            self._append(data)
        self._event.set()

    def tell(self, text: dict[str, Any]) -> None:
        """Send a JSON object."""
        self._append(json.dumps(text))
        self._event.set()

    def _append(self, message: bytes | str) -> None:
        if len(self.waiting) < MOST_UNSENT:
            self.waiting.append(message)
        else:
            self.close("the client does not read")

    def close(self, reason: str) -> None:
        """Close the connection after what is waiting has been sent."""
        self.closing = reason
        self._event.set()

    async def next(self) -> list[bytes | str]:
        """Wait for messages, and take all there are; none if the connection is to be closed."""
        await self._event.wait()
        self._event.clear()
        messages = list(self.waiting)
        self.waiting.clear()
        if self.download is not None:
            messages.append(self.download)
            self.download = None
        return messages
