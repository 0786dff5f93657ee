"""What a client is opened with: a key for tokens, a name that lasts, a log of decisions, a source of noise."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from fedbandit.errors import FedbanditError
from fedbandit.files import write_text
from fedbandit.privacy.noise import Size, Source
from fedbandit.system import System
from fedbandit.types import Array

if TYPE_CHECKING:
    from fedbandit.environments.decision_log import DecisionLog


def signing_key(choice_key: str | bytes | None) -> bytes | None:
    """The key that tokens are signed with."""
    key = choice_key.encode() if isinstance(choice_key, str) else choice_key
    if key is not None and not (isinstance(key, bytes) and len(key) >= 16):
        raise FedbanditError("choice_key must be a secret of 16 bytes or more, the same for all workers.")
    return key


def decision_log(folder: str | os.PathLike[str] | None, client: str) -> DecisionLog | None:
    """The log in a folder, if there is to be one."""
    if folder is None:
        return None
    from fedbandit.environments.decision_log import DecisionLog  # which a device that keeps none need not load

    return DecisionLog(folder, client=client)


def lasting_name(state: str | os.PathLike[str] | None) -> str:
    """A name for a client that was given none, the same whenever the same state is opened."""
    if state is None:
        return f"client-{secrets.token_hex(4)}"
    if os.path.isdir(state):
        raise FedbanditError(f"The state {os.fspath(state)!r} is a folder, but must be a file.")
    path = Path(os.fspath(state) + ".name")
    try:
        if not path.exists() or path.stat().st_size == 0:  # empty: from a first start on a full disk
            write_text(path, json.dumps(f"client-{secrets.token_hex(4)}"))
        return str(json.loads(path.read_text()))
    except (OSError, ValueError) as error:
        if isinstance(error, FedbanditError):
            raise
        raise FedbanditError(f"{str(path)!r} cannot be used: {error}.") from None


class CoordinatorsNoise:
    """The noise of a federation whose coordinator draws it, securely: there is none to draw here."""

    label = "secure"

    def standard_normal(self, size: Size) -> Array:
        """None."""
        raise FedbanditError(f"A client draws no noise of shape {size} where its coordinator is trusted to.")

    def standard_gamma(self, shape: float, size: Size) -> Array:  # noqa: ARG002
        """None."""
        return self.standard_normal(size)

    def laplace(self, loc: float, scale: float, size: Size) -> Array:  # noqa: ARG002
        """None."""
        return self.standard_normal(size)


def noise_source(system: System, *, report: bool, lasts: bool) -> Source | None:
    """Where the noise of a client comes from, if it draws any."""
    if system.privacy.site == "coordinator" and system.privacy.pooled:
        return CoordinatorsNoise()
    if system.privacy.site != "client":
        return None
    if report:
        raise FedbanditError("report=True would tell rewards that this federation keeps private.")
    if not lasts and system.privacy.contribution is not None:
        raise FedbanditError("This federation protects whole clients, so the ledger must last: give state=FILE.")
    from fedbandit.privacy.secure import SecureSource

    return SecureSource()
