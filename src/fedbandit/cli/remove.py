"""`fedbandit remove`: a federation that is not configured any more, and all that its members have sent, for good."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from fedbandit.cli.admin import open_existing
from fedbandit.errors import FedbanditError, needs

SUMMARY = "Remove a federation that is not configured any more from the store of a coordinator, for good."


def add_flags(command: argparse.ArgumentParser) -> None:
    """Which, and from where."""
    command.add_argument("federation")
    command.add_argument("--config", type=Path, required=True, metavar="FILE.toml", help="whose store")


def run(options: argparse.Namespace) -> int:
    """Delete it, and see that the files have nothing of it."""
    needs("starlette", "server", "A coordinator")
    from fedbandit.network.coordinator.config import load_config
    from fedbandit.network.stores import StoreError

    name, config = options.federation, load_config(options.config)
    if name in config.federations:
        raise FedbanditError(f"The federation {name!r} is configured in {options.config}; take it out of there first.")
    store = open_existing(config.store, "stop it first")
    try:
        names = store.names()
        if name in names:
            store.claim(name)  # refused if another coordinator serves it
            store.delete(name)
        try:
            store.compact()  # also if it was removed before, when this may have failed
        except StoreError as error:
            again = "but the store's files may still have it; remove it again."
            raise FedbanditError(f"The store {store.where} has no federation {name!r} now, {again} {error}") from None
    finally:
        store.close()
    if options.json:
        print(json.dumps({"federation": name, "removed": name in names}))
    else:
        had = "is removed" if name in names else "was not there"
        print(f"{name} {had}; the files of the store {store.where} are written anew.")
    return 0
