"""`fedbandit quarantine`: refuse a client of a running coordinator, and take out what it has uploaded."""

from __future__ import annotations

import argparse
import json
from urllib.parse import quote

from fedbandit.cli.admin import add_address, ask_json
from fedbandit.errors import FedbanditError

SUMMARY = "Put a client in quarantine, with a reason, or end its quarantine."


def add_flags(command: argparse.ArgumentParser) -> None:
    """Whom, and why."""
    command.add_argument("federation")
    command.add_argument("client")
    command.add_argument("--reason", metavar="TEXT", help="what the client is told, and the page shows")
    command.add_argument("--end", action="store_true", help="end the quarantine: what it had uploaded counts again")
    add_address(command)


def run(options: argparse.Namespace) -> int:
    """Ask the coordinator."""
    if options.end == bool(options.reason):
        raise FedbanditError("fedbandit quarantine needs --reason TEXT, or --end.")
    path = f"/v1/{quote(options.federation, safe='')}/quarantine"
    answer = ask_json(options, path, {"client": options.client, "reason": "" if options.end else options.reason})
    state = "is in quarantine" if answer["quarantined"] else "is not in quarantine any more"
    print(json.dumps(answer) if options.json else f"{options.client} {state}.")
    return 0
