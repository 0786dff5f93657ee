"""Front processes, as the writer has them: they are started, started again when one dies, and end with the writer.

The writer is the coordinator itself: checks, sums and commits, in batches. Its application, the same as without fronts,
answers on a Unix socket in a folder that only its user can open; beside it is the socket of links (`link.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
import time
from typing import Any

from fedbandit.network.coordinator.front import FrontConfig
from fedbandit.network.coordinator.host import Host
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
    SEND,
    TELL,
    FrontLink,
)
from fedbandit.network.coordinator.streams import ClientStream, SendQueue
from fedbandit.network.refusal import Refusal, as_json

log = logging.getLogger("fedbandit.coordinator")
PAUSE = 1.0
"""Seconds between starts of a front: one that has served for longer is started again at once."""


class LinkQueue(SendQueue):
    """What a member is sent by way of a front, where it waits."""

    def __init__(self, link: FrontLink, stream: int) -> None:
        super().__init__()
        self._link, self._stream = link, stream

    def put_bytes(self, data: bytes, *, replaces: bool) -> None:
        """To the front."""
        self.download = data if replaces else self.download
        self._link.send(DOWNLOAD if replaces else SEND, self._stream, data)

    def tell(self, text: dict[str, Any]) -> None:
        """To the front."""
        self._link.tell(TELL, self._stream, text)

    def close(self, reason: str) -> None:
        """The front closes the connection."""
        if self.closing is None:
            self._link.send(CLOSE, self._stream, reason.encode())
        self.closing = reason


class LinkedFront:
    """One front, as the writer sees it."""

    def __init__(self, host: Host, fronts: Fronts) -> None:
        self.host, self.fronts = host, fronts
        self.streams: dict[int, ClientStream] = {}
        self.counts = {"open": 0, "refused": 0, "strangers": 0}
        self.link = FrontLink(self._receive, self._lost)
        fronts.linked.add(self)

    def _receive(self, op: int, number: int, data: bytes) -> None:
        if op == OPEN:
            self._open(number, json.loads(data))
        elif op == COUNTS:
            counts = json.loads(data)
            self.host.unauthenticated += counts["strangers"] - self.counts["strangers"]
            self.fronts.refused += counts["refused"] - self.counts["refused"]
            self.counts = counts
        elif number in self.streams:
            stream = self.streams[number]
            if op == FRAME:
                stream.take(data)
            elif op == REPORT:
                stream.take_report(data.decode())
            elif op == GONE:
                self.streams.pop(number).end()

    def _open(self, number: int, told: dict[str, str]) -> None:
        sending = LinkQueue(self.link, number)
        try:
            hosted = self.host.hosted(told["federation"])
            self.streams[number] = ClientStream(hosted, told["name"], sending, told["address"], told["software"])
        except Refusal as refusal:
            self.link.tell(REFUSE, number, {"status": refusal.status, "body": as_json(refusal)})
        else:
            self.link.send(ACCEPT, number)

    def _lost(self) -> None:
        for stream in self.streams.values():
            stream.end()
        self.streams.clear()
        self.fronts.linked.discard(self)


class Fronts:
    """All of them, and how many connections they have."""

    def __init__(self, host: Host, config: FrontConfig, count: int) -> None:
        self.host, self.config, self.count = host, config, count
        self.linked: set[LinkedFront] = set()
        self.refused = 0
        self.most = config.connections * count
        self._tasks: list[asyncio.Task[None]] = []
        self._server: asyncio.Server | None = None

    @property
    def n_open(self) -> int:
        """Open connections."""
        return sum(front.counts["open"] for front in self.linked)

    async def open(self) -> None:
        """Start them."""
        path = f"{self.config.folder}/{FRAMES}"
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: LinkedFront(self.host, self).link, path)
        self._tasks = [asyncio.create_task(self._keep_alive()) for _ in range(self.count)]

    async def close(self) -> None:
        """End them; what was posted has been answered."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for front in list(self.linked):
            front.link.close()
        if self._server is not None:
            self._server.close()

    async def _keep_alive(self) -> None:
        words = [sys.executable, "-m", "fedbandit.network.coordinator.front", self.config.as_text()]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        while True:
            begun = time.monotonic()
            process = await asyncio.create_subprocess_exec(*words, pass_fds=[self.config.listener], env=environment)
            log.info("a front was started", extra={"count": process.pid})
            try:
                status = await process.wait()
                log.warning("a front has ended", extra={"count": process.pid, "reason": f"status {status}"})
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                    await asyncio.shield(process.wait())
            await asyncio.sleep(begun + PAUSE - time.monotonic())
