"""`fedbandit serve`: a coordinator on a socket, with structured logs on standard error."""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import socket
import ssl
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbandit.errors import FedbanditError

if TYPE_CHECKING:
    from fedbandit.network.coordinator.config import ServerConfig

SUMMARY = "Run a coordinator: federations on a network, with a live page."
_OWN = ("federation", "federations", "client", "peer", "kind", "address", "path", "reason", "by", "count", "bytes",
        "version", "digest")  # fmt: skip


def add_flags(command: argparse.ArgumentParser) -> None:
    """What to host, and where."""
    command.add_argument("--config", type=Path, required=True, metavar="FILE.toml", help="what to host")
    command.add_argument("--port", type=int, metavar="P", help="instead of the configured one; 0: any that is free")
    command.add_argument(
        "--store", metavar="WHERE", help="a file or a postgresql:// URL, instead of the configured one"
    )


class JsonLines(logging.Formatter):
    """One JSON object a line; nothing of a client but its name and the kind of its refusal."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {"at": round(record.created, 3), "level": record.levelname.lower(),
                                "event": record.getMessage()}  # fmt: skip
        line.update({key: getattr(record, key) for key in _OWN if hasattr(record, key)})
        if record.exc_info:
            line["fault"] = self.formatException(record.exc_info)
        return json.dumps(line)


class OnceInAWhile(logging.Filter):
    """Lets the same line of a library pass once in ten seconds: a failing accept may be logged a thousand times."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is said."""
        what = str(record.msg)[:100]
        if record.created - self._said.get(what, 0.0) < 10.0:
            return False
        self._said[what] = record.created
        return True


def log_to_stderr() -> None:
    """Structured logs on standard error, those of libraries too."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.getLogger("fedbandit").setLevel(logging.INFO)
    for name in ("fedbandit", "uvicorn", "asyncio", "websockets"):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.propagate = False
        if name != "fedbandit":
            logger.addFilter(OnceInAWhile())
    for name in ("uvicorn.error", "uvicorn.asgi"):
        logging.getLogger(name).addFilter(OnceInAWhile())


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted."""
    try:
        import uvicorn
        from threadpoolctl import threadpool_limits

        from fedbandit.network.addresses import bind
        from fedbandit.network.coordinator.config import load_config
        from fedbandit.network.coordinator.host import Host
        from fedbandit.network.coordinator.listener import Guard, Listener
        from fedbandit.network.coordinator.service import make_app
        from fedbandit.network.credentials import Credentials
    except ImportError as error:
        raise FedbanditError(f"A coordinator needs {error.name}: pip install 'fedbandit[server]'.") from None
    config = load_config(options.config)
    if options.port is not None:
        config = dataclasses.replace(config, port=options.port)
    if options.store is not None:
        config = dataclasses.replace(config, store=options.store)
    # Keys are looked for before the port is bound, and the port is bound before the store is opened, since a second
    # coordinator would wait there for the first one's lock.
    tls, credentials = tls_files(config), Credentials(config.keys)
    guard = Guard(config.connections, config.connections_per_address)
    listener = Listener.around(bind(config.host, config.port), guard)
    threadpool_limits(1)  # matrices are small: more threads of BLAS get in each other's way
    shown = f"[{config.host}]" if ":" in config.host else config.host
    address = f"http{'s' if tls else ''}://{shown}:{listener.getsockname()[1]}"
    try:
        host = Host(config, credentials=credentials, address=address)
    except BaseException:
        listener.close()
        raise
    host.guard = guard
    log_to_stderr()
    report = {"address": address, "federations": list(config.federations)}
    print(json.dumps(report) if options.json else f"Serving {', '.join(config.federations)} on {address}", flush=True)
    most = host.owners.most_bytes()
    serving = uvicorn.Config(
        make_app(host),
        log_config=None,
        access_log=False,
        ws="websockets-sansio",
        ws_max_size=max(most, 4096),
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=5,
        server_header=False,
        **tls,
    )
    serving.load()
    if serving.ssl is not None and config.keys is not None:
        host.renew, host.expiry = follow_certificate(serving.ssl, config.keys, tls)

    class Server(uvicorn.Server):
        """Gives up its federations before it waits for connections to end, so that others go on at once."""

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await host.owners.give_up()
            await super().shutdown(sockets)

    Server(serving).run(sockets=[listener])
    return 0


def follow_certificate(
    context: ssl.SSLContext, keys: Path, tls: Mapping[str, str]
) -> tuple[Callable[[], bool], Callable[[], float | None]]:
    """What takes a renewed certificate, and says whether it has; and when the certificate expires."""
    from fedbandit.network.certificates import expiry

    path = Path(tls["ssl_certfile"])
    known = [path.stat().st_mtime_ns, expiry(keys)]

    def renew() -> bool:
        changed = path.stat().st_mtime_ns
        if changed == known[0]:
            return False
        context.load_cert_chain(tls["ssl_certfile"], tls["ssl_keyfile"])
        known[:] = changed, expiry(keys)
        return True

    return renew, lambda: known[1]


def tls_files(config: ServerConfig) -> dict[str, Any]:
    """The certificate, if there are keys; off loopback there must be one."""
    from fedbandit.network.addresses import is_loopback
    from fedbandit.network.certificates import CERTIFICATE, KEY

    if config.keys is None:
        return {}
    files = {"ssl_certfile": config.keys / CERTIFICATE, "ssl_keyfile": config.keys / KEY}
    missing = [path for path in files.values() if not path.exists()]
    if missing and not is_loopback(config.host):
        raise FedbanditError(f"There is no {str(missing[0])!r}; make keys with fedbandit keys init.")
    return {} if missing else {key: str(path) for key, path in files.items()}
