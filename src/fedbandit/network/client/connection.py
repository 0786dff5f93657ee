"""How a client stays in touch: one connection, made again whenever it breaks, with longer and longer pauses.

The connection says the greeting, then sends one upload after the other, each until it is acknowledged, and takes
whatever comes. It is told by `wake` that there may be something to send. It never holds up the service: the member is
locked only while a message is taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

from fedbandit.errors import FedbanditError
from fedbandit.messages import Receipt, Upload, decode
from fedbandit.network.client.durable import Member
from fedbandit.network.coordinator.config import is_loopback
from fedbandit.network.envelope import unseal
from fedbandit.network.invitation import Terms
from fedbandit.network.refusal import TRANSIENT
from fedbandit.network.stores import StoreError

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0
PATIENCE = 30.0
"""Seconds until an upload that nobody acknowledges is sent on a new connection."""
log = logging.getLogger("fedbandit.client")


class Address:
    """Where the coordinator is, and what to say to be let in."""

    def __init__(self, url: str, federation: str, token: str | None, name: str | None, ca: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise FedbanditError(f"The coordinator's URL is {url!r}, but must be like https://host:port.")
        if token is not None and parts.scheme == "http" and not is_loopback(parts.hostname):
            raise FedbanditError(f"A token is not sent to {url!r} in the clear: use https.")
        if token is not None:
            token = token.strip()
            if not (token.isascii() and token.isprintable() and token) or " " in token:
                raise FedbanditError("The token is not one that fedbandit keys add-client printed.")
        self.url = url.rstrip("/")
        self.path = f"/v1/{quote(federation, safe='')}"
        self.stream = self.url.replace("http", "ws", 1) + self.path + "/stream"
        self.headers = {"Authorization": f"Bearer {token}"} if token is not None else {"X-Fedbandit-Name": name or ""}
        self.ssl = None
        if parts.scheme == "https":
            try:
                self.ssl = ssl.create_default_context(cafile=ca)
            except (OSError, ssl.SSLError) as error:
                raise FedbanditError(f"The authority {ca!r} cannot be read: {error}.") from None

    def invitation(self, timeout: float) -> tuple[Terms, int]:
        """Ask for the terms and the member number."""
        request = urllib.request.Request(f"{self.url}{self.path}/invitation", headers=self.headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout, context=self.ssl) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                raise FedbanditError(f"The coordinator refuses an invitation: {_sentence(error.read())}") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise FedbanditError(f"There is no answer from {self.url}, and no state to go on from: {reason}.") from None
        try:
            return Terms.of_json(_numbers(answer["terms"])), int(answer["member"])
        except (KeyError, TypeError, ValueError) as error:
            raise FedbanditError(f"{self.url} does not answer like a coordinator: {error}.") from None


def _sentence(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return "without a reason."


def _numbers(value: Any) -> Any:
    """Infinity came as text."""
    if isinstance(value, dict):
        return {key: _numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_numbers(inner) for inner in value]
    return float(value) if value in ("inf", "-inf", "nan") else value


class Connection:
    """Keeps one member in touch with its coordinator until it is closed."""

    def __init__(self, member: Member, lock: Callable[[], contextlib.AbstractContextManager[Any]], address: Address):
        self.member = member
        self.lock = lock
        self.address = address
        self.connected = False
        self.problem: str | None = None
        """Why nothing is exchanged, if a person has to do something about it."""
        self.report: Callable[[], dict[str, float]] | None = None
        self.settled = threading.Event()
        """Set while everything that was to be sent has been acknowledged."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._closing = threading.Event()

    def wake(self) -> None:
        """There may be something to send. May be called from any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wake.set)

    def close(self) -> None:
        """Stop as soon as possible. May be called from any thread."""
        self._closing.set()
        self.wake()

    async def run(self) -> None:
        """Stay in touch."""
        try:
            from websockets.asyncio.client import connect
            from websockets.exceptions import InvalidStatus, WebSocketException
        except ImportError:
            self.problem = "A client needs the websockets package: pip install 'fedbandit[client]'."
            return
        self._loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE
        while not self._closing.is_set():
            began = time.monotonic()
            try:
                async with connect(
                    self.address.stream,
                    additional_headers=self.address.headers,
                    ssl=self.address.ssl,
                    compression=None,
                    proxy=None,
                    max_size=2**26,
                    close_timeout=1.0,
                ) as ws:
                    self.connected = True
                    await self._converse(ws)
            except InvalidStatus as error:
                body = bytes(error.response.body or b"")
                self.problem = f"The coordinator refuses the connection: {_sentence(body)}"
            except (TimeoutError, OSError, WebSocketException):
                pass
            except StoreError as error:
                self.problem = str(error)
            except ValueError as error:  # another version, say: it may be rolled back
                self.problem = f"The coordinator cannot be understood: {error}"
            finally:
                self.connected = False
            self._write_choices()
            if self._closing.is_set():
                return
            if time.monotonic() - began > LONGEST_PAUSE:
                pause = FIRST_PAUSE
            await self._rest(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _rest(self, seconds: float) -> None:
        """Pause, but not when the client is closed."""
        deadline = time.monotonic() + seconds
        while not self._closing.is_set() and (left := deadline - time.monotonic()) > 0:
            self._wake.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wake.wait(), left)
            self._write_choices()

    async def _converse(self, ws: Any) -> None:
        with self.lock():
            greeting = self.member.greeting()
        if greeting is None:
            return
        await ws.send(greeting)
        expected: int | None = 0  # the upload that is under way; 0: the answer to the greeting
        since, told = time.monotonic(), 0.0
        listening = asyncio.ensure_future(ws.recv())
        try:
            while not self._closing.is_set():
                self._wake.clear()
                if expected is None:
                    expected, since = await self._send_next(ws), time.monotonic()
                if self.report is not None and time.monotonic() - told > 1.0:
                    told = time.monotonic()
                    await ws.send(json.dumps({"report": self.report()}))
                waking = asyncio.ensure_future(self._wake.wait())
                await asyncio.wait({listening, waking}, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
                waking.cancel()
                if listening.done():
                    expected = self._take(listening.result(), expected)
                    listening = asyncio.ensure_future(ws.recv())
                if expected is not None and time.monotonic() - since > PATIENCE:
                    return
                self._write_choices()
        finally:
            listening.cancel()
            with contextlib.suppress(BaseException):
                await listening

    async def _send_next(self, ws: Any) -> int | None:
        """Send the next frame, if there is one; the number of the upload that is then under way."""
        with self.lock():
            frames = self.member.outgoing()
            if not frames and not self.member.machine.outbox:
                self.settled.set()
        if not frames:
            return None
        await ws.send(frames[0])
        message = decode(unseal(frames[0])[1])
        if isinstance(message, Upload):
            return message.sequence
        return 0 if type(message).__name__ == "Join" else None

    def _take(self, data: bytes | str, expected: int | None) -> int | None:
        """Take a message; what is still under way afterwards."""
        if isinstance(data, str):
            refusal = json.loads(data)
            if refusal.get("kind") not in TRANSIENT:
                self.problem = str(refusal.get("error"))
            raise ConnectionError(str(refusal.get("kind")))  # a new connection begins with a new greeting
        message = decode(data)
        with self.lock():
            self.member.receive(message)
        self.problem = None
        if isinstance(message, Receipt) and (expected is None or message.sequence >= expected or expected == 0):
            return None
        return expected

    def _write_choices(self) -> None:
        try:
            with self.lock():
                self.member.flush()
        except StoreError as error:
            self.problem = str(error)
