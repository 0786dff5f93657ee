"""The coordinator as an ASGI application.

| request                              | role     | what                                                               |
|--------------------------------------|----------|--------------------------------------------------------------------|
| GET  /v1/{federation}/invitation     | client   | the agreement and the client's member number, as JSON              |
| DELETE  the same                     | client   | it does not take part: whether its place is free, as it never came |
| GET  /v1/{federation}/terms          | client   | the agreement alone; nobody's place is taken by that               |
| POST /v1/{federation}/messages       | client   | one frame; the answers, each after its length in four bytes        |
| POST /v1/{federation}/sums           | client   | a step of a secure sum, or nothing; the steps that wait for it     |
| POST /v1/{federation}/sums/many      | client   | of a relay: such steps of many clients, with who each of them is   |
| WS   /v1/{federation}/stream         | client   | frames to the coordinator, messages to the client, as they come    |
| GET  /v1/{federation}/clients        | observer | a page of clients: ?search=, ?page=, ?size=                        |
| POST /v1/{federation}/quarantine     | admin    | {"client": name, "reason": text}; an empty reason ends it          |
| POST /v1/{federation}/free           | admin    | {"client": name}: takes its place from it                          |
| DELETE /v1/{federation}/clients/{name} | admin or that client | erases what it has uploaded; a receipt              |
| GET  /api/backup                     | admin    | all federations, as a file that `fedbandit restore` takes          |
| GET  /api/overview, /metrics         | observer | what the live page shows, and the same for Prometheus              |
| GET  /, /healthz                     | –        | the live page (without data), and whether the coordinator is well  |

A refusal is {"error": sentence, "kind": kind} with a status of `refusal.STATUS`; on a stream it is a text message.
Clients that can set no headers (browsers) say the protocol and who they are as subprotocols of their WebSocket:
`fedbandit.v1`, and `fedbandit.token.TOKEN` or, without keys, `fedbandit.name.NAME` in base64url.

Pages of other origins in a browser are refused unless they are configured (`origins`), and without keys so are requests
for another host than this one: names that a stranger has let point here.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from importlib.resources import files

import anyio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from fedbandit.errors import FedbanditError, as_sentence
from fedbandit.messages import encode
from fedbandit.network.clock import TIME, as_header, now
from fedbandit.network.coordinator import admission
from fedbandit.network.coordinator.admission import Pass, address_of, offered_protocols
from fedbandit.network.coordinator.backup import from_memory, write_backup
from fedbandit.network.coordinator.bundles import exchange_many
from fedbandit.network.coordinator.erasure import compact
from fedbandit.network.coordinator.host import Host, log
from fedbandit.network.coordinator.listener import Guarded
from fedbandit.network.coordinator.metrics import metrics
from fedbandit.network.coordinator.overview import between_writes, clients_page, look, overview
from fedbandit.network.coordinator.recorded import FAILS
from fedbandit.network.coordinator.streams import ClientStream, SendQueue, converse
from fedbandit.network.coordinator.waiting import to_the_end
from fedbandit.network.credentials import Identity, Role
from fedbandit.network.jsonable import read_json, to_json
from fedbandit.network.refusal import Refusal, as_json
from fedbandit.network.resolved import invitation as make_invitation
from fedbandit.network.resolved import terms as make_terms
from fedbandit.network.stores import NotOwner, StoreError
from fedbandit.network.sums import SESSION_HEADER, most_in_bundle, pack_outcomes, steps_as_bytes

_LENGTH = struct.Struct("<I")
BODY_SECONDS = 30.0


def make_app(host: Host) -> Starlette:
    """The application that serves a host's federations."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await host.open()
        if host.fronts is not None:
            await host.fronts.open()
        yield
        if host.fronts is not None:
            await host.fronts.close()
        await host.close()

    def identify(connection: HTTPConnection, role: Role) -> Identity:
        return admission.identify(host, connection, role)

    async def invitation(request: Request) -> Response:
        identity = identify(request, "client")
        hosted = host.hosted(request.path_params["federation"])
        hosted.limit(identity.name)
        record = await hosted.do(hosted.federation.invite, identity.name, now())
        federation = hosted.federation
        who = record.member, identity.name
        invited = make_invitation(federation.agreement, federation.name, *who, federation.migrated)
        return JSONResponse(invited, headers={TIME: as_header()})

    async def terms(request: Request) -> Response:
        identity = identify(request, "client")
        hosted = host.hosted(request.path_params["federation"])
        hosted.limit(identity.name)
        return JSONResponse(make_terms(hosted.federation.agreement, hosted.federation.name))

    async def decline(request: Request) -> Response:
        identity = identify(request, "client")
        hosted = host.hosted(request.path_params["federation"])
        hosted.limit(identity.name)
        hosted.requests.seldom("decline", identity.name)
        freed, answers = await hosted.do(hosted.federation.decline, identity.name, now())
        hosted.push(answers)
        return JSONResponse({"name": identity.name, "freed": freed})

    async def messages(request: Request) -> Response:
        identity = identify(request, "client")
        hosted = host.hosted(request.path_params["federation"])
        try:
            with hosted.requests.one(identity.name):
                frame = await body_of(request, hosted.federation.most_bytes, "application/octet-stream")
        except Refusal as refusal:
            hosted.refuse(identity.name, refusal)
            raise
        answers = [encode(message) for message in await hosted.submit(identity, frame)]
        body = b"".join(_LENGTH.pack(len(answer)) + answer for answer in answers)
        return Response(body, media_type="application/octet-stream")

    async def sums(request: Request) -> Response:
        identity = identify(request, "client")
        hosted = host.hosted(request.path_params["federation"])
        with hosted.requests.one(identity.name):
            sent = await body_of(request, hosted.sums.most_bytes, "application/octet-stream")
        steps = await hosted.take_step(identity, sent, request.headers.get(SESSION_HEADER, ""))
        return Response(steps_as_bytes(steps), media_type="application/octet-stream")

    async def many_sums(request: Request) -> Response:
        identity = identify(request, "client")
        hosted = host.hosted(request.path_params["federation"])
        hosted.limit(identity.name)
        with hosted.requests.one(identity.name):
            sent = await body_of(request, most_in_bundle(hosted.sums.most_bytes), "application/octet-stream")
        outcomes = await exchange_many(host, hosted, identity.name, sent)
        return Response(pack_outcomes(outcomes), media_type="application/octet-stream")

    async def quarantine(request: Request) -> Response:
        admin = identify(request, "admin")
        hosted = host.hosted(request.path_params["federation"])
        client, reason = await _wish(request, "client", "reason")
        hosted.push(await hosted.do(hosted.federation.quarantine, client, reason, now(), admin.name))
        return JSONResponse({"client": client, "quarantined": bool(reason)})

    async def free(request: Request) -> Response:
        admin = identify(request, "admin")
        hosted = host.hosted(request.path_params["federation"])
        (client,) = await _wish(request, "client")
        hosted.push(await hosted.do(hosted.federation.free, client, now(), admin.name))
        register = hosted.federation.register
        return JSONResponse({"client": client, "free": register.n_members - len(register.by_name)})

    async def erase(request: Request) -> Response:
        client = request.path_params["client"]
        try:
            by = identify(request, "client")
        except Refusal as refusal:
            if refusal.kind != "role":
                raise
            by = identify(request, "admin")
        if by.role == "client" and by.name != client:
            raise Refusal("role", f"{by.name!r} can erase itself, but not {client!r}.")
        hosted = host.hosted(request.path_params["federation"])
        if by.role == "client":
            hosted.requests.seldom("erase", by.name)
        answers, receipt = await hosted.do(hosted.federation.erase, client, now(), by.name)
        hosted.push(answers)
        await hosted.do(compact, hosted.federation, client)
        return JSONResponse(receipt)

    one_backup = asyncio.Lock()  # each has all of the store in memory

    async def backup(request: Request) -> Response:
        admin = identify(request, "admin")
        async with one_backup, contextlib.AsyncExitStack() as stack:
            hosted = dict(host.federations)
            for one in hosted.values():  # between two writes of every federation
                await stack.enter_async_context(one.paused())
            mend = from_memory({name: one.federation for name, one in hosted.items()})
            try:
                data = await to_the_end(asyncio.to_thread(write_backup, host.store, mend))
            except (FedbanditError, OSError, MemoryError) as error:
                log.warning("no backup", extra={"by": admin.name, "reason": str(error)})
                raise Refusal("unavailable", f"No backup was made: {as_sentence(error)}") from None
            finally:
                for one in hosted.values():
                    one.health.say()
        log.info("backup", extra={"by": admin.name, "bytes": len(data)})
        return Response(data, media_type="application/vnd.sqlite3")

    async def stream(ws: WebSocket) -> None:
        sending = SendQueue()
        try:
            offered_protocols(ws)
            access = Pass(host, ws)
            hosted, software = host.hosted(ws.path_params["federation"]), ws.headers.get("user-agent", "")
            taker = ClientStream(hosted, access.identity.name, sending, address_of(ws), software)
        except Refusal as refusal:
            await ws.send_denial_response(refused(refusal))
            return
        try:
            await converse(ws, access, sending, taker)
        finally:
            taker.end()

    async def show_overview(request: Request) -> Response:
        identify(request, "observer")
        await look(host)
        return JSONResponse(to_json({**overview(host), "trouble": await host.trouble()}))

    async def show_clients(request: Request) -> Response:
        identify(request, "observer")
        hosted = host.hosted(request.path_params["federation"])
        asked = request.query_params
        try:
            page, size = int(asked.get("page", "0")), int(asked.get("size", "50"))
        except ValueError:
            raise Refusal("malformed", "page and size must be whole numbers.") from None
        wanted = asked.get("search", ""), page, min(max(size, 1), 1000)
        found = await between_writes(hosted, clients_page, hosted, *wanted)
        if found is None:
            raise Refusal("unavailable", "A write takes long, or has failed: what clients have sent is not known now.")
        return JSONResponse(to_json(found))

    async def show_metrics(request: Request) -> Response:
        identify(request, "observer")
        await look(host)
        return Response(metrics(host), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def healthz(request: Request) -> Response:
        asked, states, trouble = request.query_params.get("federation"), host.owners.states(), await host.trouble()
        shown = states if asked is None else {asked: states.get(asked, "unknown")}
        status = "failing" if trouble else "ok" if "owner" in shown.values() else "standby"
        well = status == "ok" or (status == "standby" and asked is None)
        return JSONResponse({"status": status, "federations": shown}, 200 if well else 503)

    shown = files("fedbandit.cli.page").joinpath("page.html").read_bytes()  # once: strangers may ask for it

    async def page(_: Request) -> Response:
        return HTMLResponse(shown, headers={"content-security-policy": _POLICY, "cache-control": "no-cache",
                                            "x-content-type-options": "nosniff"})  # fmt: skip

    async def refuse(_: Request, error: Exception) -> Response:
        if isinstance(error, NotOwner):
            error = Refusal("elsewhere", str(error), error.address)
        elif isinstance(error, StoreError):
            log.warning(FAILS, extra={"reason": str(error)})
            error = Refusal("unavailable", "The coordinator cannot write now; try again later.")
        assert isinstance(error, Refusal)
        return refused(error)

    routes = [
        Route("/", page),
        Route("/healthz", healthz),
        Route("/metrics", show_metrics),
        Route("/api/overview", show_overview),
        Route("/api/backup", backup),
        Route("/v1/{federation}/invitation", invitation),
        Route("/v1/{federation}/invitation", decline, methods=["DELETE"]),
        Route("/v1/{federation}/terms", terms),
        Route("/v1/{federation}/clients", show_clients),
        Route("/v1/{federation}/clients/{client:path}", erase, methods=["DELETE"]),
        Route("/v1/{federation}/messages", messages, methods=["POST"]),
        Route("/v1/{federation}/sums", sums, methods=["POST"]),
        Route("/v1/{federation}/sums/many", many_sums, methods=["POST"]),
        Route("/v1/{federation}/quarantine", quarantine, methods=["POST"]),
        Route("/v1/{federation}/free", free, methods=["POST"]),
        WebSocketRoute("/v1/{federation}/stream", stream),
    ]
    middleware = [Middleware(Guarded, host)]
    if host.config.origins:
        allowed = ["authorization", "content-type", "x-fedbandit-name"]
        origins, methods = list(host.config.origins), ["GET", "POST", "DELETE"]
        middleware.append(
            Middleware(CORSMiddleware, allow_origins=origins, allow_methods=methods, allow_headers=allowed)
        )
    return Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={Refusal: refuse, StoreError: refuse},
        middleware=middleware,
    )


