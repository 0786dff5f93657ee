"""`fedbandit backup`: all federations of a coordinator in one file, while it runs or not."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from fedbandit.cli.admin import add_address, ask, open_existing
from fedbandit.errors import needs

SUMMARY = (
    "Write a backup of a coordinator's store: of a running one by --url, of a PostgreSQL or a stopped one by --config."
)


def add_flags(command: argparse.ArgumentParser) -> None:
    """From where, and to where."""
    command.add_argument("file", type=Path, help="where to; a file that is there is not overwritten")
    command.add_argument("--config", type=Path, metavar="FILE.toml", help="of a coordinator that does not run")
    add_address(command)


def run(options: argparse.Namespace) -> int:
    """Write it, and read it once."""
    needs("starlette", "server", "A backup")
    from fedbandit.files import require_new
    from fedbandit.network.coordinator.backup import read_backup, write_backup
    from fedbandit.network.coordinator.config import load_config
    from fedbandit.network.stores.files import save
    from fedbandit.network.stores.postgres import ReadOnlyPostgres

    require_new(options.file)
    if options.config is None:
        data = ask(options, "/api/backup")
    else:
        where = load_config(options.config).store
        way = "ask it with --url instead of --config"
        store = ReadOnlyPostgres(where) if where is not None and "://" in where else open_existing(where, way)
        try:
            data = write_backup(store)
        finally:
            store.close()
    names = [journal.name for journal in save(options.file, data, read_backup)]
    report = {"file": str(options.file), "bytes": len(data), "federations": names}
    print(json.dumps(report) if options.json else f"{', '.join(names)} in {options.file}, {len(data):,} bytes.")
    return 0
