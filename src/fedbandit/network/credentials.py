"""Credentials: a file of names, roles and hashed tokens. `fedbandit keys` writes it; a coordinator follows changes.

A token is `fb-` and 43 random characters; only its SHA-256 is kept. Roles: a *client* takes part, an *observer* reads
the live page and the metrics, an *admin* may quarantine clients too.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fedbandit.errors import FedbanditError
from fedbandit.network.refusal import Refusal

FILE = "credentials.json"
Role = Literal["client", "observer", "admin"]
ROLES: tuple[Role, ...] = ("client", "observer", "admin")
_ALLOWED: dict[str, set[Role]] = {
    "client": {"client"},
    "observer": {"observer"},
    "admin": {"admin", "observer"},
    "anyone": set(ROLES),
}
_LOOK_EVERY = 0.5  # seconds between looks at the file


class Identity(NamedTuple):
    """An authenticated name and its role; on loopback without keys, any name that is claimed, with every role."""

    name: str
    role: str

    def require(self, role: Role) -> None:
        """Refuse an identity with another role."""
        if role not in _ALLOWED[self.role]:
            raise Refusal("role", f"{self.name!r} has the role {self.role}, but this needs {role}.")


class Credentials:
    """The credentials in a folder; None lets anyone in by the name they give."""

    def __init__(self, folder: Path | None) -> None:
        self.path = None if folder is None else folder / FILE
        self._changed: tuple[int, int] | None = None
        self._looked = -1.0
        self._by_hash: dict[str, dict[str, Any]] = {}
        self._look()

    def identify(self, authorization: str | None, claimed: str | None) -> Identity:
        """Who sends this `Authorization: Bearer …` header."""
        if self.path is None:
            if not claimed or len(claimed) > 100 or not claimed.isprintable():
                raise Refusal("credentials", "Without keys a client must say its name, at most 100 characters.")
            return Identity(claimed, "anyone")
        self._look()
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Refusal("credentials", "There is no token; send 'Authorization: Bearer …'.")
        entry = self._by_hash.get(hash_token(token.strip()))
        if entry is None:
            raise Refusal("credentials", "The token is not known here.")
        if entry["revoked"]:
            raise Refusal("credentials", f"The token of {entry['name']!r} has been revoked.")
        return Identity(entry["name"], entry["role"])

    def _look(self) -> None:
        if self.path is None or time.monotonic() - self._looked < _LOOK_EVERY:
            return
        self._looked = time.monotonic()
        try:
            status = os.stat(self.path)
            if (status.st_mtime_ns, status.st_size) == self._changed:
                return
            self._by_hash = {entry["hash"]: entry for entry in read_entries(self.path)}
            self._changed = status.st_mtime_ns, status.st_size
        except OSError:
            raise FedbanditError(
                f"There are no keys at {str(self.path)!r}; make them with fedbandit keys init."
            ) from None


def hash_token(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def read_entries(path: Path) -> list[dict[str, Any]]:
    """All credentials in a file."""
    try:
        entries: list[dict[str, Any]] = json.loads(path.read_text())
        for entry in entries:
            _ = entry["name"], entry["role"], entry["hash"], entry["revoked"]
    except (ValueError, KeyError, TypeError) as error:
        raise FedbanditError(f"{str(path)!r} is not a file of credentials: {error}.") from None
    return entries


def write_entries(path: Path, entries: list[dict[str, Any]]) -> None:
    """Write all credentials, whole or not at all."""
    partial = path.with_suffix(".partial")
    partial.touch(mode=0o600)
    partial.write_text(json.dumps(entries, indent=1) + "\n")
    os.replace(partial, path)


def add_credential(folder: Path, name: str, role: Role) -> str:
    """A new token for a name that has none, or whose token was revoked."""
    path = folder / FILE
    if not path.exists():
        raise FedbanditError(f"There are no keys in {str(folder)!r}; make them with fedbandit keys init.")
    if not name or len(name) > 100 or not name.isprintable():
        raise FedbanditError(f"The name is {name!r}, but must have 1 to 100 printable characters.")
    entries = read_entries(path)
    if any(entry["name"] == name and not entry["revoked"] for entry in entries):
        raise FedbanditError(f"There is a token for {name!r} already; revoke it first.")
    token = f"fb-{secrets.token_urlsafe(32)}"
    entries.append({"name": name, "role": role, "hash": hash_token(token), "revoked": False})
    write_entries(path, entries)
    return token


def revoke_credential(folder: Path, name: str) -> None:
    """No token of this name is good any more."""
    path = folder / FILE
    entries = read_entries(path) if path.exists() else []
    mine = [entry for entry in entries if entry["name"] == name and not entry["revoked"]]
    if not mine:
        raise FedbanditError(f"There is no valid token for {name!r} in {str(folder)!r}.")
    for entry in mine:
        entry["revoked"] = True
    write_entries(path, entries)
