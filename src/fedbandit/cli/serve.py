"""`fedbandit serve`: a coordinator on a socket, with structured logs on standard error."""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbandit.errors import FedbanditError

if TYPE_CHECKING:
    from fedbandit.network.coordinator.config import ServerConfig

SUMMARY = "Run a coordinator: federations on a network, with a live page."
_OWN = ("federation", "client", "peer", "kind")


def add_flags(command: argparse.ArgumentParser) -> None:
    """What to host, and where."""
    command.add_argument("--config", type=Path, required=True, metavar="FILE.toml", help="what to host")
    command.add_argument("--port", type=int, metavar="P", help="instead of the configured one; 0: any that is free")
    command.add_argument(
        "--store", metavar="WHERE", help="a file or a postgresql:// URL, instead of the configured one"
    )


class JsonLines(logging.Formatter):
    """One JSON object a line; of a client only its name and the kind of what it did."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {"at": round(record.created, 3), "level": record.levelname.lower(),
                                "event": record.getMessage()}  # fmt: skip
        line.update({key: getattr(record, key) for key in _OWN if hasattr(record, key)})
        if record.exc_info:
            line["fault"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_to_stderr() -> None:
    """Structured logs on standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.getLogger("fedbandit").addHandler(handler)
    logging.getLogger("fedbandit").setLevel(logging.INFO)


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted."""
    try:
        import uvicorn

        from fedbandit.network.coordinator.config import load_config
        from fedbandit.network.coordinator.host import Hall
        from fedbandit.network.coordinator.service import make_app
    except ImportError as error:
        raise FedbanditError(f"A coordinator needs {error.name}: pip install 'fedbandit[server]'.") from None
    config = load_config(options.config)
    if options.port is not None:
        config = dataclasses.replace(config, port=options.port)
    if options.store is not None:
        config = dataclasses.replace(config, store=options.store)
    tls = tls_files(config)
    listener = bind(config.host, config.port)
    try:
        hall = Hall(config)
    except BaseException:
        listener.close()
        raise
    log_to_stderr()
    address = f"http{'s' if tls else ''}://{config.host}:{listener.getsockname()[1]}"
    report = {"address": address, "federations": list(config.federations)}
    print(json.dumps(report) if options.json else f"Serving {', '.join(config.federations)} on {address}", flush=True)
    most = max(room.federation.most_bytes for room in hall.rooms.values())
    server = uvicorn.Server(
        uvicorn.Config(
            make_app(hall),
            log_config=None,
            access_log=False,
            ws="websockets-sansio",
            ws_max_size=max(most, 4096),
            ws_per_message_deflate=False,
            timeout_graceful_shutdown=5,
            server_header=False,
            **tls,
        )
    )
    server.run(sockets=[listener])
    return 0


def bind(host: str, port: int) -> socket.socket:
    """A listening socket, or one sentence about why there is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise FedbanditError(f"Port {port} on {host} cannot be used: {error.strerror or error}.") from None
    listener.set_inheritable(True)
    return listener


def tls_files(config: ServerConfig) -> dict[str, Any]:
    """The certificate, if there are keys; off loopback there must be one."""
    from fedbandit.network.certificates import CERTIFICATE, KEY
    from fedbandit.network.coordinator.config import is_loopback

    if config.keys is None:
        return {}
    files = {"ssl_certfile": config.keys / CERTIFICATE, "ssl_keyfile": config.keys / KEY}
    missing = [path for path in files.values() if not path.exists()]
    if missing and not is_loopback(config.host):
        raise FedbanditError(f"There is no {str(missing[0])!r}; make keys with fedbandit keys init.")
    return {} if missing else {key: str(path) for key, path in files.items()}
