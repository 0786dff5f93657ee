"""`fedbandit serve`: a coordinator on a socket, with structured logs on standard error."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbandit.errors import FedbanditError

if TYPE_CHECKING:
    import uvicorn

    from fedbandit.network.coordinator.config import ServerConfig
    from fedbandit.network.coordinator.host import Host
    from fedbandit.network.coordinator.listener import Guard
    from fedbandit.network.credentials import Credentials

SUMMARY = "Run a coordinator: federations on a network, with a live page."


def add_flags(command: argparse.ArgumentParser) -> None:
    """What to host, and where."""
    command.add_argument("--config", type=Path, required=True, metavar="FILE.toml", help="what to host")
    command.add_argument("--port", type=int, metavar="P", help="instead of the configured one; 0: any that is free")
    command.add_argument(
        "--fronts", type=int, metavar="N", help="processes for TLS, tokens and WebSockets beside this one; 0: none"
    )
    command.add_argument(
        "--store", metavar="WHERE", help="a file or a postgresql:// URL, instead of the configured one"
    )


@contextlib.contextmanager
def needs_server() -> Iterator[None]:
    """Around imports of what a coordinator needs: what is missing is said in a sentence."""
    try:
        yield
    except ImportError as error:
        raise FedbanditError(f"A coordinator needs {error.name}: pip install 'fedbandit[server]'.") from None


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted."""
    with needs_server():
        from fedbandit.network.coordinator.config import load_config
        from fedbandit.network.coordinator.host import Host

    def configuration() -> ServerConfig:
        given = {"port": options.port, "store": options.store, "fronts": options.fronts}
        chosen = {key: value for key, value in given.items() if value is not None}
        return dataclasses.replace(load_config(options.config), **chosen)

    config = configuration()
    return listen(
        config,
        lambda credentials, address: Host(config, credentials=credentials, address=address),
        as_json=options.json,
        title=f"Serving {', '.join(config.federations)}",
        reload=configuration,
    )


@dataclass(frozen=True)
class Bound:
    """A port that is bound, before anything is served on it."""

    listener: socket.socket
    guard: Guard
    tls: dict[str, Any]
    address: str

    def announce(self, federations: Sequence[str], title: str, *, as_json: bool) -> None:
        """Say where it is; from now on there are logs."""
        from fedbandit.network.logs import log_to_stderr

        log_to_stderr()
        report = {"address": self.address, "federations": list(federations)}
        print(json.dumps(report) if as_json else f"{title} on {self.address}", flush=True)


def bound(config: ServerConfig) -> Bound:
    """Bind the configured port. Keys are looked for before."""
    with needs_server():
        from fedbandit.network.addresses import bind
        from fedbandit.network.coordinator.listener import Guard
        from fedbandit.network.coordinator.serving import tls_files
    tls = tls_files(config)
    guard = Guard(config.connections, config.connections_per_address)
    listener = bind(config.host, config.port)
    shown = f"[{config.host}]" if ":" in config.host else config.host
    return Bound(listener, guard, tls, f"http{'s' if tls else ''}://{shown}:{listener.getsockname()[1]}")


def listen(
    config: ServerConfig,
    make_host: Callable[[Credentials, str], Host],
    *,
    as_json: bool,
    title: str,
    reload: Callable[[], ServerConfig] | None = None,
) -> int:
    """Serve a host on a socket until interrupted; it is made when the port is bound."""
    with needs_server():
        from threadpoolctl import threadpool_limits

        from fedbandit.network.coordinator.listener import Listener
        from fedbandit.network.coordinator.service import make_app
        from fedbandit.network.coordinator.serving import Server, follow_certificate, nothing_to_reload, uvicorn_config
        from fedbandit.network.credentials import Credentials
    # The port is bound before the store is opened: a second coordinator would wait there for the first one's lock.
    credentials = Credentials(config.keys)
    port = bound(config)
    threadpool_limits(1)  # matrices are small: more threads of BLAS get in each other's way
    try:
        host = make_host(credentials, port.address)
    except BaseException:
        port.listener.close()
        raise
    port.announce(list(config.federations), title, as_json=as_json)
    most, owners = host.owners.most_bytes(), host.owners
    hangup = nothing_to_reload if reload is None else partial(owners.reload_from, reload)
    if config.fronts > 0:
        with tempfile.TemporaryDirectory(prefix="fedbandit-") as folder:  # which only this user can open
            behind = behind_fronts(host, port.listener, folder, port.tls, most, port.guard.most)
            Server(behind, hangup, owners.give_up).run()
        return 0
    host.guard = port.guard
    serving = uvicorn_config(make_app(host), most, port.tls)
    if serving.ssl is not None and config.keys is not None:
        host.renew, host.expiry = follow_certificate(serving.ssl, config.keys, port.tls)
    Server(serving, hangup, owners.give_up).run(sockets=[Listener.around(port.listener, port.guard)])
    return 0


def behind_fronts(
    host: Host, listener: socket.socket, folder: str, tls: dict[str, Any], most_bytes: int, able: int
) -> uvicorn.Config:
    """The writer: the same application on a Unix socket, and processes that have the connections."""
    from fedbandit.network.certificates import expiry
    from fedbandit.network.coordinator.front import FrontConfig
    from fedbandit.network.coordinator.fronts import Fronts
    from fedbandit.network.coordinator.link import REQUESTS
    from fedbandit.network.coordinator.listener import default_per_address
    from fedbandit.network.coordinator.service import make_app
    from fedbandit.network.coordinator.serving import uvicorn_config

    config = host.config
    each = able if config.connections is None else math.ceil(config.connections / config.fronts)
    per_address = config.connections_per_address
    told = FrontConfig(
        folder,
        listener.fileno(),
        config.host,
        config.hosts,
        config.origins,
        None if config.keys is None else str(config.keys),
        tls,
        most_bytes,
        each,
        default_per_address(each) if per_address is None else math.ceil(per_address / config.fronts),
        config.rate,
    )
    host.fronts = Fronts(host, told, config.fronts)
    keys = config.keys
    if tls and keys is not None:
        host.expiry = lambda: expiry(keys)
    return uvicorn_config(make_app(host), most_bytes, {}, uds=f"{folder}/{REQUESTS}")
