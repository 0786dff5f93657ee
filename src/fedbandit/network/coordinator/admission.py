"""Who is let in: pages of other origins are not, nor are strangers; a stream's token is looked at while it is open."""

from __future__ import annotations

import base64
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from fedbandit.errors import FedbanditError
from fedbandit.network.addresses import is_loopback
from fedbandit.network.coordinator.listener import identified
from fedbandit.network.coordinator.pacing import QuietLog
from fedbandit.network.credentials import Credentials, Identity, Role
from fedbandit.network.refusal import Refusal

PROTOCOL = "fedbandit.v1"
ADDRESS = "x-fedbandit-address"
"""The header in which a front says from where a request came; read on its socket only."""
log = logging.getLogger("fedbandit.coordinator")


class Served(Protocol):
    """Under which names something is served, and to pages of which origins."""

    @property
    def host(self) -> str:
        """The address that it listens on."""
        ...

    @property
    def hosts(self) -> Sequence[str]:
        """Names in a Host header that are answered without keys."""
        ...

    @property
    def origins(self) -> Sequence[str]:
        """Origins of pages that may speak to it."""
        ...


class Door(Protocol):
    """What has to be known to let somebody in: a coordinator's host, or a front, has it."""

    @property
    def config(self) -> Served:
        """Names and origins."""
        ...

    credentials: Credentials
    unauthenticated: int
    quiet: QuietLog
    passes: dict[Pass, Callable[[Refusal], None]]
    """Of the streams that are open, with what ends each of them."""


def identify(door: Door, connection: HTTPConnection, role: Role) -> Identity:
    """Who asks; whoever may not is counted, logged and refused."""
    try:
        check_origin(door.config, connection, keys=door.credentials.folder is not None)
        headers, said = connection.headers, dict(_said(connection))
        claimed = headers.get("x-fedbandit-name") or said.get("name")
        if claimed is None and role != "client":
            claimed = "observer"
        token = said.get("token")
        authorization = headers.get("authorization") or (None if token is None else f"Bearer {token}")
        identity = door.credentials.identify(authorization, claimed)
        identity.require(role, connection.path_params.get("federation", ""))
    except Refusal as refusal:
        door.unauthenticated += 1
        if door.quiet.says(f"{address_of(connection)}/{refusal.kind}"):
            log.warning("not let in", extra={"address": address_of(connection), "kind": refusal.kind,
                                             "path": connection.url.path})  # fmt: skip
        raise
    identified(connection)
    return identity


class Pass:
    """A client's right to a stream, which may end: the token is looked up again when any has changed, or it expires."""

    def __init__(self, door: Door, connection: HTTPConnection) -> None:
        self._door, self._connection = door, connection
        self._look()

    def _look(self) -> None:
        self.identity = identify(self._door, self._connection, "client")
        self._changes = self._door.credentials.changes

    def check(self) -> None:
        """Refuse from when the token has been revoked or has expired."""
        credentials = self._door.credentials
        credentials.look()
        if credentials.changes != self._changes or time.time() >= self.identity.until:
            self._look()

    @contextlib.contextmanager
    def watched(self, refuse: Callable[[Refusal], None]) -> Iterator[None]:
        """While a stream is open: `refuse` ends it, also if nothing is said on it."""
        self._door.passes[self] = refuse
        try:
            yield
        finally:
            self._door.passes.pop(self, None)


def end_without_right(door: Door) -> None:
    """End the streams, idle or not, whose tokens have been revoked or have expired; to be done every second."""
    for one, refuse in list(door.passes.items()):
        try:
            one.check()
        except Refusal as refusal:
            del door.passes[one]
            refuse(refusal)
        except FedbanditError as error:
            if door.quiet.says("tokens"):
                log.warning("the tokens cannot be read", extra={"reason": str(error)})
            return


def offered_protocols(connection: HTTPConnection) -> list[str]:
    """The subprotocols that a WebSocket offers, this one's among them; none is as good."""
    offered: list[str] = connection.scope.get("subprotocols") or []
    if offered and PROTOCOL not in offered:
        raise Refusal("version", f"This coordinator speaks {PROTOCOL}, and not {', '.join(offered)[:200]}.")
    return offered


def address_of(connection: HTTPConnection) -> str:
    """From where it comes."""
    return connection.headers.get(ADDRESS, "") if connection.client is None else connection.client.host


def _said(connection: HTTPConnection) -> list[tuple[str, str]]:
    """A token or name among the subprotocols that a WebSocket offers."""
    found = []
    for offered in connection.scope.get("subprotocols") or []:
        if offered.startswith("fedbandit.token."):
            found.append(("token", offered.removeprefix("fedbandit.token.")))
        elif offered.startswith("fedbandit.name."):
            text = offered.removeprefix("fedbandit.name.")
            with contextlib.suppress(ValueError):
                found.append(("name", base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()))
    return found


def check_origin(config: Served, connection: HTTPConnection, *, keys: bool) -> None:
    """Refuse pages of other origins, and without keys names of hosts that are not this one's."""
    asked = connection.headers.get("host", "")
    origin = connection.headers.get("origin")
    if origin is not None and _netloc(origin) != asked and origin not in config.origins:
        raise Refusal("role", f"A page of {origin[:200]} may not speak to this coordinator; see origins.")
    try:
        name = urlsplit(f"//{asked}").hostname or ""
    except ValueError:
        raise Refusal(
            "malformed", f"The Host header is {asked[:200]!r}, but must be a host, perhaps with a port."
        ) from None
    known = {config.host, *config.hosts}
    if not keys and not (is_loopback(name) or name in known):
        raise Refusal("role", f"This coordinator has no keys and is not {name!r}; see hosts.")


def _netloc(origin: str) -> str | None:
    """The host and port of an origin, if it is one."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None
