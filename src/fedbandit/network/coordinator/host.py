"""The host: connections, queues and rate limits between the network and the federations of one coordinator.

Each federation has one worker. It takes all frames that are waiting, hands them over in one go, so that they share a
write to the store, and only then passes the answers on: to the senders, and to other members that are connected.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

from fedbandit._version import __version__
from fedbandit.encoded_messages import is_a, readdressed
from fedbandit.errors import FedbanditError
from fedbandit.machines.sums.messages import SumMessage
from fedbandit.messages import Download, Join, Message
from fedbandit.network.clock import now
from fedbandit.network.coordinator.admission import Pass, end_without_right
from fedbandit.network.coordinator.config import ServerConfig
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.health import Health
from fedbandit.network.coordinator.listener import Guard
from fedbandit.network.coordinator.owners import Owners
from fedbandit.network.coordinator.pacing import QuietLog, RateLimit, Requests
from fedbandit.network.coordinator.recorded import FAILS, Event
from fedbandit.network.coordinator.streams import SendQueue, same_statistics
from fedbandit.network.coordinator.sums import SumDesk
from fedbandit.network.coordinator.timings import Timings, span, timed
from fedbandit.network.coordinator.waiting import to_the_end
from fedbandit.network.credentials import Credentials, Identity
from fedbandit.network.envelope import unseal
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import NotOwner, Store, StoreError, open_store

if TYPE_CHECKING:
    from fedbandit.network.coordinator.fronts import Fronts

MOST_AT_ONCE = 256
"""Frames that share one write to the store."""
MOST_FRAMES = 4096
"""Frames that may wait for a federation's worker: beyond that, clients are asked to try again later."""
HANGING_SECONDS = 10.0
"""When a write takes longer, clients are asked to try again later."""
P = ParamSpec("P")
T = TypeVar("T")
Outcome: TypeAlias = "list[Message] | Refusal"
Reply: TypeAlias = Callable[[Outcome], None]
log = logging.getLogger("fedbandit.coordinator")


