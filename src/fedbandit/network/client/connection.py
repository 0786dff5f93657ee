"""A client's connection to its coordinator: one WebSocket, reconnected with exponential backoff.

What is said is the business of a `Conversation`. `wake` tells the connection that there may be something to send. It
never holds up the service: the client is locked only while a message is taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import threading
import time
from collections.abc import Callable
from ssl import SSLCertVerificationError
from typing import Any

from fedbandit.errors import FedbanditError
from fedbandit.network.client.address import ELSEWHERE, Address, owner_in, sentence_in
from fedbandit.network.client.conversation import PROTOCOL, Conversation, Refused
from fedbandit.network.client.node import DurableNode
from fedbandit.network.clock import ClientClock, said_in
from fedbandit.network.envelope import ACCEPTS
from fedbandit.network.stores import StoreError

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0
SECONDS_TO_ANSWER = 10.0
"""After this an upload that was not acknowledged is sent again, on a new connection."""
SECONDS_HELD_UP = 600.0
"""How often a client asks for the time whose own clock is ahead of the coordinator's."""
MOST_ASKED = 3
"""How often a client that has not come yet asks for its place again."""
_JITTER = random.Random()  # of its own: an application that seeds `random` is left alone
log = logging.getLogger("fedbandit.client")


class Connection:
    """Keeps one client in touch with its coordinator until it is closed."""

    def __init__(
        self,
        client: DurableNode[Any],
        lock: Callable[[], contextlib.AbstractContextManager[Any]],
        address: Address | None,
    ) -> None:
        self.client = client
        self.lock = lock
        self.address = address
        self.connected = False
        self.problem: str | None = None
        """Why nothing is exchanged, if a person has to do something about it."""
        self.refused = ""
        """The kind of the refusal that is the problem, if it is one."""
        self.report: Callable[[], dict[str, float]] | None = None
        self.clock: ClientClock | None = None
        """The client's time of day, where it goes by one: what the coordinator says bounds it."""
        self.settled = threading.Event()
        """Set while everything that was to be sent has been acknowledged."""
        self.joined = address is None
        """Whether the coordinator has answered a Join of this process; alone there is none to answer."""
        self._asked = 0  # how often for its place again
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
        """Stay in touch. Reconnecting is done by hand: meanwhile what waits for the disk is written, `wake` cuts in."""
        # Here rather than on top: a program that never connects, such as the command line, starts sooner.
        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidStatus, WebSocketException
        from websockets.typing import Subprotocol

        self._loop = asyncio.get_running_loop()
        while self.address is None and not self._closing.is_set():  # it learns alone: only its disk has to be served
            await self._rest(1.0)
        if self.address is None:
            return
        pause, tried = FIRST_PAUSE, 0
        while not self._closing.is_set():
            began, owner, tried = time.monotonic(), "", tried + 1
            try:
                async with connect(
                    self.address.stream,
                    additional_headers=self.address.headers,
                    subprotocols=[Subprotocol(PROTOCOL)],
                    ssl=self.address.ssl,
                    compression=None,
                    proxy=None,
                    max_size=2**26,
                    close_timeout=1.0,
                ) as ws:
                    self.connected = True
                    accepts = ws.response.headers.get(ACCEPTS, "") if ws.response is not None else ""
                    self.client.machine.factors = "factors" in accepts.split()
                    if ws.response is not None:
                        self._hear_time(said_in(ws.response.headers))
                    await self._converse(ws)
            except Refused as refusal:
                owner = refusal.owner
                if refusal.kind == "terms":
                    await self._renew("The terms of the federation have changed")
                elif refusal.kind == "identity" and self._is_new and self._asked < MOST_ASKED:
                    self._asked += 1
                    await self._renew("The client's place was given back, and asked for again")
                elif not refusal.transient:
                    with self.lock():
                        self.client.note_refusal(str(refusal))
                    if self._asked and self._is_new:  # the place that it asked for again is of no use to it
                        await asyncio.to_thread(self.address.decline, SECONDS_TO_ANSWER)
                    of = f" The state is {self.client.store.where}." if refusal.kind == "session" else ""
                    self.problem, self.refused = f"{refusal}{of}", refusal.kind
            except InvalidStatus as error:
                body = bytes(error.response.body or b"")
                owner = owner_in(body)
                if error.response.status_code != ELSEWHERE:
                    self.problem = f"The coordinator refuses the connection: {sentence_in(body)}"
            except SSLCertVerificationError as error:  # not signed by `ca`, expired, or of another host
                self.problem = self.address.distrust(error)
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
                pause, tried = FIRST_PAUSE, 0
            if self.address.follow(owner) and tried <= 2 * len(self.address.urls):
                continue  # the owner, at once; unless they send each other's clients round and round
            self.address.turn()
            if tried >= len(self.address.urls):  # each was asked
                await self._rest(pause * _JITTER.uniform(0.5, 1.0))
                pause, tried = min(2 * pause, LONGEST_PAUSE), 0

    @property
    def _is_new(self) -> bool:
        """Whether nothing of it is at the coordinator: then another process of its name, which was refused by what it
        demands, may have given its place back before it came.
        """
        return not self.joined and self.client.machine.sequence == 0

    def _hear_time(self, said: float | None) -> None:
        if self.clock is not None and said is not None and self.clock.hear(said):
            with self.lock():
                self.client.hear_time(said)

    async def _renew(self, why: str) -> None:
        """Ask for the invitation again."""
        assert self.address is not None
        try:
            agreement, member = await asyncio.to_thread(self.address.invitation, SECONDS_TO_ANSWER)
            with self.lock():
                self.client.renew(agreement, member)
            self.problem = None
            log.info("the invitation was renewed", extra={"reason": why})
        except FedbanditError as error:
            self.problem = f"{why}: {error}"
            if self._asked and self._is_new:
                await asyncio.to_thread(self.address.decline, SECONDS_TO_ANSWER)

    async def _rest(self, seconds: float) -> None:
        """Pause, but not when the client is closed."""
        deadline = time.monotonic() + seconds
        while not self._closing.is_set() and (left := deadline - time.monotonic()) > 0:
            self._wake.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wake.wait(), left)
            self._write_choices()

    async def _converse(self, ws: Any) -> None:
        conversation = Conversation(self.client)
        with self.lock():
            greeting = conversation.begin()
        if not greeting:  # nothing is ever exchanged
            self.joined = True
            self.settled.set()
            return
        await ws.send(greeting[0])
        began = time.monotonic()
        since, reported = began, 0.0
        listening = asyncio.ensure_future(ws.recv())
        try:
            while not self._closing.is_set():
                self._wake.clear()
                for frame in self._next(conversation):
                    await ws.send(frame)
                    since = time.monotonic()
                if self.report is not None and time.monotonic() - reported > 1.0:
                    reported = time.monotonic()
                    await ws.send(json.dumps({"report": self.report()}))
                waking = asyncio.ensure_future(self._wake.wait())
                await asyncio.wait({listening, waking}, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
                waking.cancel()
                if listening.done():
                    with self.lock():
                        conversation.take(listening.result())
                    self.problem, self.refused = None, ""
                    listening = asyncio.ensure_future(ws.recv())
                if conversation.awaits is not None and time.monotonic() - since > SECONDS_TO_ANSWER:
                    return
                if time.monotonic() - began > SECONDS_HELD_UP and self.clock is not None and self.clock.held_up:
                    return  # to hear the time again, on a new connection: the coordinator's may have been put right
                self._write_choices()
            if self.report is not None:  # the last one, with all there is
                await ws.send(json.dumps({"report": self.report()}))
        finally:
            listening.cancel()
            with contextlib.suppress(BaseException):
                await listening

    def _next(self, conversation: Conversation) -> list[bytes]:
        """What to send now; `settled` is set if there is nothing left."""
        with self.lock():
            try:
                frames = conversation.next()
            except StoreError as error:  # what is not in the store is not sent; the next turn tries again
                self.problem = str(error)
                return []
            if conversation.awaits is None and not self.client.machine.outbox:
                self.joined = True
                self.settled.set()
        return frames

    def _write_choices(self) -> None:
        try:
            with self.lock():
                self.client.flush()
                self.client.journal.compact()
        except StoreError as error:
            self.problem = str(error)
