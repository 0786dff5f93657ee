"""No privacy mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedbandit.privacy.guarantee import Guarantee
from fedbandit.privacy.privacy import Perturbs, Privacy, Site


@dataclass(frozen=True)
class NoPrivacy(Privacy):
    """Statistics are sent as they are, which guarantees nothing: those of one observation are x and y themselves."""

    site: ClassVar[Site] = "nowhere"
    perturbs: ClassVar[Perturbs] = "nothing"

    def guarantee(self) -> Guarantee:
        """None."""
        return Guarantee()
