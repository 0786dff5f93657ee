"""Where the noise of a client on a network comes from."""

from __future__ import annotations

from fedbandit.errors import FedbanditError
from fedbandit.privacy.noise import Source
from fedbandit.system import System


def noise_source(system: System, *, report: bool, lasts: bool) -> Source | None:
    """Where the noise of a client comes from, if it draws any."""
    if system.privacy.site != "client":
        return None
    if report:
        raise FedbanditError("report=True would tell rewards that this federation keeps private.")
    if not lasts and system.privacy.contribution is not None:
        raise FedbanditError("This federation protects whole clients, so the ledger must last: give state=FILE.")
    from fedbandit.privacy.secure import SecureSource

    return SecureSource()
