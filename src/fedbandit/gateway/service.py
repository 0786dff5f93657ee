"""The gateway as an ASGI application.

| request            | what                                                                          |
|--------------------|-------------------------------------------------------------------------------|
| POST /rank         | an event with its actions; which to take, and how probable each was            |
| POST /reward       | the reward of an event                                                        |
| GET  /report       | what was earned, and in shadow mode what would have been                      |
| GET  /metrics      | numbers for Prometheus                                                        |
| GET  /openapi.json | this interface, described                                                     |
| GET  /healthz      | whether the gateway is well; being offline is well                            |

A refusal is {"error": sentence, "kind": kind}. With a token every request but /healthz needs it; without one only
programs on this machine are answered: pages in browsers and names of other hosts are refused.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit

import anyio
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fedbandit._version import __version__
from fedbandit.gateway.gateway import EventRefusal, Gateway
from fedbandit.gateway.openapi import openapi
from fedbandit.network.addresses import is_loopback
from fedbandit.network.coordinator.service import body_of
from fedbandit.network.coordinator.timings import Histogram
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import StoreError

MOST_BYTES = 8 * 2**20
"""Of a request."""


def make_app(gateway: Gateway, *, token: str | None = None, workers: int = 8) -> Starlette:
    """The application; `workers` threads work at a time."""
    limiter: anyio.CapacityLimiter | None = None
    refusals: dict[str, int] = {}
    timings = {"rank": Histogram(), "reward": Histogram()}

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        nonlocal limiter
        limiter = anyio.CapacityLimiter(workers)
        gateway.start()
        yield
        await anyio.to_thread.run_sync(gateway.close)

    async def run(work: Callable[..., Any], *arguments: Any) -> Any:
        return await anyio.to_thread.run_sync(work, *arguments, limiter=limiter)

    async def asked(request: Request, name: str, answer: Callable[[Any], dict[str, Any]]) -> Response:
        _let_in(request, token)
        body, began = await body_of(request, MOST_BYTES, "application/json"), time.perf_counter()
        response = JSONResponse(await run(lambda: answer(_parsed(body))))
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
        try:
            await run(gateway.events.counts)
        except StoreError:
            return JSONResponse({"status": "failing"}, 503)
        return JSONResponse({"status": "ok"})

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
    )


def _let_in(request: Request, token: str | None) -> None:
    """Refuse who does not have the token; without one, pages in browsers and other hosts' names."""
    if token is not None:
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            raise Refusal("credentials", "The gateway needs its token: Authorization: Bearer TOKEN.")
        return
    if request.headers.get("origin") is not None:
        raise Refusal("role", "A page in a browser may not speak to a gateway without a token.")
    name = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    if not is_loopback(name):
        raise Refusal("role", f"This gateway has no token and is not {name!r}.")


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise EventRefusal("malformed", "The body is not JSON.") from None


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
            ("problem", "Whether a person has to do something.", float(client["problem"] is not None)),
        )
        return [
            InfoMetricFamily("fedbandit_build", "The version that runs.", value={"version": __version__}),
            *(GaugeMetricFamily(f"fedbandit_gateway_{name}", text, value=value) for name, text, value in gauges),
            *(events, refused, seconds),
        ]
