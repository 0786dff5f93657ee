"""`fedbandit members`: who has a place in a federation, and whose place is freed."""

from __future__ import annotations

import argparse
import json
from urllib.parse import quote

from fedbandit.cli.admin import add_address, ask_json
from fedbandit.errors import FedbanditError

SUMMARY = "List the clients that have a place in a federation, or free the place of one."


def add_flags(command: argparse.ArgumentParser) -> None:
    """Of which federation."""
    command.add_argument("action", choices=("list", "free"))
    command.add_argument("federation")
    command.add_argument("client", nargs="?", help="free: whose place")
    command.add_argument("--search", default="", metavar="TEXT", help="list: only names with this in them")
    add_address(command)


def run(options: argparse.Namespace) -> int:
    """Ask the coordinator."""
    if options.action == "list" and options.client is not None:
        raise FedbanditError(f"{options.client!r} is one argument too many; members list takes --search TEXT.")
    path = f"/v1/{quote(options.federation, safe='')}"
    if options.action == "free":
        if options.client is None:
            raise FedbanditError("fedbandit members free needs a CLIENT.")
        answer = ask_json(options, f"{path}/free", {"client": options.client})
        print(json.dumps(answer) if options.json else f"{options.client} has no place any more; {answer['free']} free.")
        return 0
    clients, page, pages = [], 0, 1
    while page < pages:
        answer = ask_json(options, f"{path}/clients?size=1000&page={page}&search={quote(options.search)}")
        clients += answer["clients"]
        page, pages = page + 1, answer["pages"]
    if options.json:
        print(json.dumps({"clients": clients}))
        return 0
    for client in clients:
        state = "quarantined" if client["quarantined"] else "connected" if client["connected"] else "away"
        print(f"{client['member']:6} {client['name']:32} {state:12} {client['observations']:>12,} observations")
    return 0
