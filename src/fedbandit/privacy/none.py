"""No privacy mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedbandit.privacy.guarantee import Guarantee
from fedbandit.privacy.privacy import Perturbs, Privacy, Site


@dataclass(frozen=True)
class NoPrivacy(Privacy):
    """Statistics are sent as they are. Raw data still never leave a client, but that alone guarantees nothing."""

    site: ClassVar[Site] = "nowhere"
    perturbs: ClassVar[Perturbs] = "nothing"

    def guarantee(self) -> Guarantee:
        """None."""
        return Guarantee()
