"""`fedbandit restore`: the store of a coordinator that does not run, made anew of a backup."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from fedbandit.cli.admin import open_stopped
from fedbandit.errors import FedbanditError, needs

SUMMARY = "Make the store of a coordinator of a backup; what was uploaded since, it asks its clients for."


def add_flags(command: argparse.ArgumentParser) -> None:
    """What, and where."""
    command.add_argument("file", type=Path, help="a backup")
    command.add_argument("--config", type=Path, required=True, metavar="FILE.toml", help="whose store")
    command.add_argument("--force", action="store_true", help="even if the store has these federations already")


def run(options: argparse.Namespace) -> int:
    """Read all of it first, then write all of it."""
    needs("starlette", "server", "A coordinator")
    from fedbandit.network.coordinator.backup import read_backup
    from fedbandit.network.coordinator.config import load_config
    from fedbandit.network.stores import put

    config = load_config(options.config)
    journals = read_backup(options.file)
    if not journals:
        raise FedbanditError(f"{str(options.file)!r} has no federation that could be restored.")
    store = open_stopped(config.store, "stop it first", new=True)
    try:
        there = {journal.name for journal in store.dump()}
        both = sorted(there.intersection(journal.name for journal in journals))
        if both and not options.force:
            raise FedbanditError(f"The store has {', '.join(both)} already; --force puts the backup in its place.")
        for journal in journals:
            put(store, journal)
    finally:
        store.close()
    names = [journal.name for journal in journals]
    print(json.dumps({"federations": names}) if options.json else f"{', '.join(names)} restored.")
    return 0
