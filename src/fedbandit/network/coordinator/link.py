"""The link between a front and the writer: records on a Unix socket, many streams on one connection.

    op (u8) · stream (u32) · length (u32) · bytes                                               little endian

| op       | from   | bytes                                                                          |
|----------|--------|--------------------------------------------------------------------------------|
| OPEN     | front  | JSON: federation, name, address, software of a client that wants a stream      |
| FRAME    | front  | a frame of its client                                                          |
| REPORT   | front  | a text of its client                                                           |
| GONE     | front  | nothing: the client is gone                                                    |
| COUNTS   | front  | JSON: how many connections it has and has refused; stream 0                    |
| ACCEPT   | writer | nothing: the stream is open                                                    |
| REFUSE   | writer | JSON: status and body of the answer to the client                              |
| SEND     | writer | a message to the client                                                        |
| DOWNLOAD | writer | a message that replaces an older one of this kind, if that is still waiting    |
| TELL     | writer | a text to the client                                                           |
| CLOSE    | writer | why the stream is to be closed after what was sent before                      |

Both ends are of one coordinator and of one version; nothing of this is ever stored.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Callable
from typing import Any

OPEN, FRAME, REPORT, GONE, COUNTS, ACCEPT, REFUSE, SEND, DOWNLOAD, TELL, CLOSE = range(1, 12)
_HEAD = struct.Struct("<BII")
FRAMES, REQUESTS = "frames", "requests"
"""Names of the writer's two sockets in its folder: of links, and of HTTP requests that fronts pass on."""


class FrontLink(asyncio.Protocol):
    """One end. What is sent in one turn of the loop leaves in one write."""

    def __init__(self, receive: Callable[[int, int, bytes], None], lost: Callable[[], None]) -> None:
        self._receive, self._lost = receive, lost
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._waiting: list[bytes] = []
        self._may_write = asyncio.Event()
        self._may_write.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The other end is there."""
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(2**22)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take all records that are complete."""
        data, start = self._rest + data, 0
        while len(data) - start >= _HEAD.size:
            op, stream, length = _HEAD.unpack_from(data, start)
            end = start + _HEAD.size + length
            if len(data) < end:
                break
            self._receive(op, stream, data[start + _HEAD.size : end])
            start = end
        self._rest = data[start:]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The other end is gone."""
        self._transport = None
        self._may_write.set()
        self._lost()

    def pause_writing(self) -> None:
        """The other end does not read."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """It does again."""
        self._may_write.set()

    def send(self, op: int, stream: int, data: bytes = b"") -> None:
        """Send a record, if there is anybody."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        self._waiting += (_HEAD.pack(op, stream, len(data)), data)

    def tell(self, op: int, stream: int, value: Any) -> None:
        """Send a record of JSON."""
        self.send(op, stream, json.dumps(value).encode())

    async def drained(self) -> None:
        """Wait while the other end does not read."""
        await self._may_write.wait()

    def close(self) -> None:
        """End it."""
        if self._transport is not None:
            self._transport.close()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if self._transport is not None:
            self._transport.write(b"".join(waiting))
