"""`fedbandit migrate`: a federation, or a client's file, under new terms, with what it has learnt."""

from __future__ import annotations

import argparse
import json
import secrets
from contextlib import closing
from pathlib import Path

from fedbandit.cli.admin import add_address, open_existing
from fedbandit.cli.arguments import token_in
from fedbandit.errors import FedbanditError, needs, unknown

SUMMARY = "Put a stopped federation, or a client's file, under new terms: features, actions, system or keywords."


def add_flags(command: argparse.ArgumentParser) -> None:
    """Which federation or client, and what becomes of its features and actions."""
    command.add_argument("federation")
    which = command.add_mutually_exclusive_group(required=True)
    which.add_argument("--config", type=Path, metavar="FILE.toml", help="the federation: with the new terms")
    which.add_argument("--client", type=Path, metavar="FILE", help="the state of a client that is not running; its "
                       "coordinator (--url) says the new terms")  # fmt: skip
    command.add_argument("--features", metavar="K,K,…", help="the old number of each new feature, - for a new one "
                         "(default: by the names in both schemas, or new ones at the end of their part; a client: as "
                         "its federation was)")  # fmt: skip
    command.add_argument("--actions", metavar="K,K,…", help="the old number of each new action, - for a new one "
                         "(default: by the names of both, or new ones at the end)")  # fmt: skip
    command.add_argument("--backup", type=Path, required=True, metavar="FILE", help="written first: the store, or the "
                         "client's file, as it is now; there must be no such file")  # fmt: skip
    add_address(command, "the client's token")
    command.add_argument("--name", help="of the client, without a token")


def run(options: argparse.Namespace) -> int:
    """Write a backup, then migrate."""
    return _client(options) if options.config is None else _federation(options)


def _client(options: argparse.Namespace) -> int:
    from fedbandit.files import require_new
    from fedbandit.network.client.address import Address
    from fedbandit.network.client.journal import stored_agreement
    from fedbandit.network.client.migrate import migrate_client
    from fedbandit.network.client.options import lasting_name
    from fedbandit.network.migrated import all_of
    from fedbandit.network.stores import open_store
    from fedbandit.network.stores.files import as_file, read_file, save

    if not options.client.is_file():
        raise FedbanditError(f"There is no file {str(options.client)!r}.")
    given = _given(options)
    token = token_in(options.token_file)
    unnamed = token is None and options.name is None
    if unnamed and not options.client.with_name(options.client.name + ".name").is_file():
        raise FedbanditError(f"Nobody knows whose file {str(options.client)!r} is: give --name, as its Client has it.")
    name = lasting_name(options.client) if unnamed else options.name
    require_new(options.backup)
    address = Address(options.url, options.federation, token, name, options.ca)
    with closing(open_store(options.client)) as store:
        stored = stored_agreement(store)
        if stored is None:
            raise FedbanditError(f"{store.where} has no client's state.")
        agreement, member, told = address.invitation_and_migrations(10.0)
        if member != stored[1]:
            address.decline(10.0)  # the place that the name may have been given only now
        backup = lambda: save(options.backup, as_file(store.dump()), read_file)  # noqa: E731
        machine = migrate_client(
            store, agreement, member, lambda: secrets.randbits(63), all_of(told), **given,
            federation=options.federation, backup=backup,
        ).machine  # fmt: skip
    report = {"client": str(options.client), "pending": machine.pending, "backup": str(options.backup)}
    text = f"{machine.pending:,} pending observations are under the new terms. Before: {options.backup}."
    print(json.dumps(report) if options.json else text)
    return 0


def _federation(options: argparse.Namespace) -> int:
    needs("starlette", "server", "A coordinator")
    from fedbandit.files import require_new
    from fedbandit.network.carried import Carried
    from fedbandit.network.coordinator.backup import read_backup, write_backup
    from fedbandit.network.coordinator.config import load_config
    from fedbandit.network.coordinator.migrate import migrate, stored_agreement
    from fedbandit.network.stores.files import save

    config = load_config(options.config)
    if options.federation not in config.federations:
        raise unknown("federation", options.federation, config.federations)
    entry = config.federations[options.federation]
    given = _given(options)
    require_new(options.backup)
    with closing(open_existing(config.store, "stop it first")) as store:
        old = stored_agreement(store, options.federation)
        carried = Carried(old, entry.agreement, **given)
        backup = lambda: save(options.backup, write_backup(store), read_backup)  # noqa: E731
        federation = migrate(store, options.federation, carried, entry.rules, backup)
    n = federation.machine.gathered().n
    report = {"federation": options.federation, "observations": n, "features": carried.features}
    report |= {"actions": carried.actions, "backup": str(options.backup)}
    text = f"{n:,} observations are under the new terms; next each client's file (--client). Before: {options.backup}."
    print(json.dumps(report) if options.json else text)
    return 0


def _given(options: argparse.Namespace) -> dict[str, list[int | None] | None]:
    return {what: _numbers(f"--{what}", getattr(options, what)) for what in ("features", "actions")}


def _numbers(flag: str, text: str | None) -> list[int | None] | None:
    if text is None:
        return None
    try:
        return [None if word.strip() == "-" else int(word) for word in text.split(",")]
    except ValueError:
        raise FedbanditError(f"{flag} is {text!r}, but must be like 0,1,-: old numbers, - for a new one.") from None
