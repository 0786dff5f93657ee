"""Peers on sockets: each listens for its neighbours and sends them its bundles, on one connection for each direction.

A frame is its length (u32) and its content: first a greeting in JSON, answered by {"ok": true} or {"error": …}; then
bundles one way, (number u64, bundle), and acknowledgements the other, (number u64). TLS and tokens are those of
`fedbandit keys`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fedbandit.errors import FedbanditError
from fedbandit.network.credentials import Credentials
from fedbandit.network.peer.rounds import PeerRounds

LARGEST = 2**26
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
_LENGTH, _NUMBER = struct.Struct("<I"), struct.Struct("<Q")
log = logging.getLogger("fedbandit.peer")


class Peering:
    """A peer among its neighbours. `agreement` is what all must agree on; it is part of the greeting.

    A neighbour is down after `patience` seconds; `pause` is how many seconds a round takes at least.
    """

    def __init__(
        self,
        rounds: PeerRounds,
        addresses: Mapping[int, tuple[str, int]],
        agreement: dict[str, Any],
        *,
        patience: float = 10.0,
        credentials: Credentials | None = None,
        token: str | None = None,
        trust: ssl.SSLContext | None = None,
        pause: float = 0.0,
    ) -> None:
        self.rounds = rounds
        self.addresses = addresses
        self.agreement = agreement
        self.patience = patience
        self.credentials = credentials
        self.token = token
        self.trust = trust
        self.pause = pause
        self.problem: str | None = None
        self._news = asyncio.Condition()
        self._writers: dict[int, asyncio.StreamWriter] = {}  # neighbour → where its bundles come from

    async def run(
        self, act: Callable[[], None], until: int, listener: socket.socket, tls: ssl.SSLContext | None = None
    ) -> None:
        """Act once a round until that many rounds are over and everything is acknowledged, or `patience` runs out."""
        server = await asyncio.start_server(self._welcome, sock=listener, ssl=tls)
        senders = [asyncio.create_task(self._send_to(j)) for j in self.addresses]
        try:
            while self.rounds.machine.rounds < until:
                if not self.rounds.acted:
                    await asyncio.sleep(self.pause)
                    act()
                    self.rounds.finish_acting()
                await self._tell_everybody()
                await self._until(lambda: not self.rounds.missing())
                for j in self.rounds.missing():
                    log.warning("down", extra={"peer": j})
                acknowledged = self.rounds.end_round()
                for j, writer in list(self._writers.items()):
                    with contextlib.suppress(OSError):
                        _put(writer, _NUMBER.pack(acknowledged[j]))
            await self._until(lambda: not any(self.rounds.waiting.values()))
        finally:
            for sender in senders:
                sender.cancel()
            await asyncio.gather(*senders, return_exceptions=True)
            server.close()
            for writer in list(self._writers.values()):
                writer.close()

    async def _until(self, done: Callable[[], bool]) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            async with asyncio.timeout(self.patience), self._news:
                await self._news.wait_for(done)

    async def _tell_everybody(self) -> None:
        async with self._news:
            self._news.notify_all()

    # What comes from neighbours

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        neighbour: int | None = None
        try:
            neighbour = self._identify(json.loads(await _get(reader, 10_000)))
            _put(writer, b'{"ok": true}')
            self._writers[neighbour] = writer
            _put(writer, _NUMBER.pack(self.rounds.taken[neighbour]))
            while True:
                data = await _get(reader, LARGEST)
                (number,) = _NUMBER.unpack_from(data)
                self.rounds.take(neighbour, number, data[_NUMBER.size :])
                if number <= self.rounds.taken[neighbour]:
                    _put(writer, _NUMBER.pack(self.rounds.taken[neighbour]))
                await self._tell_everybody()
        except (FedbanditError, ValueError, KeyError, TypeError, struct.error) as error:
            log.warning("refused", extra={"peer": neighbour, "kind": type(error).__name__})
            with contextlib.suppress(OSError):
                _put(writer, json.dumps({"error": str(error)}).encode())
        except (OSError, EOFError):
            pass
        finally:
            if neighbour is not None and self._writers.get(neighbour) is writer:
                del self._writers[neighbour]
            writer.close()

    def _identify(self, greeting: dict[str, Any]) -> int:
        member = int(greeting["member"])
        if self.credentials is not None:
            identity = self.credentials.identify(f"Bearer {greeting.get('token')}", None)
            identity.require("client")
            if identity.name != f"peer-{member}":
                raise FedbanditError(f"The token of {identity.name!r} does not let anyone speak as peer-{member}.")
        theirs = greeting["agreement"]
        for key, mine in self.agreement.items():
            if theirs.get(key) != mine:
                raise FedbanditError(f"Peer {member} has {key} = {theirs.get(key)!r}, here it is {mine!r}.")
        self.rounds.meet(member, int(greeting["incarnation"]))
        return member

    # What goes to neighbours

    async def _send_to(self, neighbour: int) -> None:
        """Stay connected to a neighbour, and send it the bundles that it has not acknowledged."""
        pause = FIRST_PAUSE
        host, port = self.addresses[neighbour]
        while True:
            with contextlib.suppress(OSError, EOFError, ValueError, struct.error):
                reader, writer = await asyncio.open_connection(host, port, ssl=self.trust)
                try:
                    greeting = {"member": self.rounds.machine.member, "incarnation": self.rounds.incarnation}
                    _put(writer, json.dumps({**greeting, "token": self.token, "agreement": self.agreement}).encode())
                    answer = json.loads(await _get(reader, 10_000))
                    if "error" in answer:
                        self.problem = f"Peer {neighbour} refuses: {answer['error']}"
                    else:
                        pause = FIRST_PAUSE
                        await self._converse(neighbour, reader, writer)
                finally:
                    writer.close()
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _converse(self, neighbour: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent = 0

        async def listen() -> None:
            while True:
                data = await _get(reader, 10_000)
                if data[:1] == b"{":
                    self.problem = f"Peer {neighbour} refuses: {json.loads(data).get('error')}"
                    return
                self.rounds.acknowledged(neighbour, *_NUMBER.unpack(data))
                await self._tell_everybody()

        async def send() -> None:
            nonlocal sent
            while True:
                for number, data in sorted(self.rounds.waiting[neighbour].items()):
                    if number > sent:
                        _put(writer, _NUMBER.pack(number) + data)
                        sent = number
                await writer.drain()
                async with self._news:
                    await self._news.wait()

        await _first_of(listen(), send())


async def _first_of(*works: Awaitable[None]) -> None:
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _get(reader: asyncio.StreamReader, most: int) -> bytes:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > most:
        raise FedbanditError(f"A frame has {length} bytes, but {most} are the most.")
    return await reader.readexactly(length)


def _put(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(_LENGTH.pack(len(data)) + data)
