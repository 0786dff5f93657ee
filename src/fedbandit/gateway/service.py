"""The gateway as an ASGI application.

| request            | what                                                                          |
|--------------------|-------------------------------------------------------------------------------|
| POST /rank         | an event with its actions; which to take, and how probable each was            |
| POST /reward       | the reward of an event                                                        |
| GET  /report       | what was earned, and in shadow mode what would have been                      |
| GET  /metrics      | numbers for Prometheus                                                        |
| GET  /openapi.json | this interface, described                                                     |
| GET  /healthz      | whether the gateway is well (503: why is logged); being offline is well       |

A refusal is {"error": sentence, "kind": kind}. With a token every request but /healthz needs it; without one only
programs on this machine are answered: pages in browsers and names of other hosts are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import anyio
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fedbandit._version import __version__
from fedbandit.gateway.gateway import Gateway
from fedbandit.gateway.openapi import openapi
from fedbandit.gateway.requests import EventRefusal, parsed
from fedbandit.network.addresses import is_loopback
from fedbandit.network.coordinator.listener import Guard, Guarded, identified
from fedbandit.network.coordinator.pacing import QuietLog
from fedbandit.network.coordinator.service import body_of
from fedbandit.network.coordinator.timings import Histogram
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import StoreError

MOST_BYTES = 8 * 2**20
"""Of a request."""
log = logging.getLogger("fedbandit.gateway")


@dataclass(frozen=True)
class Listening:
    """What guards the listening socket, None where something else does."""

    guard: Guard | None


def make_app(gateway: Gateway, *, token: str | None = None, workers: int = 8, guard: Guard | None = None) -> Starlette:
    """The application; `workers` threads work at a time, and `guard` is that of the listening socket."""
    quiet = QuietLog()
    limiter: anyio.CapacityLimiter | None = None
    refusals: dict[str, int] = {}
    timings = {"rank": Histogram(), "reward": Histogram()}

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        nonlocal limiter
        limiter = anyio.CapacityLimiter(workers)
        gateway.start()
        watching = None if guard is None else asyncio.create_task(end_quiet_ones(guard))
        yield
        if watching is not None:
            watching.cancel()
        try:
            await anyio.to_thread.run_sync(gateway.close)
        except StoreError as error:
            log.warning("the end could not be written", extra={"reason": str(error)})

    async def end_quiet_ones(guard: Guard) -> None:
        """End connections that are only held, and say how many were one too many."""
        refused = 0
        while True:
            await asyncio.sleep(1.0)
            guard.end_quiet_ones()
            if guard.refused > refused and quiet.says("connections"):
                log.warning("connections refused", extra={"count": guard.refused - refused})
                refused = guard.refused

    async def run(work: Callable[..., Any], *arguments: Any) -> Any:
        return await anyio.to_thread.run_sync(work, *arguments, limiter=limiter)

    async def asked(request: Request, name: str, answer: Callable[[Any], dict[str, Any]]) -> Response:
        _let_in(request, token)
        body, began = await body_of(request, MOST_BYTES, "application/json"), time.perf_counter()

        def work() -> dict[str, Any]:
            try:
                return answer(parsed(body))
            except RecursionError:  # of the sentence that would show it: what is kept has no such depth
                raise EventRefusal("malformed", "The body is nested too deeply.") from None

        response = JSONResponse(await run(work))
        timings[name].add(time.perf_counter() - began)
        return response

    async def rank(request: Request) -> Response:
        return await asked(request, "rank", gateway.rank)

    async def reward(request: Request) -> Response:
        return await asked(request, "reward", gateway.reward)

    async def show_report(request: Request) -> Response:
        _let_in(request, token)
        return JSONResponse(await run(gateway.report))

    async def show_metrics(request: Request) -> Response:
        _let_in(request, token)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(GatewayCollector(gateway, refusals, timings))
        ProcessCollector(registry=registry)
        text = await run(generate_latest, registry)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def describe(request: Request) -> Response:
        _let_in(request, token)
        return JSONResponse(openapi(gateway))

    async def healthz(_: Request) -> Response:
        trouble = await run(gateway.trouble)
        if not trouble:
            return JSONResponse({"status": "ok"})
        if quiet.says("trouble"):
            log.warning("the gateway is not well", extra={"reason": trouble})
        return JSONResponse({"status": "failing"}, 503)

    async def refuse(_: Request, error: Exception) -> Response:
        assert isinstance(error, Refusal | EventRefusal)
        refusals[error.kind] = refusals.get(error.kind, 0) + 1
        return JSONResponse({"error": str(error), "kind": error.kind}, error.status)

    async def unavailable(_: Request, error: Exception) -> Response:
        refusals["unavailable"] = refusals.get("unavailable", 0) + 1
        return JSONResponse({"error": str(error), "kind": "unavailable"}, 503)

    return Starlette(
        routes=[
            Route("/rank", rank, methods=["POST"]),
            Route("/reward", reward, methods=["POST"]),
            Route("/report", show_report),
            Route("/metrics", show_metrics),
            Route("/openapi.json", describe),
            Route("/healthz", healthz),
        ],
        lifespan=lifespan,
        exception_handlers={Refusal: refuse, EventRefusal: refuse, StoreError: unavailable},
        middleware=[Middleware(Guarded, Listening(guard))],
    )


def _let_in(request: Request, token: str | None) -> None:
    """Refuse who does not have the token; without one, pages in browsers and other hosts' names."""
    _check(request, token)
    identified(request)


