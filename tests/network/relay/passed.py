"""A relay that passes secure sums on, in a thread, and clients of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import fedbandit as fb
from fedbandit.network.client.address import Address
from fedbandit.network.coordinator.config import FederationConfig, ServerConfig
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.host import Host
from fedbandit.network.invitation import Agreement
from fedbandit.network.relay.passing import Passing, make_app
from fedbandit.network.stores import MemoryStore
from tests.network.servers import running
from tests.network.test_sums import WORLD, agreement


def terms(n_clients: int, **keywords: object) -> Agreement:
    """Secure sums of so many clients."""
    return replace(agreement("sums", **keywords), world=replace(WORLD, n_clients=n_clients))


def root_of(n_clients: int, keys: Path | None = None, rate: float = 1e6) -> Host:
    """A coordinator with the federation `shops`, in memory."""
    entry = FederationConfig(terms(n_clients))
    return Host(ServerConfig({"shops": entry}, rate=rate, keys=keys), MemoryStore())


def federation_of(host: Host) -> Federation:
    """The federation `shops`."""
    return host.federations["shops"].federation


@contextlib.contextmanager
def passing(above: str | Sequence[str], kind: type[Passing] = Passing) -> Iterator[tuple[str, Passing]]:
    """A relay below: its address, and itself."""
    address = Address(above, "shops", None, "relay", None)
    config = ServerConfig({"shops": FederationConfig(terms(3))})
    relay = kind(address, "shops", config, 2**14, keys=False)
    with running(make_app(relay)) as url:
        yield url, relay


def client_at(url: str, name: str, folder: Path, token: str | None = None) -> fb.Client:
    """A client with a file of its own."""
    said = {"name": name} if token is None else {"token": token}
    return fb.Client(url, federation="shops", state=folder / f"{name}.db", **said)  # type: ignore[arg-type]
