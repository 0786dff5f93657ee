"""`fedbandit migrate`: a federation under new terms, with what it has learnt."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from fedbandit.errors import FedbanditError, needs, unknown

SUMMARY = "Put a stopped federation under the terms of a new configuration: features, system or keywords."


def add_flags(command: argparse.ArgumentParser) -> None:
    """Which federation, and what becomes of its features."""
    command.add_argument("federation")
    command.add_argument("--config", type=Path, required=True, metavar="FILE.toml", help="with the new terms")
    command.add_argument("--features", metavar="K,K,…", help="the old number of each new feature, - for a new one "
                         "(default: by the names in both schemas, or new ones at the end)")  # fmt: skip
    command.add_argument("--backup", type=Path, required=True, metavar="FILE", help="of the store as it is now")


def run(options: argparse.Namespace) -> int:
    """Write a backup, then migrate."""
    needs("starlette", "server", "A coordinator")
    from fedbandit.network.coordinator.backup import save, write_backup
    from fedbandit.network.coordinator.config import load_config
    from fedbandit.network.coordinator.migrate import migrate, same_features, stored_agreement
    from fedbandit.network.stores import open_store

    config = load_config(options.config)
    if options.federation not in config.federations:
        raise unknown("federation", options.federation, config.federations)
    entry = config.federations[options.federation]
    store = open_store(config.store)
    try:
        old = stored_agreement(store, options.federation)
        features = same_features(old, entry.agreement) if options.features is None else _numbers(options.features)
        save(options.backup, write_backup(store))
        federation = migrate(store, options.federation, entry.agreement, features, entry.rules)
    finally:
        store.close()
    n = federation.machine.gathered().n
    report = {"federation": options.federation, "observations": n, "features": features, "backup": str(options.backup)}
    text = f"{n:,} observations are under the new terms; every client begins with a new file. Before: {options.backup}."
    print(json.dumps(report) if options.json else text)
    return 0


def _numbers(text: str) -> list[int | None]:
    try:
        return [None if word.strip() == "-" else int(word) for word in text.split(",")]
    except ValueError:
        raise FedbanditError(f"--features is {text!r}, but must be like 0,1,-: old numbers, - for a new one.") from None
