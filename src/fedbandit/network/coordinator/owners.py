"""Which federations this coordinator owns, of those that it is configured with.

Several coordinators with one configuration share a PostgreSQL store. Each federation has one owner, which has it in
memory and answers for it; the others refuse with its address (`Refusal("elsewhere")`, HTTP 421) and try, again and
again, to claim it. What happens when:

| what                                           | then                                                               |
|------------------------------------------------|--------------------------------------------------------------------|
| the owner ends, is killed, or loses PostgreSQL | the server frees its lock, another claims, recovers from the store |
| the owner is stopped or cut off for `lease` s  | the server ends its session: the same                              |
| an owner finds its lock or its term gone       | it steps down: forgets what it had, ends its clients' streams      |
| its lease has run out and nobody has told it   | it answers nothing before it has asked                             |
| what the store has of it cannot be read        | nobody owns it: /healthz fails, and it is tried ever more seldom   |
| a reload changes the terms                     | the owner goes on under the new ones; others must be reloaded too  |

A store in a file or in memory has one process, which owns everything.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from fedbandit.errors import FedbanditError
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.recorded import FAILS
from fedbandit.network.coordinator.upkeep import keep_up
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import MemoryStore, NotOwner, StoreError

if TYPE_CHECKING:
    from fedbandit.network.coordinator.config import ServerConfig
    from fedbandit.network.coordinator.host import Host, HostedFederation

FIXED = (
    *("host", "port", "store", "keys", "fronts", "advertise", "lease"),
    *("connections", "connections_per_address", "hosts", "origins"),
)
"""Keys of [server] that a running coordinator cannot change; certificates and tokens it follows by itself."""
LOOK_SECONDS = 0.25
"""How often others' federations are tried."""
MOST_SECONDS = 30.0
"""The longest pause after a federation could not be taken over: each attempt is a new term and reads all there is."""
T = TypeVar("T")
log = logging.getLogger("fedbandit.coordinator")


class Failure(NamedTuple):
    """Why a federation that has no owner could not be taken over; how long to wait, and until when."""

    reason: str
    pause: float
    until: float


