"""The listening socket of a coordinator: so many connections in all and from one address, and none that says nothing.

What is one too many is closed where it is accepted, before TLS, memory or a log line are spent on it, and so few are
open that there are always file descriptors left. A connection on which no request is under way for `QUIET_SECONDS` – in
the middle of a handshake or of a header – is ended.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

from fedbandit.errors import FedbanditError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

QUIET_SECONDS = 10.0
SPARE_DESCRIPTORS = 64
"""For stores, logs and libraries."""
MOST = 10_000


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


class Guard:
    """Which connections are open, from where, and since when each has had no request under way."""

    def __init__(self, most: int | None = None, most_per_address: int | None = None, able: int | None = None) -> None:
        able = descriptors() if able is None else able
        if most is not None and most > able:
            raise FedbanditError(f"connections is {most}, but the limit of open files allows {able}; see ulimit -n.")
        self.most = able if most is None else most
        self.most_per_address = max(1, self.most // 2) if most_per_address is None else most_per_address
        self.open: dict[GuardedSocket, float] = {}
        self.by_peer: dict[tuple[str, int], GuardedSocket] = {}
        self.per_address: Counter[str] = Counter()
        self.busy: Counter[tuple[str, int]] = Counter()
        self.refused = 0
        self.ended = 0

    @property
    def n_open(self) -> int:
        """Open connections."""
        return len(self.open)

    def admits(self, address: str) -> bool:
        """Whether one more connection from there is not too many."""
        if len(self.open) < self.most and self.per_address[address] < self.most_per_address:
            return True
        self.refused += 1
        return False

    def enter(self, connection: GuardedSocket) -> None:
        """A connection was accepted."""
        self.open[connection] = time.monotonic()
        self.by_peer[connection.peer] = connection
        self.per_address[connection.peer[0]] += 1

    def leave(self, connection: GuardedSocket) -> None:
        """A connection was closed."""
        if self.open.pop(connection, None) is None:
            return
        self.by_peer.pop(connection.peer, None)
        self.busy.pop(connection.peer, None)
        address = connection.peer[0]
        self.per_address[address] -= 1
        if not self.per_address[address]:  # and not `-=` of a Counter, which looks at all addresses
            del self.per_address[address]

    @contextlib.contextmanager
    def request(self, peer: tuple[str, int]) -> Any:
        """While a request of this peer is under way."""
        self.busy[peer] += 1
        try:
            yield
        finally:
            self.busy[peer] -= 1
            if self.busy[peer] <= 0:
                del self.busy[peer]
            if peer in self.by_peer:
                self.open[self.by_peer[peer]] = time.monotonic()

    def end_quiet_ones(self) -> None:
        """End connections on which nothing has been under way for too long."""
        before = time.monotonic() - QUIET_SECONDS
        for connection, since in list(self.open.items()):
            if since < before and connection.peer not in self.busy:
                self.ended += 1
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


class GuardedSocket(socket.socket):
    """An accepted connection, which says when it is closed."""

    guard: Guard
    peer: tuple[str, int]

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
        return guarded

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection; one too many is closed, and asyncio looks for another."""
        fd, address = self._accept()  # type: ignore[attr-defined]
        connection = GuardedSocket(self.family, self.type, self.proto, fileno=fd)
        connection.guard, connection.peer = self.guard, (str(address[0]), int(address[1]))
        if not self.guard.admits(connection.peer[0]):
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


class Guarded:
    """Tells the guard of the listening socket, if there is one, while a request is under way."""

    def __init__(self, app: ASGIApp, host: HasGuard) -> None:
        self.app, self.host = app, host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on."""
        if self.host.guard is None or not scope.get("client"):
            await self.app(scope, receive, send)
            return
        with self.host.guard.request(tuple(scope["client"])):
            await self.app(scope, receive, send)
