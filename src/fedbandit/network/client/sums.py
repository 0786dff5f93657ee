"""A client's half of secure sums on a network: when it is called, it takes part in a sum, step by step.

Before its masked numbers leave, the client's state has them as spent, with the epoch and with what entered: whatever
happens then, it contributes to no epoch twice. A crash in between forgets the masks, and the client is absent.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

from fedbandit.errors import FedbanditError
from fedbandit.machines.sums.client import SumClient
from fedbandit.machines.sums.masks import Identity
from fedbandit.machines.sums.messages import SumMessage, decode_step, encode_step
from fedbandit.machines.sums.terms import NO_CERTIFICATE, Acquaintances
from fedbandit.messages import Contribution
from fedbandit.network.certified import Certificate, read_authority
from fedbandit.network.client.address import Address, open_url
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.jsonable import read_json
from fedbandit.network.sums import SESSION_HEADER, STEP_SECONDS, mask_terms, session_of

POLL_SECONDS = 0.2
UNAVAILABLE = 503
_LENGTH = 4
log = logging.getLogger("fedbandit.client")


class SumKeys:
    """The signing key by which others know this client, and those that it has seen of them: in a file of its own."""

    certificate = NO_CERTIFICATE
    """The authority's signature under that key."""

    def __init__(self, state: str | os.PathLike[str] | None) -> None:
        self._path = None if state is None else Path(os.fspath(state) + ".sums")
        self.identity, self.acquaintances = Identity.new(), Acquaintances()
        if self._path is not None and self._path.exists():
            try:
                kept = _read(self._path)
                self.identity = Identity(bytes.fromhex(kept["identity"]))
                self.acquaintances.known = {int(i): bytes.fromhex(key) for i, key in kept["known"].items()}
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                raise FedbanditError(
                    f"The keys for secure sums in {str(self._path)!r} cannot be read: {error}."
                ) from None
        else:
            self.keep()

    def certify(self, path: str | os.PathLike[str], ca: str | None, federation: str) -> None:
        """Show others this certificate, and know only those whom its authority has certified, too."""
        if ca is None:
            raise FedbanditError(
                "A certificate needs ca=, the authority that signed it: the coordinator's keys/ca.pem."
            )
        certificate, authority = Certificate.read(Path(path)), read_authority(Path(ca), federation)
        certificate.check(self.identity.public, authority)
        self.certificate, self.acquaintances.authority = certificate.signature, authority

    def keep(self) -> None:
        """Write them, readable for nobody else."""
        if self._path is None:
            return
        known = {str(i): key.hex() for i, key in self.acquaintances.known.items()}
        kept = {"identity": self.identity.private.hex(), "known": known}
        scratch = self._path.with_name(self._path.name + ".new")
        with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump({**kept, "digest": _digest(kept)}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, self._path)


def _read(path: Path) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(path.read_text())
    if kept.pop("digest", None) not in (None, _digest(kept)):  # earlier versions wrote none
        raise ValueError("its checksum differs; restore its newest backup")
    return kept


def _digest(kept: dict[str, Any]) -> str:
    """A flipped bit would be another key, and its client a stranger to the others."""
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


class _TryAgain(FedbanditError):
    """The coordinator, or a relay, cannot take a step at this moment."""


class SumTalk:
    """Takes part in every sum that the client is called to, in a thread of its own."""

    def __init__(self, durable: DurableClient, lock: Callable[[], Any], address: Address, keys: SumKeys) -> None:
        self.durable, self.lock, self.address, self.keys = durable, lock, address, keys
        self.terms = mask_terms(durable.agreement.build(), durable.agreement)
        self.problem: str | None = None
        """Why this client left the last sum, if it did."""
        self.sums = 0
        """Sums to the end of which it has been."""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fedbandit-sums", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._closing.set()
        self._thread.join(10.0)

    def _run(self) -> None:
        while not self._closing.wait(POLL_SECONDS):
            call, self.durable.called = self.durable.called, None
            if call is None:
                continue
            try:
                self._take_part(call.epoch, call.included)
                self.problem, self.sums = None, self.sums + 1
            except FedbanditError as error:
                self.problem = str(error)
                log.warning("left the sum of epoch %d: %s", call.epoch, error)
            except (OSError, HTTPException) as error:  # the latter: an answer that was cut off
                self.problem = f"The coordinator cannot be reached: {error}."

    def _take_part(self, epoch: int, included: int) -> None:
        session = SumClient(
            self.terms,
            self.durable.machine.member,
            epoch,
            self.keys.identity,
            self.keys.acquaintances,
            self.keys.certificate,
            lambda: self._contribution(epoch, included),
        )
        to_send, waited = [session.begin()], 0.0
        while not session.over and not self._closing.is_set() and self.durable.called is None:
            answers = self._exchange(to_send[0] if to_send else None)
            to_send = [said for answer in answers for said in session.receive(answer)]
            if to_send:
                self.keys.keep()
                waited = 0.0
                continue
            self._closing.wait(POLL_SECONDS)
            waited += POLL_SECONDS
            if waited > 3 * STEP_SECONDS:
                raise FedbanditError(f"The sum of epoch {epoch} does not go on.")
        if to_send:  # what unmasks
            self._exchange(to_send[0])

    def _contribution(self, epoch: int, included: int) -> Contribution:
        """What goes into the sum: in the store, as spent, before anything of it can leave."""
        with self.lock():
            made = self.durable.contribute(epoch, included)
        if not isinstance(made, Contribution):
            raise FedbanditError(f"This client has nothing more to contribute in epoch {epoch}: its budget is spent.")
        return made

    def _exchange(self, message: SumMessage | None) -> list[SumMessage]:
        """Say this, again if the coordinator cannot take it, as long as it waits for the step; what it answers."""
        until = time.monotonic() + STEP_SECONDS
        while True:
            try:
                return self._post(message)
            except _TryAgain:
                if self._closing.wait(POLL_SECONDS) or self.durable.called is not None or time.monotonic() > until:
                    raise

    def _post(self, message: SumMessage | None) -> list[SumMessage]:
        body = b"" if message is None else encode_step(message)
        durable = self.durable
        session = session_of(durable.incarnation, durable.epoch, durable.nonce)
        headers = {**self.address.headers, "Content-Type": "application/octet-stream", SESSION_HEADER: session}
        request = urllib.request.Request(
            f"{self.address.url}{self.address.path}/sums", data=body, headers=headers, method="POST"
        )
        try:
            with open_url(request, STEP_SECONDS, self.address.ssl) as response:
                data = response.read()
        except urllib.error.HTTPError as error:
            with error:
                try:
                    sentence = str(read_json(error.read())["error"])
                except (ValueError, KeyError, TypeError):
                    sentence = f"status {error.code}"
            if error.code == UNAVAILABLE:
                raise _TryAgain(f"The coordinator cannot take a step of a sum: {sentence}") from None
            raise FedbanditError(f"The coordinator refuses a step of a sum: {sentence}") from None
        answers = []
        while data:
            length = int.from_bytes(data[:_LENGTH], "little")
            answers.append(decode_step(data[_LENGTH : _LENGTH + length]))
            data = data[_LENGTH + length :]
        return answers
