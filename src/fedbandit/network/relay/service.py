"""A relay on a network: the host of the federation below, and a connection to the coordinator above.

The connection has a thread of its own, as a client's has; what comes down goes to the loop that serves the clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fedbandit.errors import FedbanditError
from fedbandit.machines.relay import require_relayable
from fedbandit.messages import Message
from fedbandit.network.client.address import Address
from fedbandit.network.client.journal import stored_agreement
from fedbandit.network.client.member import Member
from fedbandit.network.clock import now
from fedbandit.network.coordinator.config import FederationConfig, ServerConfig
from fedbandit.network.coordinator.host import Host
from fedbandit.network.coordinator.rules import Rules
from fedbandit.network.credentials import Credentials
from fedbandit.network.invitation import Agreement
from fedbandit.network.relay.durable import KIND
from fedbandit.network.relay.federation import RULES, RelayFederation
from fedbandit.network.stores import Store

SECONDS_TO_FORWARD = 3.0
"""At its end a relay waits so long for the coordinator above to take what it has."""


@dataclass(frozen=True)
class RelayConfig(FederationConfig):
    """The federation below: as it is above, where this relay is `member`.

    at_once: whether whatever comes from below goes up at once.
    seconds: after how long it goes up at the latest; 0: when the protocol says so.
    """

    beside: ClassVar[tuple[str, ...]] = (KIND,)
    rules: Rules = field(default_factory=lambda: RULES)
    member: int = 0
    at_once: bool = False
    seconds: float = 0.0

    def open(self, name: str, store: Store) -> RelayFederation:
        """Go on where the store is."""
        settings: dict[str, Any] = {"at_once": self.at_once, "patience": self.patience, "clock": now,
                                    "rules": self.rules}  # fmt: skip
        return RelayFederation(name, self.agreement, store, self.member, lambda: secrets.randbits(63), **settings)


def agreed(store: Store, name: str, address: Address, timeout: float = 10.0) -> tuple[Agreement, int]:
    """What was agreed on, and the relay's number: as its store has it, or as the coordinator above says.

    A store that is another's, and a federation that needs more than sums, are refused.
    """
    kept, others = stored_agreement(store, KIND), set(store.names()) - {KIND, name}
    if others or (kept is None and store.read(name) != (None, [])):
        whose = f"has {sorted(others)[0]!r} in it" if others else "is a coordinator's"
        raise FedbanditError(f"The store {store.where} {whose}, so it is not that of a relay of {name!r}; use another.")
    if kept is not None:
        _require(kept[0])
        return kept
    terms = address.terms(timeout)
    if terms is not None:  # first: an invitation takes a place above
        _require(terms)
    agreement, member = address.invitation(timeout)
    try:
        _require(agreement)
    except FedbanditError:
        address.decline(timeout)
        raise
    return agreement, member


def _require(agreement: Agreement) -> None:
    if agreement.servers is not None:
        raise FedbanditError(f"{agreement.system} has local servers, and a relay forwards sums over clients.")
    require_relayable(agreement.build())


class Upstream(Member):
    """The connection to the coordinator above."""

    called: ClassVar[str] = "relay"

    def __init__(self, federation: RelayFederation, address: Address) -> None:
        self._federation, self._address = federation, address
        super().__init__(federation.store, federation.node, address)
        federation.wake, federation.about = self.wake, self._about
        federation.given_up = self.given_up

    def close(self) -> None:
        """Stop talking; the store is the host's."""
        self._closed = True
        self._connection.close()
        self._thread.join(10.0)

    def given_up(self) -> str:
        """Why the coordinator above takes nothing of this relay's state, if it says so."""
        return str(self.problem) if self._connection.refused == "session" else ""

    def _about(self) -> dict[str, Any]:
        return {"url": self._address.url, "connected": self.connected, "problem": self.problem}

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with self._federation.lock:  # one for both sides
            yield


class RelayHost(Host):
    """The federation below, on a socket, and what joins it to the one above."""

    def __init__(
        self,
        config: ServerConfig,
        upstream: Address,
        store: Store | None = None,
        credentials: Credentials | None = None,
        address: str = "",
    ) -> None:
        super().__init__(config, store, credentials, address)
        (self._name,) = config.federations
        federation = self.federations[self._name].federation
        assert isinstance(federation, RelayFederation)
        self.relay = federation
        self.upstream = Upstream(federation, upstream)
        self._timer: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Also the connection."""
        await super().open()
        loop, hosted = asyncio.get_running_loop(), self.federations[self._name]

        def deliver(messages: list[Message]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: clients ask when they are back
                loop.call_soon_threadsafe(hosted.push, messages)

        self.relay.deliver = deliver
        self.upstream.start()
        entry = self.config.federations[self._name]
        if isinstance(entry, RelayConfig) and entry.seconds > 0:
            self._timer = asyncio.create_task(self._forward_every(entry.seconds))

    async def close(self) -> None:
        """Let what there is go up, if it can; then as every host."""
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.to_thread(self._finish)
        await super().close()

    async def trouble(self) -> str:
        """Also if the coordinator above has given this relay up."""
        return await super().trouble() or self.upstream.given_up()

    def _finish(self) -> None:
        self.relay.look(now=True)
        if self.upstream.connected:
            self.upstream.flush(SECONDS_TO_FORWARD)
        self.upstream.close()

    async def _forward_every(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            await asyncio.to_thread(self.relay.look, now=True)
