"""`fedbandit relay`: a coordinator to the clients below, one member of the federation above.

Where sums are secure it is no member, and passes on what clients say.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedbandit.errors import FedbanditError, number

if TYPE_CHECKING:
    from fedbandit.network.client.address import Address
    from fedbandit.network.invitation import Agreement

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
    command.add_argument("--store", metavar="FILE", help="where it keeps its state; one that passes on keeps none")
    command.add_argument("--token-file", type=Path, metavar="FILE", help="the token of the relay, as a client above")
    command.add_argument("--name", metavar="NAME", help="of the relay, without a token (default: one that it keeps)")
    command.add_argument("--ca", metavar="FILE.pem", help="the authority that signed the certificate above")
    command.add_argument("--host", default="127.0.0.1", metavar="HOST", help="to serve on (default: 127.0.0.1)")
    command.add_argument("--port", type=int, default=8765, metavar="P", help="0: any that is free (default: 8765)")
    command.add_argument("--keys", type=Path, metavar="FOLDER", help="of tokens and certificate for clients below")
    command.add_argument("--rate", type=float, metavar="R", help="messages a second from one client (default: 500)")
    command.add_argument(
        "--forward",
        choices=("trigger", "at-once"),
        help="when the protocol's trigger says so, or whatever comes from below at once (default: trigger)",
    )
    command.add_argument(
        "--relays", metavar="NAMES", help="A,B: relays below, where clients noise what leaves them (default: none)"
    )
    command.add_argument(
        "--seconds", type=float, metavar="S", help="forward at the latest after (default: 60; 0: never)"
    )


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted."""
    from fedbandit.cli.arguments import token_in
    from fedbandit.cli.serve import needs_server
    from fedbandit.network.addresses import check_port
    from fedbandit.network.client.options import lasting_name
    from fedbandit.network.stores import open_store

    with needs_server():
        from fedbandit.machines.relay import passes
        from fedbandit.network.client.address import Address
    if options.store is not None and "://" in options.store:
        raise FedbanditError(f"--store is {options.store!r}, but must be a file: a relay is one process.")
    seconds = 60.0 if options.seconds is None else options.seconds
    number(seconds, "--seconds", "a number of seconds ≥ 0", at_least=0.0)
    if options.rate is not None:
        number(options.rate, "--rate", "a number of messages a second ≥ 1", at_least=1.0)
    check_port(options.port)
    token, known = token_in(options.token_file), options.store is not None and Path(options.store).exists()
    named = options.name is not None or token is not None
    upstream = Address(options.upstream, options.federation, token, options.name or "relay", options.ca)
    terms = None if known else upstream.terms(10.0)
    if terms is not None and passes(terms.build()):
        return _pass_on(options, upstream, terms)
    if options.store is None:
        raise FedbanditError("--store FILE is needed: this relay adds up what its clients send, and must not lose it.")
    if not named:
        open_store(options.store).close()  # refused before a name is kept beside it
        upstream = Address(options.upstream, options.federation, None, lasting_name(options.store), options.ca)
    return _add_up(options, upstream, known=known, seconds=seconds)


def _add_up(options: argparse.Namespace, upstream: Address, *, known: bool, seconds: float) -> int:
    from fedbandit.cli.serve import listen
    from fedbandit.network.coordinator.config import ServerConfig
    from fedbandit.network.relay.federation import RULES
    from fedbandit.network.relay.service import RelayConfig, RelayHost, agreed
    from fedbandit.network.stores import open_store

    store = open_store(options.store)
    try:
        agreement, member = agreed(store, options.federation, upstream)
    except BaseException:
        store.close() if known else store.remove()
        raise
    names = tuple(name.strip() for name in (options.relays or "").split(",") if name.strip())
    where = {"host": options.host, "port": options.port, "store": options.store, "keys": options.keys}
    try:
        forward = {"at_once": options.forward == "at-once", "seconds": seconds}
        entry = RelayConfig(agreement, rules=replace(RULES, relays=names), member=member, **forward)
        config = ServerConfig({options.federation: entry}, rate=options.rate or 500.0, **where)
        return listen(
            config,
            lambda credentials, address: RelayHost(config, upstream, store, credentials, address),
            as_json=options.json,
            title=f"Relaying {options.federation} of {upstream.url}",
        )
    finally:
        store.close()


def _pass_on(options: argparse.Namespace, upstream: Address, terms: Agreement) -> int:
    """Serve clients of secure sums, who are members above."""
    from fedbandit.cli.serve import bound
    from fedbandit.network.coordinator.config import FederationConfig, ServerConfig
    from fedbandit.network.coordinator.federation import Federation
    from fedbandit.network.coordinator.listener import Listener, descriptors
    from fedbandit.network.coordinator.serving import Server, follow_certificate, nothing_to_reload, uvicorn_config
    from fedbandit.network.coordinator.sums import SumDesk
    from fedbandit.network.relay.passing import Passing, make_app
    from fedbandit.network.stores import MemoryStore

    for flag in ("store", "forward", "seconds", "rate", "relays"):
        if getattr(options, flag) is not None:
            raise FedbanditError(
                f"--{flag} is for relays that add up; where trust='sums' a relay passes on what comes, at once, and "
                "the coordinator above limits each client."
            )
    name = options.federation
    each = descriptors() // 3  # a client's connection, the one above for it, and a request now and then
    where = {"host": options.host, "port": options.port, "keys": options.keys, "connections": each}
    config = ServerConfig({name: FederationConfig(terms)}, store=None, **where)
    blank = Federation(name, terms, MemoryStore())
    most = max(blank.most_bytes, SumDesk(blank).most_bytes)
    passing = Passing(upstream, name, config, most, keys=options.keys is not None)
    port = bound(config)
    port.announce([name], f"Passing {name} on to {upstream.url}", as_json=options.json)
    passing.guard = port.guard
    serving = uvicorn_config(make_app(passing), most, port.tls)
    if serving.ssl is not None and config.keys is not None:
        passing.renew, _ = follow_certificate(serving.ssl, config.keys, port.tls)
    Server(serving, nothing_to_reload, passing.finish).run(sockets=[Listener.around(port.listener, port.guard)])
    return 0
