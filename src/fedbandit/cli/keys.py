"""`fedbandit keys`: certificates and tokens."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from fedbandit.errors import FedbanditError

SUMMARY = "Make certificates and tokens: init, add-client, revoke; peers."


def add_flags(command: argparse.ArgumentParser) -> None:
    """What to do, and for whom."""
    command.add_argument("action", choices=("init", "add-client", "revoke", "peers"))
    command.add_argument("name", nargs="?", metavar="NAME", help="whose token")
    command.add_argument("--keys", type=Path, default=Path("keys"), metavar="FOLDER", help="default: keys")
    command.add_argument("--role", choices=("client", "observer", "admin"), default="client", help="default: client")
    command.add_argument("--host", action="append", metavar="HOST", help="init: a name or address of the coordinator")


def run(options: argparse.Namespace) -> int:
    """Make keys, add a token or revoke one."""
    from fedbandit.network.certificates import AUTHORITY, init_keys
    from fedbandit.network.credentials import add_credential, revoke_credential

    folder = options.keys
    if options.action == "peers":
        from fedbandit.network.peer.keys import make_peer_keys

        hosts = [host.strip() for text in options.host or () for host in text.split(",")]
        if len(hosts) < 2:
            raise FedbanditError("fedbandit keys peers needs --host A,B,…: the host of each peer, in their order.")
        made = [str(path) for path in make_peer_keys(folder, hosts)]
        _say(options, {"peers": made}, f"Keys of {len(made)} peers are in {folder}; copy each folder to its own peer.")
        return 0
    if options.action == "init":
        given = options.host or ["localhost", "127.0.0.1"]
        hosts = [host.strip() for text in given for host in text.split(",")]
        init_keys(folder, hosts)
        _say(options, {"keys": str(folder), "authority": str(folder / AUTHORITY), "hosts": hosts},
             f"Keys for {', '.join(hosts)} are in {folder}; give {folder / AUTHORITY} to every client.")  # fmt: skip
        return 0
    if not options.name:
        raise FedbanditError(f"fedbandit keys {options.action} needs a NAME.")
    if options.action == "add-client":
        token = add_credential(folder, options.name, options.role)
        _say(options, {"name": options.name, "role": options.role, "token": token}, token)
        return 0
    revoke_credential(folder, options.name)
    _say(options, {"name": options.name, "revoked": True}, f"The token of {options.name} is revoked.")
    return 0


def _say(options: argparse.Namespace, report: dict[str, object], text: str) -> None:
    print(json.dumps(report) if options.json else text)