class HostedFederation:
    """One federation with its queue of frames, its connections, and the reports of clients that send them."""

    def __init__(
        self,
        federation: Federation,
        rate: float,
        round_seconds: float,
        most_streams: int = 4,
        owned: Callable[[], bool] = lambda: True,
    ) -> None:
        self.federation = federation
        self.owned = owned
        """Whether this coordinator is known to be the owner; if not, nothing is answered."""
        self._ended: Refusal | None = None
        self.most_streams = most_streams
        self.streams: Counter[str] = Counter()  # open streams by client
        self.requests = Requests(most_streams)
        self.addresses: dict[str, str] = {}  # from where each client last joined
        self.versions: dict[str, str] = {}  # and with what
        self.timings = Timings()
        self.seen: dict[str, Any] = {}  # what was shown of it last (`overview.py`)
        self.health = Health(federation)
        self._quiet = QuietLog()
        self.rate, self.round_seconds = rate, round_seconds
        self.connections: dict[int, SendQueue] = {}  # member → what waits on its connection
        self.reports: dict[str, dict[str, float]] = {}
        self.limits: dict[str, RateLimit] = {}  # by client
        self.sums = SumDesk(federation)
        self._one_at_a_time = asyncio.Lock()
        self._begun: float | None = None  # when what is under way began
        self.queue: asyncio.Queue[tuple[str, bytes, Reply, float]] = asyncio.Queue()

    def post(self, name: str, frame: bytes, reply: Reply) -> None:
        """Hand a frame to the federation's worker.

        `reply` gets the answers for its sender, when what it changed is in the store, or why it was refused.
        """
        try:
            self.limit(name)
        except Refusal as refusal:
            self.refuse(name, refusal)
            raise
        self.queue.put_nowait((name, frame, reply, time.perf_counter()))

    async def submit(self, identity: Identity, frame: bytes) -> list[Message]:
        """Post a frame, and wait for its answers."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.post(identity.name, frame, lambda outcome: None if future.done() else future.set_result(outcome))
        outcome = await future
        if isinstance(outcome, Refusal):
            raise outcome
        return outcome

    def connect(self, name: str, frame: bytes, sending: SendQueue) -> None:
        """After a Join, messages to its member go to this connection; an older one is closed."""
        member = self.federation.register.by_name[name].member
        if self.connections.get(member) is not sending and is_a(Join, unseal(frame)[1]):
            if member in self.connections:
                self.connections[member].close("another session of this client has joined")
            self.leave(sending)
            self.connections[member], sending.member = sending, member
            federation, address = self.federation.name, self.addresses.get(name)
            log.info("join", extra={"federation": federation, "client": name, "address": address})

    def limit(self, name: str, messages: float = 1.0) -> None:
        """Refuse a client that sends too much, and every client while the queue is full or another is the owner."""
        if self._ended is not None:
            raise self._ended
        if not self.owned():
            raise Refusal("unavailable", "The coordinator is not sure to be the owner of the federation; try again.")
        if name not in self.limits:
            self.limits[name] = RateLimit(self.rate)
        if not self.limits[name].take(messages):
            raise Refusal("rate", f"Client {name!r} sends more than {self.rate:g} messages a second.")
        if self.queue.qsize() >= MOST_FRAMES:
            raise Refusal("unavailable", "The coordinator has more to do than it can; try again later.")
        if self.hangs:
            raise Refusal("unavailable", "The coordinator cannot write now; try again later.")

    @property
    def hangs(self) -> bool:
        """Whether what is under way has been for so long that nobody should wait for it."""
        return self._begun is not None and time.monotonic() - self._begun > HANGING_SECONDS

    def allow(self, rate: float, most_streams: int) -> None:
        """From now on a client may send so many messages a second, on so many streams."""
        if rate != self.rate:
            self.limits.clear()
        self.rate = rate
        self.most_streams = self.requests.most = most_streams

    def limit_streams(self, name: str) -> None:
        """Refuse a client that has too many streams open."""
        if self.streams[name] >= self.most_streams:
            raise Refusal("rate", f"Client {name!r} has {self.most_streams} streams open already.")

    def refuse(self, name: str, refusal: Refusal) -> None:
        """Count and log a refusal that the federation has not seen."""
        self.federation.note_refusal(name, refusal, now())
        self._log(name, refusal)

    def end(self, refusal: Refusal) -> None:
        """The federation is another coordinator's: whoever waits or is connected is told where to go."""
        self._ended = refusal
        while not self.queue.empty():
            _, _, reply, _ = self.queue.get_nowait()
            reply(refusal)
        for sending in self.connections.values():
            sending.refuse(refusal)

    def _disconnect(self) -> None:
        """End the connections of members that are gone or were erased: what comes now is not for them."""
        gone, self.federation.gone = self.federation.gone, []
        for member, name in gone:
            if (sending := self.connections.get(member)) is not None:
                self.leave(sending, name)
                sending.close("the client is no member any more, or was erased")

    def leave(self, sending: SendQueue, name: str = "") -> None:
        """A connection has ended, perhaps of a client of this name whose number is free by now."""
        member, sending.member = sending.member, None
        if member is not None and self.connections.get(member) is sending:
            del self.connections[member]
            name = name or self.federation.register.by_number[member].name
            log.info("leave", extra={"federation": self.federation.name, "client": name})

    async def do(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Let the federation do something in a thread, one thing at a time; what it says goes to the log."""
        async with self._one_at_a_time:
            if self._ended is not None:  # whoever has waited for its turn: what it would change is another's by now
                raise self._ended
            begun, self._begun = time.perf_counter(), time.monotonic()
            try:
                with span(getattr(function, "__name__", "work"), federation=self.federation.name):
                    return await to_the_end(asyncio.to_thread(function, *args, **kwargs))
            except NotOwner:
                raise
            except StoreError as error:
                self.federation.events.append(Event(FAILS, {"reason": str(error)}))
                raise
            finally:
                self._begun = None
                self.timings.work.add(time.perf_counter() - begun)
                self._disconnect()  # here, as whoever asked may have been cancelled
                self.health.say()

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """While nothing is done."""
        async with self._one_at_a_time:
            yield

    async def take_step(self, identity: Identity, body: bytes, session: str) -> list[SumMessage]:
        """A client's step of a secure sum, or none; the steps that wait for it."""
        self.limit(identity.name)
        try:
            return await self.do(self.sums.exchange, identity.name, body, now(), session)
        except Refusal as refusal:
            self.refuse(identity.name, refusal)
            raise
        finally:
            told, self.sums.told = self.sums.told, []
            self.push(told)

    async def work(self) -> None:
        """Take frames for ever."""
        while True:
            batch = [await self.queue.get()]
            while len(batch) < MOST_AT_ONCE and not self.queue.empty():
                batch.append(self.queue.get_nowait())
            frames = [(name, frame) for name, frame, _, _ in batch]
            try:
                outcomes = await self.do(self.federation.receive, frames, now())
            except Refusal as refusal:
                outcomes = [refusal] * len(batch)
            except asyncio.CancelledError:
                for _, _, reply, _ in batch:
                    reply(Refusal("unavailable", "The coordinator is stopping; try again."))
                raise
            except Exception:
                log.exception("a fault in the coordinator", extra={"federation": self.federation.name})
                outcomes = [Refusal("unavailable", "The coordinator has a fault; it has been logged.")] * len(batch)
            unsent, self.federation.unsent = self.federation.unsent, []
            self.push(unsent)
            for (name, _, reply, begun), outcome in zip(batch, outcomes, strict=True):
                try:
                    reply(self._answers(name, outcome, begun))
                except Exception:  # one client's answer, and nobody else's
                    log.exception("a fault in the coordinator", extra={"federation": self.federation.name})

    def _answers(self, name: str, outcome: Outcome, begun: float) -> Outcome:
        """What its sender is answered; what others are to be sent is on its way."""
        if isinstance(outcome, Refusal):
            self._log(name, outcome)
            return outcome
        self.timings.frames.add(time.perf_counter() - begun)
        member = self.federation.register.by_name[name].member
        own = [message for message in outcome if message.member == member]
        if len(own) < len(outcome):
            self.push(message for message in outcome if message.member != member)
        return own

    async def count_rounds(self) -> None:
        """Tell the federation, for ever, when the time of a round has passed; by a clock that does not jump."""
        while True:
            await asyncio.sleep(self.round_seconds)
            try:
                self.push(await self.do(self.federation.tick, now()))
                if self.federation.machine.secure_sums:
                    await self.do(self.sums.look, now())
                    told, self.sums.told = self.sums.told, []
                    self.push(told)
            except Refusal as refusal:  # the store cannot be written: the round did not end, and the next one tries
                log.warning("no round", extra={"federation": self.federation.name, "kind": refusal.kind})
            except Exception:
                log.exception("a fault in the coordinator", extra={"federation": self.federation.name})

    def push(self, messages: Iterable[Message]) -> None:
        """Send messages to those of their members that are connected; the others ask when they are back."""
        last: tuple[Download, bytes] | None = None
        for message in messages:
            if message.member not in self.connections:
                continue
            data = None
            if isinstance(message, Download) and last is not None and same_statistics(message, last[0]):
                data = readdressed(last[1], message)  # statistics that many are sent are encoded once
            sending = self.connections[message.member]
            sending.put(message, data)
            if isinstance(message, Download) and sending.download is not None:
                last = message, sending.download

    def _log(self, name: str, refusal: Refusal) -> None:
        if self._quiet.says(f"{name}/{refusal.kind}"):
            facts = {"federation": self.federation.name, "client": name, "kind": refusal.kind}
            log.warning("refused", extra={**facts, "address": self.addresses.get(name)})


class Host:
    """All federations of one coordinator. Without a store or credentials, they are the configured ones."""

    def __init__(
        self,
        config: ServerConfig,
        store: Store | None = None,
        credentials: Credentials | None = None,
        address: str = "",
    ) -> None:
        self.config = config
        self.address = config.advertise or address
        """Where others are told to find the federations of this coordinator."""
        self.credentials = Credentials(config.keys) if credentials is None else credentials
        self.store = timed(open_store(config.store, config.lease, many=True) if store is None else store)
        self.begun = now()
        self.unauthenticated = 0
        """Requests with no credentials, or wrong ones."""
        self.guard: Guard | None = None
        self.fronts: Fronts | None = None
        """Processes that have the connections instead of this one."""
        self.expiry: Callable[[], float | None] = lambda: None
        """When the certificate expires."""
        self.renew: Callable[[], bool] = lambda: False
        """Takes a renewed certificate; whether there was one."""
        self.federations: dict[str, HostedFederation] = {}
        """Those that this coordinator owns now."""
        self.quiet = QuietLog()
        self.passes: dict[Pass, Callable[[Refusal], None]] = {}
        self.owners = Owners(self)
        try:
            self.owners.begin()
        except BaseException:
            self.store.close()
            raise
        self._workers: list[asyncio.Task[None]] = []
        self._checked = (-9.0, "")

    def around(self, federation: Federation) -> HostedFederation:
        """A federation that has just become this coordinator's, as it is hosted."""
        name, config = federation.name, self.config
        seconds, most = config.federations[name].round_seconds, config.connections_per_client
        hosted = HostedFederation(federation, config.rate, seconds, most, lambda: self.store.holds(name))
        hosted.sums.acquaintances.authority = config.authority_of(name)
        return hosted

    def hosted(self, name: str) -> HostedFederation:
        """The federation of this name; of another coordinator's, where that is."""
        if name not in self.federations:
            if name in self.config.federations:
                raise self.owners.refusal(name)
            raise Refusal("unknown", f"There is no federation {name!r} here.")
        return self.federations[name]

    async def open(self) -> None:
        """Start the workers."""
        log.info("start", extra={"version": __version__, "federations": list(self.federations)})
        for name in self.federations:
            self.owners.start(name)
        self._workers = [asyncio.create_task(self._watch()), asyncio.create_task(self.owners.keep())]

    async def close(self) -> None:
        """End the workers and close the store."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        await self.owners.give_up()
        self.store.close()
        log.info("stop")

    async def _watch(self) -> None:
        """End connections that are only held or are allowed no more, and say how many were one too many."""
        refused = 0
        while True:
            await asyncio.sleep(1.0)
            try:
                if self.renew():
                    log.info("the certificate was renewed")
            except (OSError, FedbanditError) as error:
                if self.quiet.says("certificate"):
                    log.warning("the certificate cannot be renewed", extra={"reason": str(error)})
            end_without_right(self)
            if self.guard is not None:
                self.guard.end_quiet_ones()
                if self.guard.refused > refused and self.quiet.says("connections"):
                    log.warning("connections refused", extra={"count": self.guard.refused - refused})
                    refused = self.guard.refused

    async def trouble(self) -> str:
        """What is wrong with the store, its lock or a worker; empty if all is well. Asked of the store every 2 s."""
        if not self._workers or any(worker.done() for worker in self._workers) or not self.owners.all_work():
            return "a worker has ended"
        if any(hosted.hangs for hosted in self.federations.values()):
            return "the store does not answer"
        at, found = self._checked
        if time.monotonic() - at > 2.0:
            self._checked = time.monotonic(), found
            try:
                await asyncio.wait_for(asyncio.to_thread(self.store.check), 5.0)
                found = ""
            except (StoreError, TimeoutError) as error:
                found = str(error) or "the store does not answer"
            self._checked = time.monotonic(), found
            if found and self.quiet.says("store"):
                log.warning(FAILS, extra={"reason": found})
        failing = next((one.health.failing for one in self.federations.values() if one.health.failing), "")
        return found or failing or self.owners.trouble()
