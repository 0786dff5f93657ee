"""Streams: on a WebSocket a client sends frames, one after the other or several at once, and is sent messages.

A frame is posted to its federation, whose worker says what became of it; nothing waits for that but the client. Only if
`MOST_OPEN` frames of a stream are open, no further one is read from its socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import deque
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import anyio
from starlette.websockets import WebSocket, WebSocketDisconnect

from fedbandit.messages import Download, Message, encode
from fedbandit.network.clock import TIME, as_header
from fedbandit.network.coordinator.admission import PROTOCOL, Pass, offered_protocols
from fedbandit.network.envelope import ACCEPTS
from fedbandit.network.jsonable import read_json
from fedbandit.network.refusal import TRANSIENT, Refusal, as_json

if TYPE_CHECKING:
    from fedbandit.network.coordinator.host import HostedFederation

MOST_UNSENT = 1000
"""Messages that may wait on one connection: a client that does not read is disconnected, and asks when it is back."""
MOST_OPEN = 16
"""Frames of one stream that may wait for their answers."""
PAUSE = 0.1
"""Seconds in which nothing is read of a client that sends more than it may."""
REPORT_KEYS = ("observed", "reward", "regret", "alone")
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
        self.member: int | None = None
        """Whose messages go here."""
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
        self.put_bytes(data, replaces=isinstance(message, Download))

    def put_bytes(self, data: bytes, *, replaces: bool) -> None:
        """Send a message that is encoded; a download replaces the one that is waiting."""
        if replaces:
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

    def refuse(self, refusal: Refusal) -> None:
        """Tell a refusal; one that needs a person, or another coordinator, ends the connection."""
        self.tell(as_json(refusal))
        if refusal.kind not in TRANSIENT or refusal.kind == "elsewhere":
            self.close(refusal.kind)


class ClientStream:
    """A client's stream at its federation, whether this process has the socket or a front."""

    def __init__(self, hosted: HostedFederation, name: str, sending: SendQueue, address: str, software: str) -> None:
        hosted.limit_streams(name)
        self.hosted, self.name, self.sending = hosted, name, sending
        hosted.addresses[name], hosted.versions[name] = address, software[:60]
        hosted.streams[name] += 1
        self.open = 0  # frames that have not been answered
        self._ended = self._too_fast = False
        self._answered = asyncio.Event()

    def take(self, frame: bytes) -> None:
        """Post a frame."""
        try:
            self.hosted.post(self.name, frame, partial(self._reply, frame))
            self.open += 1
        except Refusal as refusal:
            self._refuse(refusal)

    def _reply(self, frame: bytes, outcome: list[Message] | Refusal) -> None:
        self.open -= 1
        self._answered.set()
        if self._ended:  # a client that has gone meanwhile is not connected
            return
        if isinstance(outcome, Refusal):
            self.sending.refuse(outcome)
            return
        self.hosted.connect(self.name, frame, self.sending)
        for message in outcome:
            self.sending.put(message)

    def take_report(self, text: str) -> None:
        """A client's voluntary report: only known keys, only numbers."""
        try:
            self.hosted.limit(self.name)
            told = read_json(text)["report"]
            kept = {key: float(told[key]) for key in REPORT_KEYS if isinstance(told.get(key), int | float)}
            self.hosted.reports[self.name] = kept
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            malformed = Refusal("malformed", 'A text message must be {"report": {…}}.')
            self._refuse(error if isinstance(error, Refusal) else malformed)

    def _refuse(self, refusal: Refusal) -> None:
        self.sending.refuse(refusal)
        self._too_fast = refusal.kind == "rate"

    async def ready(self) -> None:
        """Wait until not too many frames are open, and after one too many a second: others have their turn."""
        if self._too_fast:
            self._too_fast = False
            await asyncio.sleep(PAUSE)
        while self.open >= MOST_OPEN:
            self._answered.clear()
            await self._answered.wait()

    def end(self) -> None:
        """The connection has ended."""
        self._ended = True
        self.hosted.streams[self.name] -= 1
        self.hosted.leave(self.sending)


class Taker(Protocol):
    """What takes a client's frames and reports: its stream, or a front's half of one."""

    def take(self, frame: bytes) -> None:
        """Take a frame."""
        ...

    def take_report(self, text: str) -> None:
        """Take a report."""
        ...

    async def ready(self) -> None:
        """Wait until more can be taken."""
        ...


async def converse(ws: WebSocket, access: Pass, sending: SendQueue, taker: Taker) -> None:
    """Accept a WebSocket; take what its client sends, and send what waits, until either ends it."""
    said = [(ACCEPTS.encode(), b"factors"), (TIME.encode(), as_header().encode())]
    await ws.accept(subprotocol=PROTOCOL if offered_protocols(ws) else None, headers=said)
    async with anyio.create_task_group() as group:

        async def until_it_ends(one: Awaitable[None]) -> None:
            with contextlib.suppress(RuntimeError, WebSocketDisconnect):  # the client has gone
                await one
            group.cancel_scope.cancel()

        group.start_soon(until_it_ends, _listen(ws, access, sending, taker))
        with access.watched(sending.refuse):
            await until_it_ends(_send(ws, access, sending))
    with contextlib.suppress(RuntimeError, WebSocketDisconnect):
        await ws.close(1008 if sending.closing else 1000)


async def _listen(ws: WebSocket, access: Pass, sending: SendQueue, taker: Taker) -> None:
    while True:
        event = await ws.receive()
        if event["type"] == "websocket.disconnect":
            return
        try:
            access.check()
        except Refusal as refusal:
            sending.refuse(refusal)
            continue
        if event.get("bytes") is None:
            taker.take_report(str(event.get("text")))
        else:
            taker.take(event["bytes"])
        await taker.ready()


async def _send(ws: WebSocket, access: Pass, sending: SendQueue) -> None:
    while True:
        waiting = await sending.next()
        if not sending.closing:
            try:
                access.check()
            except Refusal as refusal:
                sending.close(refusal.kind)
                return
        for message in waiting:
            await (ws.send_text(message) if isinstance(message, str) else ws.send_bytes(message))
        if sending.closing:
            return
