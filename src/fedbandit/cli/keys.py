"""`fedbandit keys`: certificates and tokens."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from fedbandit.cli.arguments import text_in
from fedbandit.errors import FedbanditError

SUMMARY = "Make certificates and tokens: init, add-client, list, renew, revoke; peers; sum-key, certify."


def add_flags(command: argparse.ArgumentParser) -> None:
    """What to do, and for whom."""
    command.add_argument("action", choices=("init", "add-client", "list", "renew", "revoke", "peers", "sum-key",
                                           "certify"))  # fmt: skip
    command.add_argument("name", nargs="?", metavar="NAME", help="whose token; renew without it: the certificate")
    command.add_argument("--keys", type=Path, default=Path("keys"), metavar="FOLDER", help="default: keys")
    command.add_argument("--role", choices=("client", "observer", "admin"), help="default: client")
    command.add_argument("--federation", metavar="NAME", help="the only one that the token is good for; renew, "
                         "revoke: of whose tokens, if there are some for several")  # fmt: skip
    command.add_argument(
        "--days", type=float, metavar="N", help="after how many days the token expires; renew: as the old one"
    )
    command.add_argument("--overlap", type=float, metavar="N",
                         help="renew: for how many days the old token is still good (default: 7)")  # fmt: skip
    command.add_argument("--names", metavar="FILE", help="add-client: one name a line, - for standard input")
    command.add_argument("--out", type=Path, metavar="FILE", help="where to write tokens, readable by you alone")
    command.add_argument(
        "--host", action="append", metavar="HOST", help="a name or address of the coordinator; renew: these alone"
    )
    command.add_argument("--state", metavar="FILE", help="sum-key: of the client whose key for secure sums is shown")
    command.add_argument("--key", metavar="KEY", help="certify: what sum-key has shown at the client")
    command.add_argument("--authority", type=Path, metavar="FOLDER", help="of the authority's key, if it is elsewhere")


_TAKEN_BY = {
    "NAME": ("add-client", "renew NAME", "revoke", "certify"),
    "--role": ("add-client",),
    "--federation": ("add-client", "renew NAME", "revoke", "certify"),
    "--days": ("add-client", "renew NAME"),
    "--overlap": ("renew NAME",),
    "--names": ("add-client",),
    "--out": ("add-client", "renew NAME", "certify"),
    "--host": ("init", "renew", "peers"),
    "--state": ("sum-key",),
    "--key": ("certify",),
    "--authority": ("init", "renew", "certify"),
}
"""What is read by which action; the certificate is renewed without a name."""


def _require_taken(options: argparse.Namespace) -> None:
    """Refuse what the action does not read: somebody believes that it does something."""
    action = "renew NAME" if options.action == "renew" and options.name is not None else options.action
    for what, actions in _TAKEN_BY.items():
        if getattr(options, what.lower().removeprefix("--")) is not None and action not in actions:
            raise FedbanditError(f"fedbandit keys {action} takes no {what}; it is for {', '.join(actions)}.")
    if options.name is not None and options.names is not None:
        raise FedbanditError("fedbandit keys add-client takes a NAME or --names, not both.")
    if options.keys.exists() and not options.keys.is_dir():
        raise FedbanditError(f"--keys is {str(options.keys)!r}, which is a file, but must be a folder.")


def run(options: argparse.Namespace) -> int:
    """Make keys, add, list, renew or revoke tokens."""
    _require_taken(options)
    from fedbandit.network import credentials
    from fedbandit.network.addresses import check_host
    from fedbandit.network.certificates import AUTHORITY, certificate_hosts, init_keys, renew_certificate

    folder: Path = options.keys
    role: credentials.Role = options.role or "client"
    hosts = [check_host(host.strip()) for text in options.host or () for host in text.split(",")]
    if options.action == "peers":
        from fedbandit.network.peer.keys import make_peer_keys

        if len(hosts) < 2:
            raise FedbanditError("fedbandit keys peers needs --host A,B,…: the host of each peer, in their order.")
        made = [str(path) for path in make_peer_keys(folder, hosts)]
        _say(options, {"peers": made}, f"Keys of {len(made)} peers are in {folder}; copy each folder to its own peer.")
        return 0
    if options.action == "init":
        hosts = hosts or ["localhost", "127.0.0.1"]
        init_keys(folder, hosts, options.authority)
        _say(options, {"keys": str(folder), "authority": str(folder / AUTHORITY), "hosts": hosts},
             f"Keys for {', '.join(hosts)} are in {folder}; give {folder / AUTHORITY} to every client.")  # fmt: skip
        return 0
    if options.action == "list":
        return _list(options)
    if options.action == "sum-key":
        return _sum_key(options)
    if options.action == "renew" and options.name is None:
        if not folder.is_dir():
            raise FedbanditError(f"There are no keys in {str(folder)!r}; make them with fedbandit keys init.")
        until = renew_certificate(folder, hosts, options.authority)
        named = certificate_hosts(folder)
        _say(options, {"certificate": until.isoformat(), "hosts": named},
             f"The certificate is good until {until:%Y-%m-%d}, for {', '.join(named)}.")  # fmt: skip
        return 0
    if options.action == "add-client" and options.names is not None:
        text = sys.stdin.read() if options.names == "-" else text_in(Path(options.names))
        names = list(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))
        if not names:
            raise FedbanditError(f"--names is {options.names!r}, which has no names, one a line.")
        given = names, role, options.federation or "", options.days
        _hand_out(options, lambda: credentials.add_credentials(folder, *given))
        return 0
    if not options.name:
        raise FedbanditError(f"fedbandit keys {options.action} needs a NAME.")
    if options.action == "certify":
        return _certify(options)
    if options.action == "revoke":
        credentials.revoke_credential(folder, options.name, options.federation)
        where = f" for {options.federation}" if options.federation else ""
        _say(options, {"name": options.name, "revoked": True}, f"The tokens of {options.name}{where} are revoked.")
    elif options.action == "renew":
        how = options.name, 7.0 if options.overlap is None else options.overlap, options.days, options.federation
        _hand_out(options, lambda: {options.name: credentials.renew_credential(folder, *how)})
    else:
        given = [options.name], role, options.federation or "", options.days
        _hand_out(options, lambda: credentials.add_credentials(folder, *given))
    return 0


def _sum_key(options: argparse.Namespace) -> int:
    """Show a client's signing key for secure sums; it is made if there is none yet."""
    from fedbandit.network.client.sums import SumKeys

    if options.state is None:
        raise FedbanditError("fedbandit keys sum-key needs --state FILE: the client's, beside which its key is kept.")
    if Path(options.state).is_dir():
        raise FedbanditError(f"--state is {options.state!r}, which is a folder, but must be the client's file.")
    key = SumKeys(options.state).identity.public.hex()
    _say(options, {"key": key}, key)
    return 0


