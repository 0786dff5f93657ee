"""The host: connections, queues and rate limits between the network and the federations of one coordinator.

Each federation has one worker. It takes all frames that are waiting, hands them over in one go, so that they share a
write to the store, and only then passes the answers on: to the senders, and to other members that are connected.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from fedbandit.machines.sums.messages import encode_step
from fedbandit.messages import Download, Join, Message, encode, is_a
from fedbandit.network.coordinator.config import ServerConfig
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.sums import SumDesk
from fedbandit.network.credentials import Credentials, Identity
from fedbandit.network.envelope import unseal
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import Store, open_store

MOST_AT_ONCE = 256
"""Frames that share one write to the store."""
MOST_FRAMES = 4096
"""Frames that may wait for a federation's worker: beyond that, clients are asked to try again later."""
MOST_UNSENT = 1000
"""Messages that may wait on one connection: a client that does not read is disconnected, and asks when it is back."""
P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger("fedbandit.coordinator")
_OFFSET = time.time() - time.monotonic()


def now() -> float:
    """The time of day, by a clock that does not jump while the coordinator runs."""
    return _OFFSET + time.monotonic()


class SendQueue:
    """The messages that wait to be sent on one connection; a newer download replaces an older one."""

    def __init__(self) -> None:
        self.waiting: deque[bytes | str] = deque()
        self.download: bytes | None = None
        self.closing: str | None = None
        self._event = asyncio.Event()

    def put(self, message: Message) -> None:
        """Send a message as soon as possible."""
        if isinstance(message, Download):
            self.download = encode(message)
        else:
            self._append(encode(message))
        self._event.set()

    def tell(self, text: dict[str, Any]) -> None:
        """Send a JSON object."""
        self._append(json.dumps(text))
        self._event.set()

    def _append(self, message: bytes | str) -> None:
        if len(self.waiting) < MOST_UNSENT:
            self.waiting.append(message)
        else:
            self.close("the client does not read")

    def close(self, reason: str) -> None:
        """Close the connection after what is waiting has been sent."""
        self.closing = reason
        self._event.set()

    async def next(self) -> list[bytes | str]:
        """Wait for messages, and take all there are; none if the connection is to be closed."""
        await self._event.wait()
        self._event.clear()
        messages = list(self.waiting)
        self.waiting.clear()
        if self.download is not None:
            messages.append(self.download)
            self.download = None
        return messages


