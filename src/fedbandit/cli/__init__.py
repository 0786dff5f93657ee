"""The commands, one module each, with `run(options) -> int`; what is heavy is imported when a command is run.

Those that touch the network, and what they need, have their flags here: `serve`, `client`, `peer`, `keys`, `demo`.
The others have `add_flags(parser)`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from pathlib import Path


def add_commands(command: Callable[[str, str], argparse.ArgumentParser]) -> None:
    """Declare the commands and their flags."""
    serve = command("serve", "Run a coordinator: federations on a network, with a live page.")
    serve.add_argument("--config", type=Path, required=True, metavar="FILE.toml", help="what to host")
    serve.add_argument("--port", type=int, metavar="P", help="instead of the configured one; 0: any that is free")
    serve.add_argument("--store", metavar="WHERE", help="a file or a postgresql:// URL, instead of the configured one")

    client = command("client", "Drive simulated users against a coordinator.")
    client.add_argument("url", metavar="URL", help="of the coordinator, such as http://127.0.0.1:8765")
    client.add_argument("--federation", required=True, metavar="NAME", help="which federation to take part in")
    client.add_argument("--clients", type=int, default=1, metavar="N", help="how many clients (default: 1)")
    client.add_argument("--name", default="user", metavar="NAME", help="of the clients, with a number each")
    client.add_argument("--token-file", type=Path, metavar="FILE", help="a token for a single client")
    client.add_argument("--ca", metavar="FILE.pem", help="the authority that signed the coordinator's certificate")
    client.add_argument("--state", type=Path, metavar="FOLDER", help="where clients keep their state")
    client.add_argument("--interactions", type=int, default=1000, metavar="T", help="of each client (default: 1000)")
    client.add_argument("--pace", type=float, default=0.0, metavar="R", help="interactions a second (default: any)")
    client.add_argument("--arms", type=int, default=10, metavar="K", help="default: 10")
    client.add_argument("--spread", type=float, default=0.2, metavar="S", help="how much tastes differ (default: 0.2)")
    client.add_argument("--seed", type=int, default=0, metavar="S", help="default: 0")
    client.add_argument("--first", type=int, default=0, metavar="I", help="number of the first user (default: 0)")
    client.add_argument("--report", action="store_true", help="tell the live page about reward and regret")

    peer = command("peer", "Run one peer of a federation without a coordinator: decentralised FedUCB.")
    peer.add_argument("--member", type=int, required=True, metavar="I", help="this peer's number, from 0")
    peer.add_argument("--peers", type=int, required=True, metavar="N", help="how many peers there are")
    peer.add_argument("--listen", required=True, metavar="HOST:PORT", help="where neighbours find this peer")
    peer.add_argument("--neighbours", required=True, metavar="J=HOST:PORT,…", help="whom it talks to")
    peer.add_argument("--dim", type=int, required=True, metavar="D", help="length of contexts")
    peer.add_argument("--ttl", type=int, default=1, metavar="HOPS", help="how far messages travel (default: 1)")
    peer.add_argument("--rounds", type=int, default=100, metavar="T", help="interactions of each peer (default: 100)")
    peer.add_argument("--epsilon", type=float, default=1.0, metavar="E", help="budget; inf for no noise (default: 1)")
    peer.add_argument("--delta", type=float, default=1e-5, metavar="D", help="default: 1e-5")
    peer.add_argument("--patience", type=float, default=10.0, metavar="S", help="seconds to wait for a neighbour")
    peer.add_argument("--pace", type=float, default=0.0, metavar="R", help="rounds a second (default: any)")
    peer.add_argument("--state", type=Path, metavar="FILE", help="to go on after a crash")
    peer.add_argument("--keys", type=Path, metavar="FOLDER", help="certificate and credentials; needed off loopback")
    peer.add_argument("--token-file", type=Path, metavar="FILE", help="this peer's token, of the name peer-I")
    peer.add_argument("--arms", type=int, default=10, metavar="K", help="default: 10")
    peer.add_argument("--spread", type=float, default=0.0, metavar="S", help="how much tastes differ (default: 0)")
    peer.add_argument("--seed", type=int, default=0, metavar="S", help="of the simulated users (default: 0)")

    keys = command("keys", "Make certificates and tokens: init, add-client, revoke.")
    keys.add_argument("action", choices=("init", "add-client", "revoke"))
    keys.add_argument("name", nargs="?", metavar="NAME", help="whose token")
    keys.add_argument("--keys", type=Path, default=Path("keys"), metavar="FOLDER", help="default: keys")
    keys.add_argument("--role", choices=("client", "observer", "admin"), default="client", help="default: client")
    keys.add_argument("--host", action="append", metavar="HOST", help="init: a name or address of the coordinator")

    demo = command("demo", "A coordinator and a dozen clients on this machine, with a live page: about a minute.")
    demo.add_argument("--out", type=Path, metavar="FOLDER", default=Path("results/demo"), help="default: results/demo")
    demo.add_argument("--clients", type=int, default=12, metavar="N", help="default: 12")
    demo.add_argument("--seconds", type=float, default=45.0, metavar="S", help="how long users arrive (default: 45)")
    demo.add_argument("--port", type=int, default=0, metavar="P", help="of the live page (default: any that is free)")
    demo.add_argument("--keep", action="store_true", help="leave everything running until interrupted")


def run_in_its_module(name: str, options: argparse.Namespace) -> int:
    """Run the command of this name."""
    status: int = import_module(f"fedbandit.cli.{name}").run(options)
    return status
