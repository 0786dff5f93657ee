"""Listening sockets: answers do not wait for one another."""

from __future__ import annotations

import asyncio
import socket

from fedbandit.network.addresses import bind


def test_what_is_accepted_sends_at_once() -> None:
    async def accepted() -> int:
        options: asyncio.Queue[int] = asyncio.Queue()

        async def welcome(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = writer.get_extra_info("socket")
            options.put_nowait(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listener = bind("127.0.0.1", 0)
        async with await asyncio.start_server(welcome, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            found = await options.get()
            writer.close()
        return found

    assert asyncio.run(accepted()) == 1
