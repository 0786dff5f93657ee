"""The listening socket of a coordinator: so many connections in all and from one address, and none that only holds one.

What is one too many is closed where it is accepted, before TLS, memory or a log line are spent on it, and so few are
open that there are always file descriptors left. The time of a connection on which nobody has said who they are – no
token that is known here – is short, whatever is done on it:

| a connection on which …                                                  | is ended                              |
|--------------------------------------------------------------------------|---------------------------------------|
| nobody known asks, and nothing is under way: half a handshake or header  | after `QUIET_SECONDS`                 |
| nobody known asks, and something is under way, slowly or again and again | after `STRANGERS_SECONDS`             |
| bytes wait that the other end does not read                              | after `QUIET_SECONDS`, whoever it is, |
|                                                                          | unless it takes `SLOWEST` bytes/s     |
| nobody known asks, when all connections are taken                        | for one from another address          |

The last is so that addresses which have most give way: whoever comes while strangers hold all connections takes the
place of the oldest on the address that has most of them, unless that is its own.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from fedbandit.errors import FedbanditError
from fedbandit.network.refusal import Refusal, as_json

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

QUIET_SECONDS = 10.0
STRANGERS_SECONDS = 40.0
"""More than a body has time to come, and a relay to be answered."""
SLOWEST = 500.0
"""Bytes a second, over `QUIET_SECONDS`: less than any link has that a client can be used on."""
UNSENT = 2**16
"""Bytes that the kernel takes of an answer before they can leave: what waits beyond is seen to wait."""
SPARE_DESCRIPTORS = 64
"""For stores, logs and libraries."""
MOST = 10_000
LEAST_PER_ADDRESS = 16
_GIVING_WAY = SPARE_DESCRIPTORS // 2
"""So many connections beyond the most may be on their way out."""
_VISIT = "fedbandit.visit"
_RESET = struct.pack("ii", 1, 0)  # what was not read is forgotten


def descriptors() -> int:
    """How many connections this process can have open; its limit is raised as far as it may be."""
    import resource  # which Windows has not

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST + SPARE_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST + SPARE_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return MOST if soft == resource.RLIM_INFINITY else min(MOST, soft - SPARE_DESCRIPTORS)


def default_per_address(most: int) -> int:
    """A tenth of all connections: whoever wants them all needs ten addresses. Few are left to a household of clients.

    >>> default_per_address(10_000), default_per_address(60), default_per_address(4)
    (1000, 16, 2)
    """
    return max(1, min(most // 2, max(LEAST_PER_ADDRESS, most // 10)))


def source_of(host: str) -> str:
    """What counts as one address: of IPv6 a network of 64 bits, as every household has one.

    >>> source_of("10.0.0.1"), source_of("2001:db8::1:2"), source_of("::ffff:10.0.0.1")
    ('10.0.0.1', '2001:db8::/64', '10.0.0.1')
    """
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))


class Guard:
    """Which connections are open, from where, which nobody known uses at the moment, and which do not read."""

    def __init__(self, most: int | None = None, most_per_address: int | None = None, able: int | None = None) -> None:
        able = descriptors() if able is None else able
        if most is not None and most > able:
            raise FedbanditError(f"connections is {most}, but the limit of open files allows {able}; see ulimit -n.")
        self.most = able if most is None else most
        self.most_per_address = default_per_address(self.most) if most_per_address is None else most_per_address
        self.open: set[GuardedSocket] = set()
        self.by_peer: dict[tuple[str, int], GuardedSocket] = {}
        self.per_address: Counter[str] = Counter()
        self.strange: dict[str, dict[GuardedSocket, float]] = {}
        """Address → connections on which nobody known asks, and since when; those of longest first."""
        self.unread: dict[GuardedSocket, tuple[float, int]] = {}
        """Connections with bytes that wait; since when, or when it last took enough, and how many it took since."""
        self.gave_way = False
        self.refused = 0
        self.ended = 0

    @property
    def n_open(self) -> int:
        """Open connections."""
        return len(self.open)

    def admits(self, address: str) -> bool:
        """Whether one more connection from there is not too many; a stranger's may be ended for it."""
        if self.per_address[address] < self.most_per_address and (
            len(self.open) < self.most or self._make_way(address)
        ):
            return True
        self.refused += 1
        return False

    def _make_way(self, address: str) -> bool:
        most = max(self.strange, key=lambda one: len(self.strange[one]), default=address)
        mine = len(self.strange.get(address, ()))
        if len(self.open) >= self.most + _GIVING_WAY or mine >= len(self.strange.get(most, ())):
            return False
        oldest = next(iter(self.strange[most]))
        self.end(oldest)
        self.gave_way = True
        return True

    def enter(self, connection: GuardedSocket) -> None:
        """A connection was accepted."""
        self.open.add(connection)
        self.by_peer[connection.peer] = connection
        self.per_address[connection.source] += 1
        self.nobody_asks(connection)

    def leave(self, connection: GuardedSocket) -> None:
        """A connection was closed."""
        if connection not in self.open:
            return
        self.open.discard(connection)
        if self.by_peer.get(connection.peer) is connection:
            del self.by_peer[connection.peer]
        self.unread.pop(connection, None)
        self._forget(connection)
        self.per_address[connection.source] -= 1
        if not self.per_address[connection.source]:  # and not `-=` of a Counter, which looks at all addresses
            del self.per_address[connection.source]

    def nobody_asks(self, connection: GuardedSocket) -> None:
        """From now on nobody known asks anything on this connection."""
        self._forget(connection)
        if connection.ended:
            return
        self.strange.setdefault(connection.source, {})[connection] = time.monotonic()

    def somebody_asks(self, connection: GuardedSocket) -> None:
        """A request of somebody known is under way: it may take as long as it does."""
        self._forget(connection)

    def _forget(self, connection: GuardedSocket) -> None:
        of_address = self.strange.get(connection.source, {})
        if of_address.pop(connection, None) is not None and not of_address:
            del self.strange[connection.source]

    def wrote(self, connection: GuardedSocket, count: int, *, everything: bool) -> None:
        """The kernel took so many bytes, everything there was or less."""
        if everything or connection.ended:
            self.unread.pop(connection, None)
            return
        since, taken = self.unread.get(connection, (time.monotonic(), -count))
        self.unread[connection] = since, taken + count

    def end_quiet_ones(self) -> None:
        """End connections that are only held: the table above says which. To be done every second."""
        now = time.monotonic()
        for connection, (since, taken) in list(self.unread.items()):
            if taken >= SLOWEST * QUIET_SECONDS:
                self.unread[connection] = now, 0
            elif since < now - QUIET_SECONDS:
                with contextlib.suppress(OSError):  # what the kernel holds for it would stay for minutes
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                self.end(connection)
        for connections in list(self.strange.values()):
            for connection, since in list(connections.items()):
                if since < now - (STRANGERS_SECONDS if connection.requests else QUIET_SECONDS):
                    self.end(connection)

    def end(self, connection: GuardedSocket) -> None:
        """Whoever serves the connection finds it ended, and closes it; until then it is open, and not ended again."""
        connection.ended = True
        self.ended += 1
        self.unread.pop(connection, None)
        self._forget(connection)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


