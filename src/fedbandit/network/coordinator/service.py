"""The coordinator as an ASGI application.

| request                              | role     | what                                                               |
|--------------------------------------|----------|--------------------------------------------------------------------|
| GET  /v1/{federation}/invitation     | client   | the agreement and the client's member number, as JSON              |
| POST /v1/{federation}/messages       | client   | one frame; the answers, each after its length in four bytes        |
| POST /v1/{federation}/sums           | client   | a step of a secure sum, or nothing; the steps that wait for it     |
| WS   /v1/{federation}/stream         | client   | frames to the coordinator, messages to the client, as they come    |
| POST /v1/{federation}/quarantine     | admin    | {"client": name, "reason": text}; an empty reason ends it          |
| GET  /api/overview, /metrics         | observer | what the live page shows, and the same for Prometheus              |
| GET  /, /healthz                     | –        | the live page (without data), and whether the coordinator is well  |

A refusal is {"error": sentence, "kind": kind} with a status of `refusal.STATUS`; on a stream it is a text message.
"""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.resources import files

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from fedbandit.messages import encode
from fedbandit.network.coordinator.host import Host, HostedFederation, SendQueue, now
from fedbandit.network.coordinator.overview import metrics, overview
from fedbandit.network.credentials import Identity, Role
from fedbandit.network.jsonable import to_json
from fedbandit.network.refusal import TRANSIENT, Refusal
from fedbandit.network.resolved import invitation as make_invitation

_LENGTH = struct.Struct("<I")
REPORT_KEYS = ("observed", "reward", "regret", "alone")
Handler = Callable[[Request], Awaitable[Response]]


