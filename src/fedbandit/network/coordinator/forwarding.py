"""A request that another process answers, over HTTP/1.1: a connection for each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

import h11


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: h11.Request, parts: AsyncIterable[bytes]
) -> tuple[h11.Response, AsyncIterator[bytes]]:
    """Send a request with its body; how the answer begins, and its body. The connection ends with that.

    An answer may come before the end of the body, as that to somebody who is not let in: the rest is not waited for,
    which may never come. A request with `Connection: close` would be answered and reset by then, its answer unread.
    """
    connection = h11.Connection(h11.CLIENT)

    async def next_event() -> object:
        while (event := connection.next_event()) is h11.NEED_DATA:
            connection.receive_data(await reader.read(2**16))
        return event

    async def begin() -> h11.Response:
        while isinstance(head := await next_event(), h11.InformationalResponse):
            pass
        if not isinstance(head, h11.Response):
            raise h11.RemoteProtocolError("There is no answer.")
        return head

    async def send() -> None:
        async for part in parts:
            writer.write((connection.send(h11.Data(data=part)) if part else None) or b"")
            await writer.drain()
        writer.write(connection.send(h11.EndOfMessage()) or b"")

    tasks = list[asyncio.Task[Any]]()
    try:
        writer.write(connection.send(request) or b"")
        tasks = [asyncio.create_task(send()), asyncio.create_task(begin())]
        sending, answering = tasks
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done() and not isinstance(sending.exception(), ConnectionError):
            sending.result()  # else the other end takes no more, and may have said why
        head = await answering
    except BaseException:
        writer.close()
        raise
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def body() -> AsyncIterator[bytes]:
        with contextlib.closing(writer):
            while isinstance(event := await next_event(), h11.Data):
                yield bytes(event.data)

    return head, body()
