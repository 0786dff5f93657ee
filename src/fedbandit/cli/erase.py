"""`fedbandit erase`: have a running coordinator forget all that a client has uploaded, exactly."""

from __future__ import annotations

import argparse
import json
from urllib.parse import quote

from fedbandit.cli.admin import add_address, ask_json

SUMMARY = "Erase all that a client has uploaded to a federation; prints a receipt."


def add_flags(command: argparse.ArgumentParser) -> None:
    """Whom."""
    command.add_argument("federation")
    command.add_argument("client")
    add_address(command)


def run(options: argparse.Namespace) -> int:
    """Ask the coordinator."""
    path = f"/v1/{quote(options.federation, safe='')}/clients/{quote(options.client, safe='')}"
    receipt = ask_json(options, path, method="DELETE")
    if options.json:
        print(json.dumps(receipt))
        return 0
    what = f"{receipt['observations']:,} observations in {receipt['uploads']:,} uploads"
    print(f"{what} of {receipt['client']} are erased; {receipt['remaining']:,} observations of others remain.")
    print(f"{receipt['at']}, receipt {receipt['digest']}")
    return 0