class GuardedSocket(socket.socket):
    """An accepted connection, which says when it is closed and what the other end does not read."""

    guard: Guard
    peer: tuple[str, int]
    source: str
    requests = 0
    """That are under way."""
    known = 0
    """How many of them are of somebody known."""
    ended = False
    """Whether the guard has ended it; it is closed a little later."""

    def send(self, data: Any, flags: int = 0) -> int:
        """Send what the kernel takes."""
        return self._sent(len(data), super().send, data, flags)

    def sendmsg(self, buffers: Iterable[Any], *rest: Any) -> int:
        """Send what the kernel takes of several."""
        parts = list(buffers)
        return self._sent(sum(map(len, parts)), super().sendmsg, parts, *rest)

    def _sent(self, length: int, send: Any, *arguments: Any) -> int:
        try:
            count: int = send(*arguments)
        except BlockingIOError:
            self.guard.wrote(self, 0, everything=False)
            raise
        self.guard.wrote(self, count, everything=count == length)
        return count

    def close(self) -> None:
        """Close it, once."""
        self.guard.leave(self)
        super().close()


class Listener(socket.socket):
    """A listening socket whose `accept` asks a guard."""

    guard: Guard

    @classmethod
    def around(cls, listener: socket.socket, guard: Guard) -> Listener:
        """This socket, with a guard."""
        guarded = cls(listener.family, listener.type, listener.proto, fileno=listener.detach())
        guarded.guard = guard
        with contextlib.suppress(OSError, AttributeError):  # accepted connections inherit it
            guarded.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)
        return guarded

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection; one too many is closed, and asyncio looks for another."""
        if self.guard.gave_way:  # asyncio accepts thousands in a row: the one that gave way is to be closed before
            self.guard.gave_way = False
            raise BlockingIOError
        fd, address = self._accept()  # type: ignore[attr-defined]
        connection = GuardedSocket(self.family, self.type, self.proto, fileno=fd)
        connection.guard, connection.peer = self.guard, (str(address[0]), int(address[1]))
        connection.source = source_of(connection.peer[0])
        if not self.guard.admits(connection.source):
            socket.socket.close(connection)
            raise ConnectionAbortedError
        self.guard.enter(connection)
        return connection, address


class HasGuard(Protocol):
    """A host, or a front."""

    @property
    def guard(self) -> Guard | None:
        """The guard of its listening socket."""
        ...


class _Visit:
    """A request, of nobody known at first."""

    def __init__(self, guard: Guard | None, peer: tuple[str, int] | None) -> None:
        self.guard = guard
        self.connection = None if guard is None or peer is None else guard.by_peer.get(peer)
        self.known = False

    def __enter__(self) -> _Visit:
        if self.connection is not None:
            self.connection.requests += 1
        return self

    def identified(self) -> None:
        """It is of somebody known."""
        if not self.known and self.guard is not None and self.connection is not None:
            self.connection.known += 1
            self.guard.somebody_asks(self.connection)
        self.known = True

    def __exit__(self, *_: object) -> None:
        if self.guard is None or self.connection is None:
            return
        self.connection.requests -= 1
        self.connection.known -= self.known
        if self.known and not self.connection.known and self.connection in self.guard.open:
            self.guard.nobody_asks(self.connection)


def identified(connection: HTTPConnection) -> None:
    """Say that somebody known asks this: their connection has as much time as it takes."""
    visit = connection.scope.get(_VISIT)
    if visit is not None:
        visit.identified()


class Guarded:
    """Tells the guard of the listening socket, if there is one, while a request is under way.

    Strangers have one request a connection, if it has no body: with one that has not come the answer would be lost.
    """

    def __init__(self, app: ASGIApp, host: HasGuard) -> None:
        self.app, self.host = app, host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        said = {key for key, _ in scope["headers"]}
        length, chunked = b"content-length" in said, b"transfer-encoding" in said
        with _Visit(self.host.guard, scope.get("client") and tuple(scope["client"])) as visit:
            scope[_VISIT] = visit

            async def answer(message: Message) -> None:
                closes = not (visit.known or length or chunked) or (length and chunked)
                if message["type"] == "http.response.start" and closes:
                    message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
                await send(message)

            if scope["type"] == "websocket":
                await self.app(scope, receive, send)
            elif length and chunked:  # two lengths: proxies and servers differ about where the next request begins
                from starlette.responses import JSONResponse  # peers have no starlette

                refusal = Refusal("malformed", "A request has either Content-Length or Transfer-Encoding.")
                await JSONResponse(as_json(refusal), refusal.status)(scope, receive, answer)
            else:
                await self.app(scope, receive, answer)
