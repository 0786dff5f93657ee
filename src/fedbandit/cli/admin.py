"""What the commands of operators have in common: how they reach a running coordinator."""

from __future__ import annotations

import argparse
import json
import ssl
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbandit.cli.arguments import token_in
from fedbandit.errors import FedbanditError, as_sentence

if TYPE_CHECKING:
    from fedbandit.network.stores import Store


def add_address(command: argparse.ArgumentParser, token: str = "an administrator's token") -> None:
    """Where the coordinator is, and with which token."""
    command.add_argument("--url", default="http://127.0.0.1:8765", help="default: http://127.0.0.1:8765")
    command.add_argument("--token-file", type=Path, metavar="FILE", help=token)
    command.add_argument("--ca", metavar="FILE", help="the authority that signed the coordinator's certificate")


MOST_HOPS = 4
"""How often one coordinator may name another as the owner before there is none."""


def ask(
    options: argparse.Namespace,
    path: str,
    wish: dict[str, Any] | None = None,
    method: str | None = None,
    hops: int = MOST_HOPS,
) -> bytes:
    """What the coordinator answers to GET, or to POST with a JSON object; a refusal is its sentence.

    One that does not own the federation says who does, and that one is asked. A token is not sent in the clear, and
    from one with TLS to none without.
    """
    from fedbandit.network.addresses import check_url, not_by_a_coordinator, trusted

    token = token_in(options.token_file)
    check_url(options.url, token=token is not None)
    headers = {"X-Fedbandit-Name": "fedbandit"} if token is None else {"Authorization": f"Bearer {token}"}
    if wish is not None:
        headers["Content-Type"] = "application/json"
    body = None if wish is None else json.dumps(wish).encode()
    context = trusted(options.ca) if options.url.startswith("https") else None
    try:
        request = urllib.request.Request(options.url.rstrip("/") + path, body, headers, method=method)
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            data: bytes = answer.read()
            return data
    except urllib.error.HTTPError as error:
        with error:
            try:
                said = json.loads(error.read())
                sentence, owner = str(said["error"]), str(said.get("owner", ""))
            except (ValueError, KeyError, TypeError):
                sentence, owner = not_by_a_coordinator(options.url + path, error.code), ""
        if error.code == 421 and owner not in ("", options.url) and hops > 0:
            if options.url.startswith("https") and not owner.startswith("https"):
                raise FedbanditError(f"{options.url} names {owner!r} as the owner, which has no TLS.") from None
            options.url = owner
            return ask(options, path, wish, method, hops - 1)
        raise FedbanditError(sentence) from None
    except (OSError, ValueError, HTTPException) as error:  # the last: an answer that was cut off
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            from fedbandit.network.addresses import distrust

            raise FedbanditError(distrust(options.url, reason, options.ca, "--ca")) from None
        raise FedbanditError(f"There is no answer from {options.url}: {as_sentence(reason)}") from None


def open_stopped(where: str | None, way: str) -> Store:
    """The store of a coordinator that does not run, made if there is none; if it runs, there is another `way`."""
    from fedbandit.network.stores import InUse, open_store

    if where is None:
        raise FedbanditError("The configuration names no store, so that its coordinator keeps everything in memory.")
    try:
        return open_store(where, many=True)
    except InUse as error:
        raise FedbanditError(f"{str(error).removesuffix('.')}; if that is the coordinator, {way}.") from None


def open_existing(where: str | None, way: str) -> Store:
    """The same, of one that is there: none is made."""
    if where is not None and "://" in where:
        from fedbandit.network.stores.postgres import ReadOnlyPostgres

        ReadOnlyPostgres(where).close()
    elif where is not None and (not Path(where).is_file() or not Path(where).stat().st_size):
        raise FedbanditError(f"There is no store {where!r}.")
    return open_stopped(where, way)


def ask_json(
    options: argparse.Namespace, path: str, wish: dict[str, Any] | None = None, method: str | None = None
) -> dict[str, Any]:
    """The same, of an answer in JSON."""
    answer: dict[str, Any] = json.loads(ask(options, path, wish, method))
    return answer