def _check(request: Request, token: str | None) -> None:
    if token is not None:
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            raise Refusal("credentials", "The gateway needs its token: Authorization: Bearer TOKEN.")
        return
    if request.headers.get("origin") is not None:
        raise Refusal("role", "A page in a browser may not speak to a gateway without a token.")
    host = request.headers.get("host", "")
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:  # of brackets
        name = ""
    if not is_loopback(name):
        raise Refusal("role", f"This gateway has no token and is not {name or host!r}.")


class GatewayCollector(Collector):
    """Reads what there is when it is asked."""

    def __init__(self, gateway: Gateway, refusals: dict[str, int], timings: dict[str, Histogram]) -> None:
        self.gateway, self.refusals, self.timings = gateway, refusals, timings

    def collect(self) -> list[Any]:
        """All families."""
        gateway, status = self.gateway, self.gateway.status()
        client = status["client"]
        events = CounterMetricFamily("fedbandit_gateway_events", "Events since the start, by what was done.",
                                     labels=["what"])  # fmt: skip
        for what in ("ranked", "rewarded", "default", "expired", "repeated"):
            events.add_metric([what], gateway.counts[what])
        refused = CounterMetricFamily("fedbandit_gateway_refusals", "Requests refused, by kind.", labels=["kind"])
        for kind, count in sorted(self.refusals.items()):
            refused.add_metric([kind], count)
        seconds = HistogramMetricFamily("fedbandit_gateway_seconds", "From a request to its answer.", labels=["what"])
        for what, timing in self.timings.items():
            seconds.add_metric([what], timing.buckets(), timing.total)
        gauges = (
            ("reward_sum", "Rewards learnt since the start, summed.", gateway.rewards),
            ("waiting_events", "Events that wait for a reward.", status["waiting"]),
            ("connected", "Whether the coordinator can be reached.", float(client["connected"])),
            ("observed", "Rewards that the model has learnt.", client["observed"]),
            ("pending", "Those of them that are in no upload.", client["pending"]),
            ("uploads", "Uploads made.", client["uploads"]),
            ("failing", "Whether /healthz fails.", float(bool(gateway.trouble()))),
            ("problem", "Whether a person has to do something.", float(client["problem"] is not None)),
        )
        return [
            InfoMetricFamily("fedbandit_build", "The version that runs.", value={"version": __version__}),
            *(GaugeMetricFamily(f"fedbandit_gateway_{name}", text, value=value) for name, text, value in gauges),
            *(events, refused, seconds),
        ]
