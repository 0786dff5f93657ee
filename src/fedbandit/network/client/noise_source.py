"""Where the noise of a client on a network comes from."""

from __future__ import annotations

from fedbandit.errors import FedbanditError
from fedbandit.privacy.noise import Size, Source
from fedbandit.system import System
from fedbandit.types import Array


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