def _certify(options: argparse.Namespace) -> int:
    """Sign a client's key for secure sums, with the authority's."""
    from fedbandit.network.certificates import certify
    from fedbandit.network.certified import read_key

    for flag, value in (
        ("--federation NAME", options.federation),
        ("--key KEY", options.key),
        ("--out FILE", options.out),
    ):
        if not value:
            raise FedbanditError(f"fedbandit keys certify needs {flag}.")
    made = certify(options.keys, options.name, options.federation, read_key(options.key), options.authority)
    made.write(options.out)
    text = f"{options.out} says that this is the key of {options.name} in {options.federation}; give it to that client."
    _say(options, {"written": str(options.out), "name": options.name, "federation": options.federation}, text)
    return 0


def _hand_out(options: argparse.Namespace, make: Callable[[], dict[str, str]]) -> None:
    """Make tokens, and print them or write them to a file: alone if there is one, else after its name and a tab."""
    from fedbandit.network.credentials import hash_token, list_tokens

    single = options.names is None
    with _new_file(options.out) as file:
        tokens = make()
        lines = list(tokens.values()) if single else [f"{name}\t{token}" for name, token in tokens.items()]
        if file is not None:
            file.write("\n".join(lines) + "\n")
    if options.out is not None:
        many = "token" if len(tokens) == 1 else "tokens"
        text = f"{len(tokens)} {many} in {options.out}."
        _say(options, {"written": str(options.out), "tokens": len(tokens)}, text)
    elif options.json and single:
        ((name, token),) = tokens.items()
        role = next(one.role for one in list_tokens(options.keys) if one.hash == hash_token(token))
        print(json.dumps({"name": name, "role": role, "token": token}))
    else:
        print(json.dumps({"tokens": tokens}) if options.json else "\n".join(lines))


@contextmanager
def _new_file(path: Path | None) -> Iterator[TextIO | None]:
    """A file that nobody else can read, made before anything is written to the table; none is left if that fails."""
    if path is None:
        yield None
        return
    try:
        opened = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600)
    except FileExistsError:
        raise FedbanditError(f"--out is {str(path)!r}, which exists already; no token was made.") from None
    except OSError as error:
        raise FedbanditError(f"--out is {str(path)!r}: {error.strerror}; no token was made.") from None
    try:
        with os.fdopen(opened, "w") as file:
            yield file
    except BaseException:
        path.unlink()
        raise


def _list(options: argparse.Namespace) -> int:
    from fedbandit.network.credentials import list_tokens

    now = time.time()
    rows = [
        {
            "name": token.name,
            "role": token.role,
            "federation": token.federation or None,
            "made": _day(token.made),
            "expires": _day(token.expires),
            "state": token.state(now),
        }
        for token in list_tokens(options.keys)
    ]
    if options.json:
        print(json.dumps({"tokens": rows}))
        return 0
    for row in rows:
        ends = f"until {row['expires']}" if row["expires"] else ""
        print(f"{row['name']:24} {row['role']:9} {row['federation'] or 'all':16} {row['state']:8} {ends}".rstrip())
    return 0


_LAST = 2.5e11
"""Seconds since 1970 in the year 9892; what is later is never."""


def _day(at: float) -> str | None:
    if at == 0.0 or at > _LAST:
        return None
    return datetime.datetime.fromtimestamp(at, datetime.UTC).date().isoformat()


def _say(options: argparse.Namespace, report: dict[str, object], text: str) -> None:
    print(json.dumps(report) if options.json else text)
