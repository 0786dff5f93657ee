"""`fedbandit serve`: a coordinator on a socket, with structured logs on standard error."""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
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
    """One JSON object a line; nothing of a client but its name and the kind of its refusal."""

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

        from fedbandit.network.addresses import bind
        from fedbandit.network.coordinator.config import load_config
        from fedbandit.network.coordinator.host import Host
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
    listener = bind(config.host, config.port)
    try:
        host = Host(config, credentials=credentials)
    except BaseException:
        listener.close()
        raise
    log_to_stderr()
    address = f"http{'s' if tls else ''}://{config.host}:{listener.getsockname()[1]}"
    report = {"address": address, "federations": list(config.federations)}
    print(json.dumps(report) if options.json else f"Serving {', '.join(config.federations)} on {address}", flush=True)
    most = max(hosted.federation.most_bytes for hosted in host.federations.values())
    server = uvicorn.Server(
        uvicorn.Config(
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
    )
    server.run(sockets=[listener])
    return 0


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
