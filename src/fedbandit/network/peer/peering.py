"""Peers on WebSockets: each listens for its neighbours and sends them its bundles, a connection for each direction.

    WS /v1/peers/stream, subprotocol fedbandit.v1

The peer that connects says who it is, {"member": i, "incarnation": hex, "agreement": {…}}, and is answered {"taken":
number} or, as by a coordinator, {"error": sentence, "kind": kind}. Then bundles go one way, (number u64, bundle), and
acknowledgements the other, (number u64). Off loopback both sides show a certificate (`keys`), whose name says which
peer it is. Whoever does not say who it is within `GREETING` seconds, or does not answer pings, is disconnected. A page
in a browser is no peer: whatever has an origin is refused, and without keys any name of a host that is not loopback.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fedbandit.errors import FedbanditError, as_sentence, shown
from fedbandit.network.addresses import is_loopback
from fedbandit.network.client.conversation import PROTOCOL
from fedbandit.network.coordinator.listener import Listener
from fedbandit.network.coordinator.pacing import QuietLog
from fedbandit.network.peer.greeting import LONGEST, Greeting, taken
from fedbandit.network.peer.keys import PeerKeys, peer_name, shown_name
from fedbandit.network.peer.listener import PeerGuard
from fedbandit.network.peer.rounds import PeerRounds
from fedbandit.network.stores import StoreError

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection
    from websockets.asyncio.server import ServerConnection
    from websockets.http11 import Request, Response

LARGEST = 2**26
GREETING = 10.0
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
WRITE_AGAIN = 0.5
"""Seconds until a store that could not be written is tried again."""
PATH = "/v1/peers/stream"
_NUMBER = struct.Struct("<Q")
_JITTER = random.Random()  # of its own: an application that seeds `random` is left alone
log = logging.getLogger("fedbandit.peer")
_handshakes = logging.getLogger("fedbandit.peer.connections")
_handshakes.addHandler(logging.NullHandler())
_handshakes.propagate = False  # a library's lines about whoever knocks; who is refused is said by `log`


class Peering:
    """A peer among its neighbours. A neighbour is down after `patience` seconds."""

    def __init__(
        self,
        rounds: PeerRounds,
        addresses: Mapping[int, tuple[str, int]],
        *,
        patience: float = 10.0,
        keys: PeerKeys | None = None,
    ) -> None:
        self.rounds = rounds
        self.addresses = addresses
        self.patience = patience
        self.keys = keys
        self.problems: dict[int, str] = {}
        """What a person has to do something about, by neighbour."""
        self.connected: set[int] = set()
        """Neighbours that take what this one sends."""
        self.guard = PeerGuard(len(addresses))
        self._quiet = QuietLog()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = threading.Event()
        self._end = asyncio.Event()  # the same, for whoever waits in the loop
        self._news = asyncio.Condition()
        self._listening: dict[int, ServerConnection] = {}  # neighbour → where its bundles come from

    async def run(self, act: Callable[[], Awaitable[None]], listener: socket.socket, until: int | None = None) -> None:
        """Act once a round, until so many are over and acknowledged (or `patience` runs out), or until `close`."""
        from websockets.asyncio.server import serve
        from websockets.typing import Subprotocol

        self._loop = asyncio.get_running_loop()
        if self._closing.is_set():  # before there was a loop to tell
            return
        tls: dict[str, Any] = {} if self.keys is None else {"ssl": self.keys.listen, "ssl_handshake_timeout": GREETING}
        async with serve(
            self._welcome,
            sock=Listener.around(listener, self.guard),
            **tls,
            origins=[None],
            process_request=self._look_at,
            subprotocols=[Subprotocol(PROTOCOL)],
            compression=None,
            max_size=LONGEST,
            open_timeout=GREETING,
            close_timeout=1.0,
            server_header=None,
            logger=_handshakes,
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
        """End as soon as possible. May be called from any thread, also before `run`."""
        self._closing.set()
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._tell_of_the_end)

    def _tell_of_the_end(self) -> None:
        self._end.set()
        self._ending = asyncio.ensure_future(self._tell_everybody())

    async def pause(self, seconds: float) -> None:
        """Let time pass, unless it is to end."""
        with contextlib.suppress(asyncio.TimeoutError):
            async with asyncio.timeout(seconds):
                await self._end.wait()

    async def _round(self, act: Callable[[], Awaitable[None]]) -> None:
        if not self.rounds.acted:
            await act()
            if self._closing.is_set():
                return
            await self._written(self.rounds.finish_acting)
        await self._tell_everybody()
        await self._until(lambda: not self.rounds.missing())
        if self._closing.is_set():
            return
        for j in self.rounds.missing():
            log.warning("down", extra={"peer": j})
        await self._written(self.rounds.end_round)
        for j, connection in list(self._listening.items()):
            with contextlib.suppress(Exception):  # it has gone; it asks when it is back
                await connection.send(_NUMBER.pack(self.rounds.confirmed[j]))

    async def _written(self, change: Callable[[], object]) -> None:
        """Do what ends in a write; while the store cannot be written, the round waits, and nothing of it is sent."""
        while not self._closing.is_set():
            try:
                change()
            except StoreError:
                change = self.rounds.keep  # what was changed has changed
                await self.pause(WRITE_AGAIN)
            else:
                return

    async def _until(self, done: Callable[[], bool]) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            async with asyncio.timeout(self.patience), self._news:
                await self._news.wait_for(lambda: done() or self._closing.is_set())

    async def _tell_everybody(self) -> None:
        async with self._news:
            self._news.notify_all()

    # What comes from neighbours

    def _look_at(self, connection: ServerConnection, request: Request) -> Response | None:
        """Refuse other paths, and without keys other names of this host than loopback's: a page may have such a name
        point here.
        """
        if request.path != PATH:
            return connection.respond(HTTPStatus.NOT_FOUND, f"There is {PATH}, and nothing else.\n")
        try:
            (host,) = request.headers.get_all("Host")
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            name = ""
        if self.keys is None and not is_loopback(name):
            return connection.respond(HTTPStatus.FORBIDDEN, "This peer has no keys, and answers on loopback only.\n")
        return None

    async def _welcome(self, connection: ServerConnection) -> None:
        from websockets.exceptions import ConnectionClosed

        neighbour: int | None = None
        try:
            async with asyncio.timeout(GREETING):
                greeting = Greeting.of_json(await connection.recv())
            self._identify(greeting, shown_name(connection))
            neighbour = greeting.member
            host, port, *_ = connection.remote_address
            self.guard.meet((host, port))
            await self._listen_to(neighbour, connection)
        except FedbanditError as error:
            if self._quiet.says(f"{neighbour}/{type(error).__name__}"):
                log.warning("refused", extra={"peer": neighbour, "kind": type(error).__name__})
            with contextlib.suppress(ConnectionClosed):
                await connection.send(json.dumps({"error": str(error), "kind": "malformed"}))
                await connection.close(1008)
        except (TimeoutError, ConnectionClosed):
            pass
        except Exception:
            if self._quiet.says(f"{neighbour}/fault"):
                log.exception("the connection of a neighbour has a fault", extra={"peer": neighbour})
        finally:
            if neighbour is not None and self._listening.get(neighbour) is connection:
                del self._listening[neighbour]

    async def _listen_to(self, neighbour: int, connection: ServerConnection) -> None:
        """Take a neighbour's bundles; it has one connection for them, the last."""
        for name in ("max_message_size", "max_size"):  # as websockets calls it since 15, and before
            if hasattr(connection.protocol, name):
                setattr(connection.protocol, name, LARGEST)
        before, self._listening[neighbour] = self._listening.get(neighbour), connection
        if before is not None:
            before.transport.abort()
        await connection.send(json.dumps({"taken": self.rounds.confirmed[neighbour]}))
        async for data in connection:
            number, packed = _numbered(data)
            self.rounds.take(neighbour, number, packed)
            if number <= self.rounds.confirmed[neighbour]:
                await connection.send(_NUMBER.pack(self.rounds.confirmed[neighbour]))
            await self._tell_everybody()

    def _identify(self, greeting: Greeting, shown: str | None) -> None:
        """Refuse whoever is no neighbour, another than it was, or has other terms."""
        member = greeting.member
        self._require_name(member, shown)
        if (difference := self.rounds.terms.difference(greeting.agreement)) is not None:
            raise self._other_terms(greeting, *difference)
        self.rounds.meet(member, greeting.incarnation)

    def _other_terms(self, greeting: Greeting, name: str, theirs: object, mine: object) -> FedbanditError:
        """What is said of other terms; the terms here are told to nobody who may be anybody."""
        known = self.keys is not None or self.rounds.known.get(greeting.member) == greeting.incarnation
        said = f"Peer {greeting.member} has {name} = {shown(theirs)}"
        if self._quiet.says(f"{greeting.member}/terms"):
            log.warning("other terms", extra={"peer": greeting.member, "reason": f"{said}, here it is {mine!r}"})
        return FedbanditError(f"{said}, here it is {mine!r}." if known else f"{said}, here it is another.")

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
                    max_size=LONGEST,
                    open_timeout=GREETING,
                    close_timeout=1.0,
                ) as connection:
                    self._require_name(neighbour, shown_name(connection))
                    await self._converse(neighbour, connection)
                    pause = FIRST_PAUSE
            except ssl.SSLCertVerificationError as error:
                said = as_sentence(error.verify_message)
                self.problems[neighbour] = f"Peer {neighbour} cannot be trusted: {said}"
            except FedbanditError as error:
                self.problems[neighbour] = f"Peer {neighbour} refuses: {error}"
            except (OSError, TimeoutError, WebSocketException, ValueError):
                pass
            except Exception as error:
                self.problems[neighbour] = f"The connection to peer {neighbour} has a fault: {error}."
                if self._quiet.says(f"{neighbour}/fault"):
                    log.exception("the connection to a neighbour has a fault", extra={"peer": neighbour})
            finally:
                self.connected.discard(neighbour)
            await asyncio.sleep(pause * _JITTER.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _converse(self, neighbour: int, connection: ClientConnection) -> None:
        who = Greeting(self.rounds.machine.member, self.rounds.incarnation, self.rounds.terms.as_json())
        await connection.send(who.as_json())
        async with asyncio.timeout(GREETING):
            number = taken(await connection.recv())
        self.connected.add(neighbour)
        self.problems.pop(neighbour, None)
        self.rounds.acknowledged(neighbour, number)
        sending = asyncio.create_task(self._send_bundles(neighbour, connection))
        try:
            async for data in connection:
                number = taken(data) if isinstance(data, str) else _numbered(data)[0]
                self.rounds.acknowledged(neighbour, number)
                await self._tell_everybody()
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _send_bundles(self, neighbour: int, connection: ClientConnection) -> None:
        sent = 0
        while True:
            for number, data in self.rounds.to_send(neighbour):
                if number > sent:
                    await connection.send(_NUMBER.pack(number) + data)
                    sent = number
            async with self._news:
                await self._news.wait()


def _numbered(data: bytes | str) -> tuple[int, bytes]:
    """The number that a frame begins with, and the rest."""
    if isinstance(data, str) or len(data) < _NUMBER.size:
        raise FedbanditError("A neighbour sent something that is no bundle.")
    return int.from_bytes(data[: _NUMBER.size], "little"), data[_NUMBER.size :]
