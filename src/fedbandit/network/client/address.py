"""Where a client's coordinators are, and what is asked of them by HTTP: its invitation, the terms, to be erased."""

from __future__ import annotations

import contextlib
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from ssl import SSLCertVerificationError
from typing import Any
from urllib.parse import quote

from fedbandit.errors import FedbanditError, shown
from fedbandit.network.addresses import check_url, distrust, not_by_a_coordinator, trusted
from fedbandit.network.clock import said_in
from fedbandit.network.invitation import Agreement
from fedbandit.network.jsonable import read_json
from fedbandit.network.resolved import accept, accept_terms

NOT_FOUND, ELSEWHERE = 404, 421
"""The HTTP status of no such thing, and of a coordinator that is not the owner of the federation."""
PAUSE = 0.1
"""Seconds before the next coordinator is asked."""


class Address:
    """Where the coordinators are, which of them to ask, and the credentials to be let in with.

    `url` is the one to ask now: one of those that were given, or the owner that one of them named. Whoever cannot be
    reached, or does not know, is followed by the next (`turn`).
    """

    def __init__(
        self, url: str | Sequence[str], federation: str, token: str | None, name: str | None, ca: str | None
    ) -> None:
        urls = [url] if isinstance(url, str) else list(url)
        if not urls:
            raise FedbanditError("A client needs the URL of a coordinator, or several of them.")
        if not federation:
            raise FedbanditError("A client needs the name of its federation: give federation= or --federation.")
        self._token = token is not None
        for one in urls:
            check_url(one, token=self._token)
        if token is not None:
            token = token.strip()
            if not (token.isascii() and token.isprintable() and token) or " " in token:
                raise FedbanditError("The token is not one that fedbandit keys add-client printed.")
        if token is None and name and not (name.isprintable() and len(name) <= 100 and _is_sent(name)):
            raise FedbanditError(f"The name is {shown(name)}, but must have at most 100 printable Latin characters.")
        self.urls = [str(one).rstrip("/") for one in urls]
        self.url = self.urls[0]
        self._turn = 0
        self.path = f"/v1/{quote(federation, safe='')}"
        self.headers = {"Authorization": f"Bearer {token}"} if token is not None else {"X-Fedbandit-Name": name or ""}
        self.said_time: float | None = None
        """What time it was by the coordinator when it last said so."""
        self._ssl, self._ca = None, ca
        if any(one.startswith("https") for one in self.urls):
            self._ssl = trusted(ca)

    @property
    def stream(self) -> str:
        """The address of the WebSocket."""
        return self.url.replace("http", "ws", 1) + self.path + "/stream"

    @property
    def ssl(self) -> ssl.SSLContext | None:
        """How the coordinator shows who it is; None without TLS."""
        return self._ssl if self.url.startswith("https") else None

    def distrust(self, error: SSLCertVerificationError) -> str:
        """Why the coordinator is not believed to be the one, and what to do."""
        return distrust(self.url, error, self._ca, "ca= or --ca")

    def turn(self) -> None:
        """Ask the next one that was given."""
        self._turn = (self._turn + 1) % len(self.urls)
        self.url = self.urls[self._turn]

    def follow(self, owner: str) -> bool:
        """Ask the owner that was named; False if it must not or need not be asked."""
        try:
            check_url(owner, token=self._token)
        except FedbanditError:
            return False
        if owner.rstrip("/") == self.url or (self._ssl is not None) != owner.startswith("https"):
            return False
        self.url = owner.rstrip("/")
        return True

    def invitation(self, timeout: float) -> tuple[Agreement, int]:
        """Ask for the agreement and the member number."""
        agreement, member, _ = self.invitation_and_migrations(timeout)
        return agreement, member

    def invitation_and_migrations(self, timeout: float) -> tuple[Agreement, int, list[Any]]:
        """Ask for both, and for what became of features and actions in migrations of the federation, in JSON."""
        try:
            answer = self.ask("GET", "/invitation", timeout)
            return *accept(answer), answer.get("migrations", [])
        except FedbanditError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise FedbanditError(f"{self.url} does not answer like a coordinator: {error}.") from None

    def terms(self, timeout: float) -> Agreement | None:
        """Ask for the agreement, without a place; None of a coordinator that is too old to be asked."""
        try:
            return accept_terms(self.ask("GET", "/terms", timeout))
        except NotAsked:
            return None
        except (KeyError, TypeError) as error:
            raise FedbanditError(f"{self.url} does not answer like a coordinator: {error}.") from None

    def decline(self, timeout: float) -> None:
        """Give the place back that an invitation has taken; a coordinator that cannot be asked keeps it."""
        with contextlib.suppress(FedbanditError):
            self.ask("DELETE", "/invitation", timeout)

    def erase(self, timeout: float) -> dict[str, Any]:
        """Ask for what this client has uploaded to be erased; a receipt."""
        name = self.ask("GET", "/invitation", timeout)["name"]  # which a token does not tell
        receipt: dict[str, Any] = self.ask("DELETE", f"/clients/{quote(name, safe='')}", timeout)
        return receipt

    def ask(self, method: str, path: str, timeout: float) -> Any:
        """What one of the coordinators answers, in JSON: that one which owns the federation."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                return self._ask(method, path, timeout)
            except _TryAgain as again:
                if time.monotonic() > deadline or not again.soon:
                    raise FedbanditError(str(again)) from None
                if not self.follow(again.owner):
                    self.turn()
                time.sleep(PAUSE)

    def _ask(self, method: str, path: str, timeout: float) -> Any:
        request = urllib.request.Request(f"{self.url}{self.path}{path}", headers=self.headers, method=method)
        what = {"/invitation": "an invitation", "/terms": "its terms"}.get(path, "that")
        several = len(self.urls) > 1 or self.url not in self.urls
        try:
            with open_url(request, timeout, self.ssl) as response:
                self.said_time = said_in(response.headers)
                return read_json(response.read())
        except urllib.error.HTTPError as error:
            with error:
                body = error.read()
                sentence = f"The coordinator refuses {what}: {sentence_in(body)}"
                if b'"error"' not in body:
                    sentence = not_by_a_coordinator(f"{self.url}{self.path}{path}", error.code)
                if error.code == ELSEWHERE:
                    raise _TryAgain(sentence, owner_in(body), soon=True) from None
                if error.code == NOT_FOUND and b'"kind"' not in body:
                    raise NotAsked(sentence) from None
                raise FedbanditError(sentence) from None
        except (OSError, ValueError, HTTPException) as error:  # the last: an answer that was cut off
            reason = getattr(error, "reason", error)
            if isinstance(reason, SSLCertVerificationError):
                raise _TryAgain(self.distrust(reason), soon=several) from None
            without = ", and no state to go on from" if path in ("/invitation", "/terms") else ""
            raise _TryAgain(f"There is no answer from {self.url}{without}: {reason}.", soon=several) from None


def _is_sent(name: str) -> bool:
    """Whether a header can have a name."""
    try:
        name.encode("latin-1")
    except UnicodeEncodeError:
        return False
    return True


def require_one(url: str | Sequence[str] | None, agreement: Agreement | None) -> None:
    """Refuse neither a coordinator nor an agreement, or both."""
    if (url is None) == (agreement is None):
        raise FedbanditError("A client needs the URL of a coordinator, or an agreement to learn alone by.")
    if agreement is not None and agreement.build().protocol.says != "nothing":
        raise FedbanditError(f"Clients of {agreement.system} talk to a coordinator; to learn alone take linucb.")


class NotAsked(FedbanditError):
    """A coordinator does not know the request: an older one."""


class _TryAgain(Exception):
    """Another coordinator may have an answer, perhaps the `owner`; or this one, `soon`."""

    def __init__(self, sentence: str, owner: str = "", *, soon: bool) -> None:
        super().__init__(sentence)
        self.owner, self.soon = owner, soon


def owner_in(body: bytes) -> str:
    """The owner that a refusal names; empty if it names none."""
    try:
        return str(read_json(body)["owner"])
    except (ValueError, KeyError, TypeError):
        return ""


def sentence_in(body: bytes) -> str:
    """Why a coordinator refuses."""
    try:
        return str(read_json(body)["error"])
    except (ValueError, KeyError, TypeError):
        return "without a reason."


def open_url(request: urllib.request.Request, timeout: float, context: ssl.SSLContext | None) -> Any:
    """The answer to a request. No proxy of the environment is asked: a client's stream goes directly, too, and without
    that the rest is of no use.
    """
    handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    return urllib.request.build_opener(*handlers).open(request, timeout=timeout)
