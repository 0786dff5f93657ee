"""Peers on WebSockets: each listens for its neighbours and sends them its bundles, a connection for each direction.

    WS /v1/peers/stream, subprotocol fedbandit.v1

The peer that connects says who it is, {"member": i, "incarnation": hex, "agreement": {…}}, and is answered {"taken":
number} or, as by a coordinator, {"error": sentence, "kind": kind}. Then bundles go one way, (number u64, bundle), and
acknowledgements the other, (number u64). Off loopback both sides show a certificate (`keys`), whose name says which
peer it is. Whoever does not say who it is within `GREETING` seconds, or does not answer pings, is disconnected.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from fedbandit.errors import FedbanditError
from fedbandit.network.client.conversation import PROTOCOL
from fedbandit.network.peer.keys import PeerKeys, peer_name, shown_name
from fedbandit.network.peer.rounds import PeerRounds

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection
    from websockets.asyncio.server import ServerConnection

LARGEST = 2**26
GREETING = 10.0
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
PATH = "/v1/peers/stream"
_NUMBER = struct.Struct("<Q")
_JITTER = random.Random()  # of its own: an application that seeds `random` is left alone
log = logging.getLogger("fedbandit.peer")


class Peering:
    """A peer among its neighbours. `agreement` is what all must agree on; it is part of the greeting.

    A neighbour is down after `patience` seconds.
    """

    def __init__(
        self,
        rounds: PeerRounds,
        addresses: Mapping[int, tuple[str, int]],
        agreement: dict[str, Any],
        *,
        patience: float = 10.0,
        keys: PeerKeys | None = None,
    ) -> None:
        self.rounds = rounds
        self.addresses = addresses
        self.agreement = agreement
        self.patience = patience
        self.keys = keys
        self.problem: str | None = None
        self.connected: set[int] = set()
        """Neighbours that take what this one sends."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = asyncio.Event()
        self._news = asyncio.Condition()
        self._listening: dict[int, ServerConnection] = {}  # neighbour → where its bundles come from

    async def run(self, act: Callable[[], Awaitable[None]], listener: socket.socket, until: int | None = None) -> None:
        """Act once a round, until so many are over and acknowledged (or `patience` runs out), or until `close`."""
        from websockets.asyncio.server import serve
        from websockets.typing import Subprotocol

        self._loop = asyncio.get_running_loop()
        async with serve(
            self._welcome,
            sock=listener,
            ssl=None if self.keys is None else self.keys.listen,
            subprotocols=[Subprotocol(PROTOCOL)],
            compression=None,
            max_size=LARGEST,
            open_timeout=GREETING,
            close_timeout=1.0,
            server_header=None,
            logger=logging.getLogger("fedbandit.peer.connections"),
        ):
            senders = [asyncio.create_task(self._send_to(j)) for j in self.addresses]
            try:
                while not self._closing.is_set() and (until is None or self.rounds.machine.rounds < until):
                    await self._round(act)
                if not self._closing.is_set():
                    await self._until(lambda: not any(self.rounds.waiting.values()))
            finally:
                for sender in senders:
                    sender.cancel()
                await asyncio.gather(*senders, return_exceptions=True)

    def close(self) -> None:
        """End as soon as possible. May be called from any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._closing.set()
        self._ending = asyncio.ensure_future(self._tell_everybody())

    async def pause(self, seconds: float) -> None:
        """Let time pass, unless it is to end."""
        with contextlib.suppress(asyncio.TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    async def _round(self, act: Callable[[], Awaitable[None]]) -> None:
        if not self.rounds.acted:
            await act()
            if self._closing.is_set():
                return
            self.rounds.finish_acting()
        await self._tell_everybody()
        await self._until(lambda: not self.rounds.missing())
        if self._closing.is_set():
            return
        for j in self.rounds.missing():
            log.warning("down", extra={"peer": j})
        acknowledged = self.rounds.end_round()
        for j, connection in list(self._listening.items()):
            with contextlib.suppress(Exception):  # it has gone; it asks when it is back
                await connection.send(_NUMBER.pack(acknowledged[j]))

    async def _until(self, done: Callable[[], bool]) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            async with asyncio.timeout(self.patience), self._news:
                await self._news.wait_for(lambda: done() or self._closing.is_set())

    async def _tell_everybody(self) -> None:
        async with self._news:
            self._news.notify_all()

    # What comes from neighbours

    async def _welcome(self, connection: ServerConnection) -> None:
        from websockets.exceptions import ConnectionClosed

        neighbour: int | None = None
        try:
            async with asyncio.timeout(GREETING):
                greeting = await connection.recv()
            neighbour = self._identify(json.loads(greeting), shown_name(connection))
            await connection.send(json.dumps({"taken": self.rounds.taken[neighbour]}))
            self._listening[neighbour] = connection
            async for data in connection:
                (number,) = _NUMBER.unpack_from(_bytes(data))
                self.rounds.take(neighbour, number, _bytes(data)[_NUMBER.size :])
                if number <= self.rounds.taken[neighbour]:
                    await connection.send(_NUMBER.pack(self.rounds.taken[neighbour]))
                await self._tell_everybody()
        except (FedbanditError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
            log.warning("refused", extra={"peer": neighbour, "kind": type(error).__name__})
            sentence = str(error) if isinstance(error, FedbanditError) else "A neighbour's message is malformed."
            with contextlib.suppress(ConnectionClosed):
                await connection.send(json.dumps({"error": sentence, "kind": "malformed"}))
                await connection.close(1008)
        except (TimeoutError, ConnectionClosed):
            pass
        finally:
            if neighbour is not None and self._listening.get(neighbour) is connection:
                del self._listening[neighbour]

    def _identify(self, greeting: dict[str, Any], shown: str | None) -> int:
        member = int(greeting["member"])
        self._require_name(member, shown)
        theirs = greeting["agreement"]
        for key, mine in self.agreement.items():
            if theirs.get(key) != mine:
                raise FedbanditError(f"Peer {member} has {key} = {theirs.get(key)!r}, here it is {mine!r}.")
        self.rounds.meet(member, int(greeting["incarnation"], 16))
        return member

    def _require_name(self, member: int, shown: str | None) -> None:
        if self.keys is not None and shown != peer_name(member):
            raise FedbanditError(f"The certificate of {shown!r} does not let anyone speak as {peer_name(member)}.")

    # What goes to neighbours

    async def _send_to(self, neighbour: int) -> None:
        """Stay connected to a neighbour, and send it the bundles that it has not acknowledged."""
        import ssl

        from websockets.asyncio.client import connect
        from websockets.exceptions import WebSocketException
        from websockets.typing import Subprotocol

        pause = FIRST_PAUSE
        host, port = self.addresses[neighbour]
        scheme, tls = ("ws", None) if self.keys is None else ("wss", self.keys.connect)
        where = f"[{host}]" if ":" in host else host
        while True:
            try:
                async with connect(
                    f"{scheme}://{where}:{port}{PATH}",
                    ssl=tls,
                    subprotocols=[Subprotocol(PROTOCOL)],
                    compression=None,
                    proxy=None,
                    max_size=LARGEST,
                    open_timeout=GREETING,
                    close_timeout=1.0,
                ) as connection:
                    self._require_name(neighbour, shown_name(connection))
                    await self._converse(neighbour, connection)
                    pause = FIRST_PAUSE
            except ssl.SSLCertVerificationError as error:
                self.problem = f"Peer {neighbour} cannot be trusted: {error.verify_message.removesuffix('.')}."
            except FedbanditError as error:
                self.problem = f"Peer {neighbour} refuses: {error}"
            except (OSError, TimeoutError, WebSocketException, ValueError, KeyError, struct.error):
                pass
            finally:
                self.connected.discard(neighbour)
            await asyncio.sleep(pause * _JITTER.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _converse(self, neighbour: int, connection: ClientConnection) -> None:
        machine = self.rounds.machine
        who = {"member": machine.member, "incarnation": f"{self.rounds.incarnation:016x}", "agreement": self.agreement}
        await connection.send(json.dumps(who))
        async with asyncio.timeout(GREETING):
            answer = _said(await connection.recv())
        self.connected.add(neighbour)
        self.problem = None
        self.rounds.acknowledged(neighbour, int(answer["taken"]))
        sending = asyncio.create_task(self._send_bundles(neighbour, connection))
        try:
            async for data in connection:
                if isinstance(data, str):
                    _said(data)
                self.rounds.acknowledged(neighbour, *_NUMBER.unpack(_bytes(data)))
                await self._tell_everybody()
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _send_bundles(self, neighbour: int, connection: ClientConnection) -> None:
        sent = 0
        while True:
            for number, data in sorted(self.rounds.waiting[neighbour].items()):
                if number > sent:
                    await connection.send(_NUMBER.pack(number) + data)
                    sent = number
            async with self._news:
                await self._news.wait()


def _said(text: str | bytes) -> dict[str, Any]:
    """What a neighbour answers; a refusal is raised."""
    answer = json.loads(text)
    if not isinstance(answer, dict) or "error" in answer:
        raise FedbanditError(str(answer.get("error") if isinstance(answer, dict) else answer))
    return answer


def _bytes(data: bytes | str) -> bytes:
    if isinstance(data, str):
        raise FedbanditError("A neighbour sent a text where a bundle is expected.")
    return data