class Owners:
    """Claims federations for a host, and gives them up."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.elsewhere: dict[str, str] = {}
        """Where the federations that are not this coordinator's are, empty if that is not known."""
        self.stale: dict[str, str] = {}
        """Federations that this coordinator must not take over, and why: it is configured otherwise."""
        self.failed: dict[str, Failure] = {}
        """Federations that nobody owns, as they could not be taken over."""
        self.unconfigured: list[str] = []
        """Federations that the store has and the configuration has not."""
        self._followed: dict[str, str] = {}  # the configuration that the owner had when this process read its own
        self._one_at_a_time = asyncio.Lock()
        self.not_taken = ""
        """Why the last configuration was not taken, empty if it was."""
        self._stopping = False
        self._workers: dict[str, list[asyncio.Task[None]]] = {}

    def begin(self) -> None:
        """Claim whatever is nobody's. One that is another's under another configuration is refused."""
        for name in self.host.config.federations:
            try:
                self._note_own(name, self._take(name))
            except NotOwner as error:
                self._note_owner(name, error, refuse=True)
        self._look_for_unconfigured()

    def _look_for_unconfigured(self) -> None:
        """Whose statistics nobody would find to erase: names that have gone from the configuration, not from the store.

        Of a store that is shared, those of other coordinators are theirs to look after.
        """
        store, here = self.host.store, self.host.address
        configured = self.host.config.federations
        known = {*configured, *(name for entry in configured.values() for name in entry.beside)}
        strange = [name for name in store.names() if name not in known]
        owners = {name: store.owner(name) for name in strange}
        self.unconfigured = [n for n, owner in owners.items() if owner is None or owner.address in ("", here)]
        if self.unconfigured:
            log.warning("in the store, but not configured", extra={"federations": self.unconfigured})

    def _take(self, name: str) -> HostedFederation:
        """Claim a federation and go on where its store is. It may run in a thread, and changes nothing of this object:
        whoever has it calls `_note_own`.
        """
        host, entry = self.host, self.host.config.federations[name]
        host.store.claim(name, host.address, entry.digest)
        try:
            federation = entry.open(name, host.store)
        except BaseException:
            host.store.release(name)
            raise
        return host.around(federation)

    def _note_own(self, name: str, hosted: HostedFederation) -> None:
        """A federation is this coordinator's: in the event loop, where others go through what is known."""
        for known in (self.elsewhere, self.stale, self.failed):
            known.pop(name, None)
        self.host.federations[name] = hosted

    def _note_owner(self, name: str, error: NotOwner, *, refuse: bool = False) -> None:
        owner, mine = error.owner, self.host.config.federations[name].digest
        self.elsewhere[name] = error.address
        if owner is None or owner.configuration in ("", mine):
            self._followed[name] = mine
            return
        sentence = (
            f"Federation {name!r} is served by {owner.address or 'another coordinator'} under another configuration "
            f"({owner.configuration[:8]}) than the one here ({mine[:8]}); give all of them the same."
        )
        if refuse:
            raise FedbanditError(sentence)
        self._followed[name] = owner.configuration  # what was read here is meant to follow it

    # While it runs

    def start(self, name: str) -> None:
        """Let a federation work."""
        hosted = self.host.federations[name]
        tasks = hosted.work(), hosted.count_rounds(), keep_up(hosted)
        self._workers[name] = [asyncio.create_task(task) for task in tasks]

    def all_work(self) -> bool:
        """Whether no worker has ended by itself."""
        return not any(worker.done() for workers in self._workers.values() for worker in workers)

    async def keep(self) -> None:
        """For ever: see that what this coordinator has is its own, and try what it has not."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for name in list(self.host.config.federations):
                try:
                    async with self._one_at_a_time:
                        if self._stopping:
                            return
                        await (self._confirm(name) if name in self.host.federations else self._try(name))
                except FedbanditError as error:
                    if self.host.quiet.says(f"owner/{name}"):
                        log.warning("no owner", extra={"federation": name, "reason": str(error)})
                except Exception:
                    log.exception("a fault in the coordinator", extra={"federation": name})

    async def _confirm(self, name: str) -> None:
        if self.host.store.holds(name):
            return
        try:
            await asyncio.to_thread(self.host.store.confirm, name)
        except NotOwner as error:
            self._note_owner(name, error)
            log.warning("another coordinator has taken over", extra={"federation": name})
            await self.step_down(name)

    async def _try(self, name: str) -> None:
        """Take over a federation that has no owner now, if that is what the last one was configured with."""
        store, mine = self.host.store, self.host.config.federations[name].digest
        owner = await asyncio.to_thread(store.owner, name)
        if owner is not None and owner.configuration not in ("", mine, self._followed.get(name, mine)):
            self.elsewhere[name] = owner.address
            self.stale[name] = f"The configuration of {name!r} has changed elsewhere; reload this coordinator."
            return
        self.stale.pop(name, None)
        if name in self.failed and time.monotonic() < self.failed[name].until:
            return
        try:
            hosted = await asyncio.to_thread(self._take, name)
        except NotOwner as error:
            self.failed.pop(name, None)
            self._note_owner(name, error)
            return
        except Exception as error:
            self._note_failure(name, error)
            raise
        self._note_own(name, hosted)
        self.start(name)
        log.info("owner", extra={"federation": name})

    def _note_failure(self, name: str, error: Exception) -> None:
        """Nobody owns a federation, which will not be different in a moment."""
        reason = str(error) if isinstance(error, FedbanditError) else "The coordinator has a fault; it has been logged."
        pause = min(2 * self.failed[name].pause, MOST_SECONDS) if name in self.failed else LOOK_SECONDS
        self.failed[name] = Failure(reason, pause, time.monotonic() + pause)

    async def reload_from(self, read: Callable[[], ServerConfig]) -> None:
        """Take the configuration anew; one that cannot be taken is logged, and changes nothing."""
        try:
            log.info("reload", extra={"federations": await self.reload(read())})
            self.not_taken = ""
        except FedbanditError as error:
            self.not_taken = f"The configuration was not taken at the last reload, the old one holds: {error}"
            log.warning("the configuration was not taken", extra={"reason": str(error)})

    async def reload(self, config: ServerConfig) -> list[str]:
        """Go on with another configuration, with all of it or with none; the federations that have changed.

        Clients of one that has changed join again.
        """
        async with self._one_at_a_time:
            return await self._reload(config)

    async def _reload(self, config: ServerConfig) -> list[str]:
        old, host = self.host.config, self.host
        for key in FIXED:
            if getattr(config, key) != getattr(old, key):
                raise FedbanditError(f"{key} of [server] has changed, for which a coordinator has to be restarted.")
        before = {name: entry.digest for name, entry in old.federations.items()}
        changed = [name for name, entry in config.federations.items() if entry.digest != before.get(name)]
        owned = [name for name in changed if name in host.federations]
        for name in owned:
            host.federations[name].federation.require_sound_change(config.federations[name].agreement)
        host.config = config
        try:
            for name in owned:
                await self._take_anew(name)
        except FedbanditError:
            host.config = old
            for name in owned:
                await self._take_anew(name)
            raise
        self._followed |= {name: before[name] for name in changed if name in before and name not in owned}
        for name in [name for name in host.federations if name not in config.federations]:
            await self.step_down(name)
        for hosted in host.federations.values():
            hosted.allow(config.rate, config.connections_per_client)
        self.stale, self.failed = _only(self.stale, config), _only(self.failed, config)
        try:
            await asyncio.to_thread(self._look_for_unconfigured)
        except StoreError as error:  # the configuration was taken: only this list is an old one
            log.warning(FAILS, extra={"reason": str(error)})
        return changed

    async def _take_anew(self, name: str) -> None:
        """Go on with a federation of this coordinator as it is configured now."""
        if name in self.host.federations:
            await self.step_down(name, release=False)
        self._note_own(name, await asyncio.to_thread(self._take, name))
        self.start(name)

    async def step_down(self, name: str, *, release: bool = True) -> None:
        """Forget a federation, and send its clients elsewhere."""
        hosted = self.host.federations.pop(name)
        log.info("not the owner any more", extra={"federation": name})
        async with hosted.paused():  # a write that is under way ends first
            for worker in self._workers.pop(name, []):
                worker.cancel()
            if release:
                await asyncio.to_thread(self.host.store.release, name)
            hosted.end(self.refusal(name))  # before whoever waits has its turn

    async def give_up(self) -> None:
        """This coordinator stops: others can have all there is, at once, and it takes nothing any more."""
        self._stopping = True
        async with self._one_at_a_time:
            for name in list(self.host.federations):
                self.elsewhere[name] = ""
                await self.step_down(name)

    def refusal(self, name: str) -> Refusal:
        """What whoever asks for a federation of another coordinator is told."""
        where = self.elsewhere.get(name, "")
        return Refusal("elsewhere", f"Federation {name!r} is served by {where or 'another coordinator'}.", where)

    def most_bytes(self) -> int:
        """Of the longest frame that any of the federations takes, whoever owns them."""
        owned = {name: hosted.federation for name, hosted in self.host.federations.items()}
        entries = self.host.config.federations.items()
        blank = {n: Federation(n, e.agreement, MemoryStore(), rules=e.rules) for n, e in entries if n not in owned}
        return max(federation.most_bytes for federation in (owned | blank).values())

    def states(self) -> dict[str, str]:
        """Of each federation: "owner" or "standby"."""
        return {name: "owner" if name in self.host.federations else "standby" for name in self.host.config.federations}

    def trouble(self) -> str:
        """What is wrong, empty if nothing is."""
        late = [name for name in self.host.federations if not self.host.store.holds(name)]
        unsure = [f"It is not known who owns {name!r}." for name in late]
        return next(iter([*self.stale.values(), *self.unowned(), *unsure]), "")

    def unowned(self) -> list[str]:
        """Which federations have no owner, and why."""
        return [f"Nobody owns {name!r}: {failure.reason}" for name, failure in self.failed.items()]


def _only(found: dict[str, T], config: ServerConfig) -> dict[str, T]:
    return {name: value for name, value in found.items() if name in config.federations}