class RateLimit:
    """A token bucket: `rate` a second, with bursts of as many as one second allows."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.level = rate
        self.at = time.monotonic()

    def take(self) -> bool:
        """Whether one more is allowed now."""
        before, self.at = self.at, time.monotonic()
        self.level = min(self.rate, self.level + (self.at - before) * self.rate)
        if self.level < 1.0:
            return False
        self.level -= 1.0
        return True


class HostedFederation:
    """One federation with its queue of frames, its connections, and the reports of clients that send them."""

    def __init__(self, federation: Federation, rate: float, round_seconds: float) -> None:
        self.federation = federation
        self.rate = rate
        self.round_seconds = round_seconds
        self.connections: dict[int, SendQueue] = {}  # member → what waits on its connection
        self.reports: dict[str, dict[str, float]] = {}
        self.limits: dict[str, RateLimit] = {}  # by client
        self.sums = SumDesk(federation)
        self._one_at_a_time = asyncio.Lock()
        self.queue: asyncio.Queue[tuple[str, bytes, asyncio.Future[list[Message] | Refusal]]] = asyncio.Queue()

    async def submit(self, identity: Identity, frame: bytes, sending: SendQueue | None = None) -> list[Message]:
        """Hand a frame to the federation; the answers for its sender, when what it changed is in the store.

        A Join makes `sending` the member's connection; an older one is closed.
        """
        name = identity.name
        try:
            self.limit(name)
        except Refusal as refusal:
            self.refuse(name, refusal)
            raise
        future: asyncio.Future[list[Message] | Refusal] = asyncio.get_running_loop().create_future()
        self.queue.put_nowait((name, frame, future))
        outcome = await future
        if isinstance(outcome, Refusal):
            self._log(name, outcome)
            raise outcome
        member = self.federation.register.by_name[name].member
        if sending is not None and self.connections.get(member) is not sending and is_a(Join, unseal(frame)[1]):
            if member in self.connections:
                self.connections[member].close("another session of this client has joined")
            self.connections[member] = sending
        self._push(message for message in outcome if message.member != member)
        return [message for message in outcome if message.member == member]

    def limit(self, name: str) -> None:
        """Refuse a client that sends too much, and every client while the queue is full."""
        if name not in self.limits:
            self.limits[name] = RateLimit(self.rate)
        if not self.limits[name].take():
            raise Refusal("rate", f"Client {name!r} sends more than {self.rate:g} messages a second.")
        if self.queue.qsize() >= MOST_FRAMES:
            raise Refusal("unavailable", "The coordinator has more to do than it can; try again later.")

    def refuse(self, name: str, refusal: Refusal) -> None:
        """Count and log a refusal that the federation has not seen."""
        self.federation.note_refusal(name, refusal, now())
        self._log(name, refusal)

    def leave(self, sending: SendQueue) -> None:
        """A connection has ended."""
        for member, mine in list(self.connections.items()):
            if mine is sending:
                del self.connections[member]

    async def do(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Let the federation do something in a thread, one thing at a time."""
        async with self._one_at_a_time:
            return await asyncio.to_thread(function, *args, **kwargs)

    async def take_step(self, identity: Identity, body: bytes) -> list[bytes]:
        """A client's step of a secure sum, or none; the steps that wait for it."""
        self.limit(identity.name)
        try:
            steps = await self.do(self.sums.exchange, identity.name, body, now())
        except Refusal as refusal:
            self.refuse(identity.name, refusal)
            raise
        finally:
            told, self.sums.told = self.sums.told, []
            self._push(told)
        return [encode_step(step) for step in steps]

    async def work(self) -> None:
        """Take frames for ever."""
        while True:
            batch = [await self.queue.get()]
            while len(batch) < MOST_AT_ONCE and not self.queue.empty():
                batch.append(self.queue.get_nowait())
            frames = [(name, frame) for name, frame, _ in batch]
            try:
                outcomes = await self.do(self.federation.receive, frames, now())
            except Refusal as refusal:
                outcomes = [refusal] * len(batch)
            except Exception:
                log.exception("a fault in the coordinator", extra={"federation": self.federation.name})
                outcomes = [Refusal("unavailable", "The coordinator has a fault; it has been logged.")] * len(batch)
            for (_, _, future), outcome in zip(batch, outcomes, strict=True):
                if not future.done():
                    future.set_result(outcome)

    async def count_rounds(self) -> None:
        """Tell the federation, for ever, when the time of a round has passed; by a clock that does not jump."""
        while True:
            await asyncio.sleep(self.round_seconds)
            try:
                messages = await self.do(self.federation.tick, now())
                if self.federation.machine.secure_sums:
                    await self.do(self.sums.look, now())
                    messages, self.sums.told = [*messages, *self.sums.told], []
            except Refusal as refusal:  # the store cannot be written: the round did not end, and the next one tries
                log.warning("no round", extra={"federation": self.federation.name, "kind": refusal.kind})
                continue
            except Exception:
                log.exception("a fault in the coordinator", extra={"federation": self.federation.name})
                continue
            self._push(messages)

    def _push(self, messages: Iterable[Message]) -> None:
        """Send messages to those of their members that are connected; the others ask when they are back."""
        for message in messages:
            if message.member in self.connections:
                self.connections[message.member].put(message)

    def _log(self, name: str, refusal: Refusal) -> None:
        log.warning("refused", extra={"federation": self.federation.name, "client": name, "kind": refusal.kind})


class Host:
    """All federations of one coordinator. Without a store or credentials, they are the configured ones."""

    def __init__(
        self, config: ServerConfig, store: Store | None = None, credentials: Credentials | None = None
    ) -> None:
        self.config = config
        self.credentials = Credentials(config.keys) if credentials is None else credentials
        self.store = open_store(config.store) if store is None else store
        self.begun = now()
        self.unauthenticated = 0
        """Requests with no credentials, or wrong ones."""
        self.federations = {
            name: HostedFederation(
                Federation(name, entry.agreement, self.store, entry.patience), config.rate, entry.round_seconds
            )
            for name, entry in config.federations.items()
        }
        self._workers: list[asyncio.Task[None]] = []

    def hosted(self, name: str) -> HostedFederation:
        """The federation of this name."""
        if name not in self.federations:
            raise Refusal("unknown", f"There is no federation {name!r} here.")
        return self.federations[name]

    async def open(self) -> None:
        """Start the workers."""
        self._workers = [
            asyncio.create_task(work)
            for hosted in self.federations.values()
            for work in (hosted.work(), hosted.count_rounds())
        ]

    async def close(self) -> None:
        """End the workers and close the store."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        for hosted in self.federations.values():
            for sending in hosted.connections.values():
                sending.close("the coordinator is stopping")
        self.store.close()

    @property
    def healthy(self) -> bool:
        """Whether every worker is at work."""
        return bool(self._workers) and not any(worker.done() for worker in self._workers)
