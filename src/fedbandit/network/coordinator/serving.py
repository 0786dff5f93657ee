"""What a coordinator and its fronts have in common: uvicorn as it is used, and certificates."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from fedbandit.errors import FedbanditError
from fedbandit.network.addresses import is_loopback
from fedbandit.network.certificates import CERTIFICATE, KEY, expiry

if TYPE_CHECKING:
    from fedbandit.network.coordinator.config import ServerConfig

log = logging.getLogger("fedbandit.coordinator")
MOST_FRAGMENTS = 1000
"""Of a message of a WebSocket, before they are put together."""
GRACE = 5
"""Seconds that connections have to end, once a server has been told to."""


def uvicorn_config(app: Starlette, most_bytes: int, tls: Mapping[str, Any], uds: str | None = None) -> uvicorn.Config:
    """How the application is served, on sockets or on a Unix socket."""
    config = uvicorn.Config(
        app,
        uds=uds,
        log_config=None,
        access_log=False,
        proxy_headers=False,  # the guard knows a connection by its address, and anybody can write such a header
        loop="asyncio",  # others, which uvicorn takes where they are installed, do not ask a `Listener`
        http="h11",  # bounds headers, which httptools, the default where it is installed, does not
        ws=Stream,
        ws_max_size=max(most_bytes, 4096),
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=GRACE,
        server_header=False,
        **tls,
    )
    config.load()
    return config


class Stream(WebSocketsSansIOProtocol):
    """A WebSocket that is not read from while its other end does not read: a million pings are no million pongs here.

    A message may come in any number of fragments, but those of no bytes take no memory either.
    """

    def pause_writing(self) -> None:
        """Too much waits to be sent."""
        super().pause_writing()
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """It has been sent."""
        super().resume_writing()
        if not self.read_paused:
            self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Take what came."""
        super().data_received(data)
        self._keep_paused()

    async def receive(self) -> Any:
        """The next message."""
        message = await super().receive()
        self._keep_paused()
        return message

    def handle_cont(self, event: Any) -> None:
        """A fragment of a message."""
        super().handle_cont(event)
        if len(self.frames) > MOST_FRAGMENTS:
            self.frames = [b"".join(self.frames)]

    def _keep_paused(self) -> None:
        if not self.writable.is_set():
            self.transport.pause_reading()


class Patient(uvicorn.Server):
    """Told twice to end (Ctrl-C, again), it still ends in order, unless it has had the time for that."""

    _told: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take the first signal, and what comes when connections should have ended."""
        now = time.monotonic()
        if self._told is None:
            self._told = now
        elif now < self._told + GRACE:
            return
        super().handle_exit(sig, frame)


class Server(Patient):
    """Does something at SIGHUP, which ends no server, and something at its end before it waits for connections."""

    def __init__(
        self, config: uvicorn.Config, hangup: Callable[[], Awaitable[None]], ending: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(config)
        self._hangup, self._ending = hangup, ending
        self._tasks: set[asyncio.Future[None]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Also listen to signals."""
        await super().startup(sockets)
        if hasattr(signal, "SIGHUP"):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._hung_up)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Also what is to be done before."""
        await self._ending()
        await super().shutdown(sockets)

    def _hung_up(self) -> None:
        task = asyncio.ensure_future(self._hangup())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def nothing_to_reload() -> None:
    """What a relay does at SIGHUP."""
    log.info("nothing to reload", extra={"reason": "certificates and tokens are read when they change"})


def follow_certificate(
    context: ssl.SSLContext, keys: Path, tls: Mapping[str, str]
) -> tuple[Callable[[], bool], Callable[[], float | None]]:
    """What takes a renewed certificate, and says whether it has; and when the certificate expires."""
    path = Path(tls["ssl_certfile"])
    known = [path.stat().st_mtime_ns, expiry(keys)]

    def renew() -> bool:
        changed = path.stat().st_mtime_ns
        if changed == known[0]:
            return False
        context.load_cert_chain(tls["ssl_certfile"], tls["ssl_keyfile"])
        known[:] = changed, expiry(keys)
        return True

    return renew, lambda: known[1]


def tls_files(config: ServerConfig) -> dict[str, Any]:
    """The certificate, if there are keys; off loopback there must be one."""
    if config.keys is None:
        return {}
    files = {"ssl_certfile": config.keys / CERTIFICATE, "ssl_keyfile": config.keys / KEY}
    missing = [path for path in files.values() if not path.exists()]
    if missing and not is_loopback(config.host):
        raise FedbanditError(f"There is no {str(missing[0])!r}; make keys with fedbandit keys init.")
    return {} if missing else {key: str(path) for key, path in files.items()}
