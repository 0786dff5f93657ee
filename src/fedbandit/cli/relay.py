"""`fedbandit relay`: a coordinator to the clients below, one member of the federation above."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedbandit.errors import FedbanditError, number

SUMMARY = "Run a relay: clients below, one member of a federation above."


def add_flags(command: argparse.ArgumentParser) -> None:
    """Whose relay, and where it serves."""
    command.add_argument(
        *("--upstream",),
        action="append",
        required=True,
        metavar="URL",
        help="of the coordinator above, such as https://root:8765; once more for each that may take over",
    )
    command.add_argument("--federation", required=True, metavar="NAME", help="which federation to take part in")
    command.add_argument("--store", required=True, metavar="FILE", help="where it keeps its state")
    command.add_argument("--token-file", type=Path, metavar="FILE", help="the token of the relay, as a client above")
    command.add_argument("--name", metavar="NAME", help="of the relay, without a token (default: one that it keeps)")
    command.add_argument("--ca", metavar="FILE.pem", help="the authority that signed the certificate above")
    command.add_argument("--host", default="127.0.0.1", metavar="HOST", help="to serve on (default: 127.0.0.1)")
    command.add_argument("--port", type=int, default=8765, metavar="P", help="0: any that is free (default: 8765)")
    command.add_argument("--keys", type=Path, metavar="FOLDER", help="of tokens and certificate for clients below")
    command.add_argument("--rate", type=float, default=500.0, metavar="R", help="messages a second from one client")
    command.add_argument(
        "--forward",
        choices=("trigger", "at-once"),
        default="trigger",
        help="when the protocol's trigger says so, or whatever comes from below at once (default: trigger)",
    )
    command.add_argument(
        "--seconds", type=float, default=60.0, metavar="S", help="forward at the latest after (default: 60; 0: never)"
    )


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted."""
    from fedbandit.cli.arguments import token_in
    from fedbandit.cli.serve import listen, needs_server
    from fedbandit.network.client.options import lasting_name

    with needs_server():
        from fedbandit.network.client.connection import Address
        from fedbandit.network.coordinator.config import ServerConfig
        from fedbandit.network.relay.service import RelayConfig, RelayHost, agreed
        from fedbandit.network.stores import open_store
    if "://" in options.store:
        raise FedbanditError(f"--store is {options.store!r}, but must be a file: a relay is one process.")
    seconds = number(options.seconds, "--seconds", "a number of seconds ≥ 0", at_least=0.0)
    token, known = token_in(options.token_file), Path(options.store).exists()
    name = options.name or (None if token else lasting_name(options.store))
    upstream = Address(options.upstream, options.federation, token, name, options.ca)
    store = open_store(options.store)
    try:
        agreement, member = agreed(store, options.federation, upstream)
    except BaseException:
        store.close() if known else store.remove()
        raise
    entry = RelayConfig(agreement, member=member, at_once=options.forward == "at-once", seconds=seconds)
    where = {"host": options.host, "port": options.port, "store": options.store, "keys": options.keys}
    try:
        config = ServerConfig({options.federation: entry}, rate=options.rate, **where)
        return listen(
            config,
            lambda credentials, address: RelayHost(config, upstream, store, credentials, address),
            as_json=options.json,
            title=f"Relaying {options.federation} of {upstream.url}",
        )
    finally:
        store.close()
