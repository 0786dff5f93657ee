"""A bare endpoint: the same frames on the same server, inserted into SQLite in batches, and nothing else.

The yardstick of `benchmarks.network`: no checks, no statistics, no downloads; a receipt when a frame is on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
from collections.abc import AsyncIterator

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from fedbandit.messages import Receipt, encode
from fedbandit.network.addresses import bind

MOST_AT_ONCE = 256


def make_app(path: str) -> Starlette:
    """The application."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE entries (position INTEGER PRIMARY KEY, entry BLOB)")
    queue: asyncio.Queue[tuple[bytes, asyncio.Future[None]]] = asyncio.Queue()

    def insert(frames: list[bytes]) -> None:
        db.execute("BEGIN IMMEDIATE")
        db.executemany("INSERT INTO entries (entry) VALUES (?)", ((frame,) for frame in frames))
        db.execute("COMMIT")

    async def work() -> None:
        while True:
            batch = [await queue.get()]
            while len(batch) < MOST_AT_ONCE and not queue.empty():
                batch.append(queue.get_nowait())
            await asyncio.to_thread(insert, [frame for frame, _ in batch])
            for _, done in batch:
                done.set_result(None)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(work())
        yield
        task.cancel()

    async def stream(ws: WebSocket) -> None:
        await ws.accept()
        receipt, more = encode(Receipt(0, 2**53)), bytes(int(ws.query_params.get("more", "0")))
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            while True:
                done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                queue.put_nowait((await ws.receive_bytes(), done))
                await done
                await ws.send_bytes(receipt)
                if more:  # what a coordinator would send as a download
                    await ws.send_bytes(more)

    async def healthz(_: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    routes = [Route("/healthz", healthz), WebSocketRoute("/stream", stream)]
    return Starlette(routes=routes, lifespan=lifespan)


if __name__ == "__main__":
    listener = bind("127.0.0.1", 0)
    print(listener.getsockname()[1], flush=True)
    app = make_app(sys.argv[1])
    config = uvicorn.Config(
        app, log_config=None, access_log=False, ws="websockets-sansio", ws_per_message_deflate=False
    )
    uvicorn.Server(config).run(sockets=[listener])