def make_app(host: Host) -> Starlette:
    """The application that serves a host's federations."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await host.open()
        yield
        await host.close()

    def identify(connection: Request | WebSocket, role: Role) -> Identity:
        try:
            claimed = connection.headers.get("x-fedbandit-name") or connection.query_params.get("name")
            if claimed is None and role != "client":
                claimed = "observer"
            identity = host.credentials.identify(connection.headers.get("authorization"), claimed)
            identity.require(role)
        except Refusal:
            host.unauthenticated += 1
            raise
        return identity

    async def invitation(request: Request) -> Response:
        identity = identify(request, "client")
        hosted = host.hosted(request.path_params["federation"])
        hosted.limit(identity.name)
        record = await hosted.do(hosted.federation.invite, identity.name, now())
        federation = hosted.federation
        return JSONResponse(make_invitation(federation.agreement, federation.name, record.member, identity.name))

    async def messages(request: Request) -> Response:
        identity = identify(request, "client")
        hosted = host.hosted(request.path_params["federation"])
        try:
            frame = await _body(request, hosted.federation.most_bytes)
        except Refusal as refusal:
            hosted.refuse(identity.name, refusal)
            raise
        answers = [encode(message) for message in await hosted.submit(identity, frame)]
        body = b"".join(_LENGTH.pack(len(answer)) + answer for answer in answers)
        return Response(body, media_type="application/octet-stream")

    async def sums(request: Request) -> Response:
        identity = identify(request, "client")
        hosted = host.hosted(request.path_params["federation"])
        steps = await hosted.take_step(identity, await _body(request, hosted.sums.most_bytes))
        body = b"".join(_LENGTH.pack(len(step)) + step for step in steps)
        return Response(body, media_type="application/octet-stream")

    async def quarantine(request: Request) -> Response:
        identify(request, "admin")
        hosted = host.hosted(request.path_params["federation"])
        try:
            wish = json.loads(await _body(request, 10_000))
            client, reason = str(wish["client"]), str(wish["reason"])
        except (ValueError, KeyError, TypeError):
            raise Refusal("malformed", 'The body must be {"client": name, "reason": text}.') from None
        await hosted.do(hosted.federation.quarantine, client, reason, now())
        return JSONResponse({"client": client, "quarantined": bool(reason)})

    async def stream(ws: WebSocket) -> None:
        try:
            identity = identify(ws, "client")
            hosted = host.hosted(ws.path_params["federation"])
        except Refusal as refusal:
            await ws.send_denial_response(_refused(refusal))
            return
        await ws.accept()
        sending = SendQueue()
        try:
            async with anyio.create_task_group() as group:

                async def until_it_ends(one: Awaitable[None]) -> None:
                    with contextlib.suppress(RuntimeError, WebSocketDisconnect):  # the client has gone
                        await one
                    group.cancel_scope.cancel()

                group.start_soon(until_it_ends, _listen(ws, hosted, identity, sending, identify))
                group.start_soon(until_it_ends, _send(ws, sending, identify))
        finally:
            hosted.leave(sending)
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await ws.close(1008 if sending.closing else 1000)

    async def show_overview(request: Request) -> Response:
        identify(request, "observer")
        return JSONResponse(to_json(overview(host)))

    async def show_metrics(request: Request) -> Response:
        identify(request, "observer")
        return PlainTextResponse(metrics(host), media_type="text/plain; version=0.0.4")

    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok" if host.healthy else "failing"}, 200 if host.healthy else 503)

    async def page(_: Request) -> Response:
        text = files("fedbandit.cli.page").joinpath("page.html").read_text(encoding="utf-8")
        return HTMLResponse(text, headers={"content-security-policy": _POLICY, "cache-control": "no-cache"})

    async def refuse(_: Request, error: Exception) -> Response:
        assert isinstance(error, Refusal)
        return _refused(error)

    routes = [
        Route("/", page),
        Route("/healthz", healthz),
        Route("/metrics", show_metrics),
        Route("/api/overview", show_overview),
        Route("/v1/{federation}/invitation", invitation),
        Route("/v1/{federation}/messages", messages, methods=["POST"]),
        Route("/v1/{federation}/sums", sums, methods=["POST"]),
        Route("/v1/{federation}/quarantine", quarantine, methods=["POST"]),
        WebSocketRoute("/v1/{federation}/stream", stream),
    ]
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={Refusal: refuse})


_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:"


async def _listen(
    ws: WebSocket,
    hosted: HostedFederation,
    identity: Identity,
    sending: SendQueue,
    identify: Callable[[WebSocket, Role], Identity],
) -> None:
    """Take what a client sends until it leaves, or is made to."""
    while True:
        event = await ws.receive()
        if event["type"] == "websocket.disconnect":
            return
        try:
            identify(ws, "client")  # the token may have been revoked since
            if event.get("bytes") is None:
                _take_report(hosted, identity.name, str(event.get("text")))
                continue
            for message in await hosted.submit(identity, event["bytes"], sending):
                sending.put(message)
        except Refusal as refusal:
            sending.tell({"error": str(refusal), "kind": refusal.kind})
            if refusal.kind not in TRANSIENT:
                sending.close(refusal.kind)


async def _send(ws: WebSocket, sending: SendQueue, identify: Callable[[WebSocket, Role], Identity]) -> None:
    """Send what waits until the connection is to be closed."""
    while True:
        waiting = await sending.next()
        if not sending.closing:
            try:
                identify(ws, "client")  # the token may have been revoked since
            except Refusal as refusal:
                sending.close(refusal.kind)
                return
        for message in waiting:
            await (ws.send_text(message) if isinstance(message, str) else ws.send_bytes(message))
        if sending.closing:
            return


def _take_report(hosted: HostedFederation, name: str, text: str) -> None:
    """A client's voluntary report: only known keys, only numbers."""
    hosted.limit(name)
    try:
        told = json.loads(text)["report"]
        hosted.reports[name] = {key: float(told[key]) for key in REPORT_KEYS if isinstance(told.get(key), int | float)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Refusal("malformed", 'A text message must be {"report": {…}}.') from None


async def _body(request: Request, most: int) -> bytes:
    """The body of a request, refused as soon as it is too long."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise Refusal("size", f"The body has more than {most} bytes.")
        parts.append(part)
    return b"".join(parts)


def _refused(refusal: Refusal) -> JSONResponse:
    return JSONResponse({"error": str(refusal), "kind": refusal.kind}, refusal.status)
