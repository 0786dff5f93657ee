"""No privacy mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from fedbandit.privacy.guarantee import Guarantee


@dataclass(frozen=True)
class NoPrivacy:
    """Statistics are sent as they are. Raw data still never leave a client, but that alone guarantees nothing."""

    site: ClassVar[Literal["nowhere"]] = "nowhere"

    def guarantee(self) -> Guarantee:
        """None."""
        return Guarantee()
