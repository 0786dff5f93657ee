"""A relay that passes on: where sums are secure, clients below it are members of the coordinator above, and it is none.

Theory of operation
-------------------
Masks, shares and signatures of a secure sum are bound to a client's number among all, so nothing is added up here. Each
request of a client becomes one request above, each stream one stream, with the client's own credentials; what may be
asked is on a list. Nothing is kept: a relay that ends is a connection that is lost. What it could do with what it sees
is what an active coordinator could. Only steps of sums, most of which say the same to all, go together (`bundles`).

| from above                             | to the client below                                                       |
|----------------------------------------|---------------------------------------------------------------------------|
| an answer, a message                   | the same                                                                  |
| a refusal, of a stream too             | the same status and sentence                                              |
| *elsewhere*: HTTP 421, or on a stream  | *unavailable*, without the owner, whom the relay asks from then on:       |
|                                        | clients must not go round it                                              |
| nothing                                | *unavailable*: the client tries again, or leaves the sum under way; the   |
|                                        | relay repeats nothing                                                     |
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

import anyio
import h11
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, WebSocketException

from fedbandit.errors import FedbanditError
from fedbandit.network.client.address import ELSEWHERE, Address, owner_in
from fedbandit.network.coordinator.admission import Served, check_origin
from fedbandit.network.coordinator.forwarding import exchange
from fedbandit.network.coordinator.listener import Guard, Guarded, identified
from fedbandit.network.coordinator.pacing import QuietLog
from fedbandit.network.coordinator.service import body_of, refused
from fedbandit.network.envelope import ACCEPTS
from fedbandit.network.jsonable import read_json
from fedbandit.network.refusal import Refusal, as_json
from fedbandit.network.relay.bundles import Bundles
from fedbandit.network.sums import MOST_SAID, SESSION_HEADER, SentStep, most_in_bundle, steps_as_bytes

PASSED = ("authorization", "x-fedbandit-name", SESSION_HEADER.lower(), "content-type", "user-agent")
"""Headers of a client that go up. Neither Origin nor Host: who may ask is checked here."""
SECONDS_TO_ANSWER = 30.0
QUIET_SECONDS = 10.0
"""A coordinator above that has not answered for so long is not well."""
ASK_SECONDS = 3.0
_BYTES = "application/octet-stream"
log = logging.getLogger("fedbandit.relay")


class Answer(NamedTuple):
    """What the coordinator above answered."""

    status: int
    kind: str
    body: bytes


class Passing:
    """The way up, for the federation of an address; `keys` says whether clients need tokens to be let in."""

    def __init__(self, address: Address, federation: str, served: Served, most_bytes: int, *, keys: bool) -> None:
        self.address, self.federation, self.served, self.most_bytes = address, federation, served, most_bytes
        self.keys = keys
        self.guard: Guard | None = None
        self.renew: Callable[[], bool] = lambda: False
        """Takes a renewed certificate."""
        self.streams = 0
        """That are open."""
        self.bundles = Bundles(self._send_bundle)
        self.let_in = True
        """Whether the coordinator above knows the relay itself, whose token may end."""
        self._answered = time.monotonic()
        self._quiet = QuietLog()

    @property
    def well(self) -> bool:
        """Whether the coordinator above has answered lately, and lets the relay in."""
        return self.let_in and time.monotonic() - self._answered < QUIET_SECONDS

    def admit(self, connection: HTTPConnection) -> None:
        """Refuse pages of other origins, and other federations. Tokens are looked at above, each time."""
        check_origin(self.served, connection, keys=self.keys)
        if connection.path_params["federation"] != self.federation:
            raise Refusal("unknown", f"There is no federation {connection.path_params['federation']!r} here.")

    async def ask(self, method: str, what: str, headers: dict[str, str], body: bytes = b"") -> Answer:
        """What the coordinator above answers, asked once."""
        url = self.address.url
        above = urlsplit(url)
        port = above.port or (443 if above.scheme == "https" else 80)
        said = [*headers.items(), ("Host", above.netloc), ("Content-Length", str(len(body)))]
        as_bytes = [(key.encode(), value.encode("latin-1")) for key, value in said]  # as Starlette has read them
        try:
            asked = h11.Request(method=method, target=f"{self.address.path}/{what}", headers=as_bytes)
        except h11.LocalProtocolError:
            raise Refusal("malformed", "A header has characters that no relay can pass on.") from None

        async def parts() -> AsyncIterator[bytes]:
            yield body

        try:
            async with asyncio.timeout(SECONDS_TO_ANSWER):
                connection = await asyncio.open_connection(above.hostname, port, ssl=self.address.ssl)
                head, answer = await exchange(*connection, asked, parts())
                data = b"".join([part async for part in answer])
        except (OSError, h11.ProtocolError) as error:
            raise self._unreachable(url, error) from None
        if head.status_code == ELSEWHERE:
            raise self.moved(url, owner_in(data))
        if head.status_code < HTTPStatus.INTERNAL_SERVER_ERROR:
            self._answered = time.monotonic()
        kind = dict(head.headers).get(b"content-type", _BYTES.encode()).decode("latin-1")
        return Answer(head.status_code, kind, data)

    async def _ask_itself(self, method: str, what: str, body: bytes = b"") -> Answer:
        """What is answered to the relay under its own name."""
        answer = await self.ask(method, what, {**self.address.headers, "Content-Type": _BYTES}, body)
        self.let_in = answer.status not in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        if not self.let_in and self._quiet.says("itself"):
            log.warning("the relay is not let in above", extra={"reason": answer.body[:500].decode(errors="replace")})
        return answer

    async def _send_bundle(self, data: bytes) -> bytes:
        """The answer to clients' steps, which the relay sends under its own name."""
        status, _, body = await self._ask_itself("POST", "sums/many", data)
        if status != HTTPStatus.OK:
            if self._quiet.says(f"bundle/{status}"):
                log.warning("steps are refused above", extra={"reason": body[:500].decode(errors="replace")})
            raise Refusal("unavailable", "The coordinator above takes no steps from this relay; try again later.")
        return body

    def _unreachable(self, url: str, error: Exception) -> Refusal:
        if self._quiet.says(url):
            log.warning("no answer from above", extra={"address": url, "reason": str(error) or type(error).__name__})
        if self.address.url == url:  # and nobody else has turned meanwhile
            self.address.turn()
        return Refusal("unavailable", "The relay cannot reach the coordinator above it; try again.")

    def moved(self, url: str, owner: str) -> Refusal:
        """Follow a federation that is elsewhere; what a client is told."""
        if self.address.url == url and not self.address.follow(owner):
            self.address.turn()
        return Refusal("unavailable", "The federation is moving to another coordinator; try again.")

    async def open(self, ws: WebSocket) -> ClientConnection:
        """A stream above for one below; where that is refused, so is this (`NotOpened`)."""
        url, headers = self.address.url, _passed(ws)
        software = headers.pop("user-agent", None)
        try:
            up = await connect(
                self.address.stream,
                additional_headers=headers,
                subprotocols=ws.scope.get("subprotocols") or None,
                user_agent_header=software,
                ssl=self.address.ssl,
                compression=None,
                proxy=None,
                max_size=2**26,
                close_timeout=1.0,
            )
        except InvalidStatus as error:
            body, status = bytes(error.response.body or b""), error.response.status_code
            if status == ELSEWHERE:
                raise self.moved(url, owner_in(body)) from None
            raise NotOpened(Response(body, status, media_type="application/json")) from None
        except (OSError, WebSocketException) as error:
            raise self._unreachable(url, error) from None
        self._answered = time.monotonic()
        return up

    async def converse(self, ws: WebSocket, up: ClientConnection, url: str) -> None:
        """Pass messages on, both ways, until either end closes."""
        accepts = "" if up.response is None else up.response.headers.get(ACCEPTS, "")
        await ws.accept(up.subprotocol, [(ACCEPTS.encode(), accepts.encode())] if accepts else None)
        async with anyio.create_task_group() as group:

            async def until_it_ends(one: Awaitable[None]) -> None:
                with contextlib.suppress(RuntimeError, WebSocketDisconnect, WebSocketException):
                    await one
                group.cancel_scope.cancel()

            group.start_soon(until_it_ends, _upwards(ws, up))
            await until_it_ends(self._downwards(ws, up, url))
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await ws.close(1000 if up.close_code in (None, 1000) else 1008)

    async def _downwards(self, ws: WebSocket, up: ClientConnection, url: str) -> None:
        async for message in up:
            if isinstance(message, bytes):
                await ws.send_bytes(message)
                continue
            if _kind(message) == "elsewhere":
                await ws.send_text(json.dumps(as_json(self.moved(url, owner_in(message.encode())))))
                return
            await ws.send_text(message)

    async def watch(self) -> None:
        """End connections that say nothing, and take a renewed certificate."""
        while True:
            await asyncio.sleep(1.0)
            if self.guard is not None:
                self.guard.end_quiet_ones()
            try:
                if self.renew():
                    log.info("the certificate was renewed")
            except (OSError, FedbanditError) as error:
                if self._quiet.says("certificate"):
                    log.warning("the certificate cannot be renewed", extra={"reason": str(error)})

    async def keep_asking(self) -> None:
        """See whether the coordinator above is there, is the owner and lets the relay in, also while no client asks."""
        while True:
            await asyncio.sleep(ASK_SECONDS)
            with contextlib.suppress(Refusal):
                await self._ask_itself("GET", "terms")

    async def finish(self) -> None:
        """Nothing: what is under way is the coordinator's above, and its clients'."""