_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:"


async def body_of(request: Request, most: int, kind: str) -> bytes:
    """The body of a request, refused as soon as it is too long, takes too long, or is said to be something else.

    A page of another origin can send forms and plain text without asking, but neither JSON nor bytes.
    """
    said = request.headers.get("content-type", "").partition(";")[0].strip()
    if said != kind:
        raise Refusal("malformed", f"The content type is {said[:50]!r}, but must be {kind}.")
    parts, size = [], 0
    try:
        with anyio.fail_after(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise Refusal("size", f"The body has more than {most} bytes.")
                parts.append(part)
    except TimeoutError:
        raise Refusal("malformed", f"The body did not come within {BODY_SECONDS:g} s.") from None
    except ClientDisconnect:  # nobody hears this, and nobody's log has a traceback
        raise Refusal("malformed", "The connection ended before the body did.") from None
    return b"".join(parts)


async def _wish(request: Request, *keys: str) -> list[str]:
    """Texts of a JSON object."""
    try:
        wish = read_json(await body_of(request, 10_000, "application/json"))
        texts = [wish[key] for key in keys]
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, Refusal):
            raise
        texts = [None]
    if not all(isinstance(text, str) for text in texts):
        shape = ", ".join(f'"{key}": text' for key in keys)
        raise Refusal("malformed", f"The body must be {{{shape}}}.")
    return texts


def refused(refusal: Refusal) -> JSONResponse:
    """A refusal as an answer."""
    return JSONResponse(as_json(refusal), refusal.status)
