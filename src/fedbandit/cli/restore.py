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
    command.add_argument("--force", action="store_true", help="even if the store has these federations already, "
                         "or is damaged: then its file is kept under another name")  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Read all of it first, then write all of it, or nothing."""
    needs("starlette", "server", "A coordinator")
    from fedbandit.network.coordinator.backup import read_backup
    from fedbandit.network.coordinator.config import load_config
    from fedbandit.network.stores import Damaged, NotOwner
    from fedbandit.network.stores.files import set_aside

    where = load_config(options.config).store
    journals = read_backup(options.file)
    aside = None
    try:
        store = open_stopped(where, "stop it first")
    except Damaged as error:
        if not options.force:
            said = str(error).removesuffix(".")
            raise FedbanditError(f"{said}; --force keeps it under another name, and makes a new one.") from None
        aside = set_aside(Path(str(where)))
        store = open_stopped(where, "stop it first")
    names = [journal.name for journal in journals]
    try:
        both = sorted(set(store.names()).intersection(names))
        if both and not options.force:
            raise FedbanditError(f"The store has {', '.join(both)} already; --force puts the backup in its place.")
        store.put(journals)
    except NotOwner as error:
        raise FedbanditError(f"{str(error).removesuffix('.')}; stop it first. Nothing was restored.") from None
    finally:
        store.close()
    report = {"federations": names} | ({} if aside is None else {"damaged": str(aside)})
    kept = "" if aside is None else f" The damaged store is {aside} now."
    print(json.dumps(report) if options.json else f"{', '.join(names)} restored.{kept}")
    return 0
