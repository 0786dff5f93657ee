"""A front: a process that has connections. TLS, WebSockets and tokens are its work; the rest is the writer's.

It shares the listening socket with the other fronts. Streams go to the writer on a `link`, other requests as they are,
over HTTP on a Unix socket. It keeps nothing: when it dies its clients connect again, to another one, and send again
what has not been acknowledged. When the writer dies it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from fedbandit.network.coordinator.admission import ADDRESS, Pass, address_of, end_without_right, offered_protocols
from fedbandit.network.coordinator.forwarding import exchange
from fedbandit.network.coordinator.link import (
    ACCEPT,
    CLOSE,
    COUNTS,
    DOWNLOAD,
    FRAME,
    FRAMES,
    GONE,
    OPEN,
    REFUSE,
    REPORT,
    REQUESTS,
    SEND,
    TELL,
    FrontLink,
)
from fedbandit.network.coordinator.listener import Guard, Guarded, Listener, identified
from fedbandit.network.coordinator.pacing import QuietLog, RateLimit
from fedbandit.network.coordinator.serving import follow_certificate, uvicorn_config
from fedbandit.network.coordinator.streams import PAUSE, SendQueue, converse
from fedbandit.network.credentials import Credentials
from fedbandit.network.logs import log_to_stderr
from fedbandit.network.refusal import Refusal, as_json

_HOP = (b"connection", b"keep-alive", b"upgrade", b"te", b"trailer", b"proxy-authorization", ADDRESS.encode())
"""Headers that are of one connection, and the one that only a front may set."""
_NOT_BACK = (*_HOP, b"transfer-encoding", b"date")


@dataclass(frozen=True)
class FrontConfig:
    """What a front is told by the writer, on its command line."""

    folder: str
    """Where the writer's sockets are."""
    listener: int
    """The descriptor of the listening socket."""
    host: str
    hosts: tuple[str, ...]
    origins: tuple[str, ...]
    keys: str | None
    tls: dict[str, str]
    most_bytes: int
    connections: int
    connections_per_address: int
    rate: float
    """Messages a second from one client: one that sends more is read from more slowly."""

    def as_text(self) -> str:
        """For the command line; nothing in it is secret."""
        return json.dumps(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> FrontConfig:
        """What `as_text` gave."""
        told = json.loads(text)
        return cls(**{**told, "hosts": tuple(told["hosts"]), "origins": tuple(told["origins"])})


class Front:
    """Its connections, and its link to the writer."""

    def __init__(self, config: FrontConfig) -> None:
        self.config = config
        self.credentials = Credentials(None if config.keys is None else Path(config.keys))
        self.unauthenticated = 0
        self.quiet = QuietLog()
        self.passes: dict[Pass, Callable[[Refusal], None]] = {}
        self.guard = Guard(config.connections, config.connections_per_address)
        self.stop = asyncio.Event()
        self.link = FrontLink(self._receive, self.stop.set)
        self.queues: dict[int, SendQueue] = {}
        self._opening: dict[int, asyncio.Future[Response | None]] = {}
        self._numbers = 0

    async def open(self, federation: str, name: str, address: str, software: str, sending: SendQueue) -> FrontStream:
        """A stream that the writer has accepted; if it does not, its refusal is raised."""
        self._numbers += 1
        stream = FrontStream(self.link, self._numbers, self.config.rate)
        future = self._opening[stream.number] = asyncio.get_running_loop().create_future()
        self.queues[stream.number] = sending
        facts = {"federation": federation, "name": name, "address": address, "software": software}
        self.link.tell(OPEN, stream.number, facts)
        answer = await future
        if answer is not None:
            self.queues.pop(stream.number, None)
            raise NotOpened(answer)
        return stream

    def end(self, stream: FrontStream) -> None:
        """The client is gone."""
        self.queues.pop(stream.number, None)
        self.link.send(GONE, stream.number)

    def _receive(self, op: int, stream: int, data: bytes) -> None:
        if op in (ACCEPT, REFUSE):
            future = self._opening.pop(stream)
            if not future.done():
                told = json.loads(data) if op == REFUSE else None
                future.set_result(told and JSONResponse(told["body"], told["status"]))
            return
        sending = self.queues.get(stream)
        if sending is None:
            return
        if op in (SEND, DOWNLOAD):
            sending.put_bytes(data, replaces=op == DOWNLOAD)
        elif op == TELL:
            sending.tell(json.loads(data))
        elif op == CLOSE:
            sending.close(data.decode())

    async def watch(self) -> None:
        """End connections that say nothing, and tell the writer how many there are."""
        while True:
            await asyncio.sleep(1.0)
            self.guard.end_quiet_ones()
            end_without_right(self)
            counts = {"open": len(self.guard.open), "refused": self.guard.refused, "strangers": self.unauthenticated}
            self.link.tell(COUNTS, 0, counts)


class FrontStream:
    """A front's half of a stream."""

    def __init__(self, link: FrontLink, number: int, rate: float) -> None:
        self._link, self.number, self._limit = link, number, RateLimit(rate)

    def take(self, frame: bytes) -> None:
        """Pass a frame on."""
        self._link.send(FRAME, self.number, frame)

    def take_report(self, text: str) -> None:
        """Pass a report on."""
        self._link.send(REPORT, self.number, text.encode())

    async def ready(self) -> None:
        """Wait while the writer has too much to read, and after a message too many, which the writer refuses."""
        if not self._limit.take():
            await asyncio.sleep(PAUSE)
        await self._link.drained()


class NotOpened(Exception):
    """The writer refuses a stream; its answer."""

    def __init__(self, answer: Response) -> None:
        super().__init__()
        self.answer = answer


def make_app(front: Front) -> Starlette:
    """The application of a front."""

    async def stream(ws: WebSocket) -> None:
        sending = SendQueue()
        try:
            offered_protocols(ws)
            access = Pass(front, ws)
            name, software = access.identity.name, ws.headers.get("user-agent", "")
            taker = await front.open(ws.path_params["federation"], name, address_of(ws), software, sending)
        except Refusal as refusal:
            await ws.send_denial_response(JSONResponse(as_json(refusal), refusal.status))
            return
        except NotOpened as refused:
            await ws.send_denial_response(refused.answer)
            return
        try:
            await converse(ws, access, sending, taker)
        finally:
            front.end(taker)

    async def other(request: Request) -> Response:
        with contextlib.suppress(Refusal):  # which the writer answers; here it is about the connection's time
            said = request.headers
            front.credentials.identify(said.get("authorization"), said.get("x-fedbandit-name"))
            identified(request)
        return await forward(request, f"{front.config.folder}/{REQUESTS}")

    methods = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"]
    routes = [WebSocketRoute("/v1/{federation}/stream", stream), Route("/{path:path}", other, methods=methods)]
    return Starlette(routes=routes, middleware=[Middleware(Guarded, front)])


async def forward(request: Request, where: str) -> Response:
    """Let the writer answer a request."""
    query = request.scope["query_string"]
    target = request.scope["raw_path"] + (b"?" + query if query else b"")
    headers = [(key, value) for key, value in request.headers.raw if key.lower() not in _HOP]
    headers.append((ADDRESS.encode(), address_of(request).encode()))
    if "host" not in request.headers:  # HTTP/1.0
        headers.append((b"host", b""))
    try:
        connection = await asyncio.open_unix_connection(where)
        asked = h11.Request(method=request.method, target=target, headers=headers)
        head, body = await exchange(*connection, asked, request.stream())
    except ClientDisconnect:  # nobody hears this, and nobody's log has a traceback
        return Response(status_code=400)
    except (OSError, h11.ProtocolError):
        refusal = Refusal("unavailable", "The coordinator has not answered; try again.")
        return JSONResponse(as_json(refusal), refusal.status)
    answer = StreamingResponse(body, head.status_code)
    answer.raw_headers = [(key, value) for key, value in head.headers if key not in _NOT_BACK]
    return answer


async def serve(config: FrontConfig) -> None:
    """Serve until the writer is gone, or this process is told to end."""
    front = Front(config)
    loop = asyncio.get_running_loop()
    await loop.create_unix_connection(lambda: front.link, f"{config.folder}/{FRAMES}")
    listener = Listener.around(socket.socket(fileno=config.listener), front.guard)
    serving = uvicorn_config(make_app(front), config.most_bytes, config.tls)
    watching = [asyncio.create_task(front.watch())]
    if serving.ssl is not None and config.keys is not None:
        renew, _ = follow_certificate(serving.ssl, Path(config.keys), config.tls)

        async def follow() -> None:
            while True:
                await asyncio.sleep(1.0)
                with contextlib.suppress(OSError):
                    renew()

        watching.append(asyncio.create_task(follow()))
    server = uvicorn.Server(serving)
    ending = asyncio.create_task(_end(server, front))
    try:
        await server.serve(sockets=[listener])
    finally:
        for task in (*watching, ending):
            task.cancel()


async def _end(server: uvicorn.Server, front: Front) -> None:
    await front.stop.wait()
    for sending in list(front.queues.values()):
        sending.close("the coordinator is stopping")
    server.should_exit = True


if __name__ == "__main__":
    log_to_stderr()
    asyncio.run(serve(FrontConfig.of_text(sys.argv[1])))
