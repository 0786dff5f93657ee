"""What a system needs to know of its privacy part."""

from __future__ import annotations

from typing import ClassVar, Literal, Protocol, runtime_checkable

from fedbandit.privacy.guarantee import Guarantee

Site = Literal["nowhere", "client", "node", "coordinator"]
"""Who draws the noise."""


@runtime_checkable
class Privacy(Protocol):
    """Parameters of a mechanism, who runs it, and what it guarantees."""

    site: ClassVar[Site]

    def guarantee(self) -> Guarantee:
        """The claim."""
        ...