class NotOpened(Exception):
    """The coordinator above refuses a stream; its answer."""

    def __init__(self, answer: Response) -> None:
        super().__init__()
        self.answer = answer


def make_app(passing: Passing) -> Starlette:
    """The application of a relay that passes on."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(one) for one in (passing.watch(), passing.keep_asking(), passing.bundles.run())]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def other(request: Request) -> Response:
        passing.admit(request)
        what = request.url.path.split("/", 3)[3]
        most = most_in_bundle(passing.most_bytes) if what == "sums/many" else passing.most_bytes
        body = await body_of(request, most, _BYTES) if request.method == "POST" else b""
        status, kind, data = await passing.ask(request.method, what, _passed(request), body)
        if status != HTTPStatus.UNAUTHORIZED:
            identified(request)
        return Response(data, status, media_type=kind)

    async def sums(request: Request) -> Response:
        passing.admit(request)
        body, said = await body_of(request, passing.most_bytes, _BYTES), request.headers
        who = said.get("authorization", ""), said.get("x-fedbandit-name", ""), said.get(SESSION_HEADER, "")
        if sum(map(len, who)) > MOST_SAID:
            raise Refusal("malformed", f"Token, name and session have more than {MOST_SAID} characters.")
        url = passing.address.url
        outcome = await passing.bundles.post(SentStep(*who, body))
        if outcome.status == ELSEWHERE:
            raise passing.moved(url, outcome.refusal.get("owner", ""))
        if outcome.status != HTTPStatus.UNAUTHORIZED:
            identified(request)
        if outcome.status != HTTPStatus.OK:
            return JSONResponse(outcome.refusal, outcome.status)
        return Response(steps_as_bytes(outcome.steps), media_type=_BYTES)

    async def stream(ws: WebSocket) -> None:
        try:
            passing.admit(ws)
            url = passing.address.url
            up = await passing.open(ws)
        except Refusal as refusal:
            await ws.send_denial_response(refused(refusal))
            return
        except NotOpened as not_opened:
            await ws.send_denial_response(not_opened.answer)
            return
        identified(ws)
        passing.streams += 1
        try:
            await passing.converse(ws, up, url)
        finally:
            passing.streams -= 1
            await up.close()

    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok" if passing.well else "failing"}, 200 if passing.well else 503)

    async def refuse(_: Request, error: Exception) -> Response:
        assert isinstance(error, Refusal)
        return refused(error)

    routes = [
        Route("/healthz", healthz),
        Route("/v1/{federation}/invitation", other, methods=["GET", "DELETE"]),
        Route("/v1/{federation}/terms", other, methods=["GET"]),
        Route("/v1/{federation}/messages", other, methods=["POST"]),
        Route("/v1/{federation}/sums", sums, methods=["POST"]),
        Route("/v1/{federation}/sums/many", other, methods=["POST"]),
        WebSocketRoute("/v1/{federation}/stream", stream),
    ]
    return Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={Refusal: refuse},
        middleware=[Middleware(Guarded, passing)],
    )


def _passed(connection: HTTPConnection) -> dict[str, str]:
    return {name: connection.headers[name] for name in PASSED if name in connection.headers}


def _kind(text: str) -> str:
    try:
        return str(read_json(text)["kind"])
    except (ValueError, KeyError, TypeError):
        return ""


async def _upwards(ws: WebSocket, up: ClientConnection) -> None:
    while (event := await ws.receive())["type"] != "websocket.disconnect":
        await up.send(event["text"] if event.get("bytes") is None else event["bytes"])
